"""Latent diffusion at work: concept vectors, and pictures made of the means of slots."""

from secagg.generation.classifier import train_classifier
from secagg.generation.concepts import ConceptTraining, train_concepts
from secagg.generation.pictures import GenerationSettings, Pictures, generate
from secagg.generation.sheets import contact_sheet, write_pictures

__all__ = [
    "ConceptTraining",
    "GenerationSettings",
    "Pictures",
    "contact_sheet",
    "generate",
    "train_classifier",
    "train_concepts",
    "write_pictures",
]
