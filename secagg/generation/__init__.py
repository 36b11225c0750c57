"""Picture generation by latent diffusion: trained concept vectors, and pictures made from opened mean latents."""

from secagg.generation.concepts import ConceptTraining, train_concepts
from secagg.generation.pictures import (
    GenerationSettings,
    Pictures,
    contact_sheet,
    generate,
    require_names,
    train_classifier,
    write_pictures,
)

__all__ = [
    "ConceptTraining",
    "GenerationSettings",
    "Pictures",
    "contact_sheet",
    "generate",
    "require_names",
    "train_classifier",
    "train_concepts",
    "write_pictures",
]
