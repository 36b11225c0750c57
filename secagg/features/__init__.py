"""Frozen feature maps; a record's features never depend on the other records of its batch."""

from secagg.features.backbone import Progress
from secagg.features.encoder import BOTTLENECK, KINDS, LORA, Encoder
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap, radius_of
from secagg.features.latents import Latents, latents_of
from secagg.features.opening import backbone_digest, open_backbone, programs_in

__all__ = [
    "BOTTLENECK",
    "KINDS",
    "LORA",
    "Encoder",
    "Expansion",
    "FeatureMap",
    "Latents",
    "Progress",
    "backbone_digest",
    "latents_of",
    "open_backbone",
    "programs_in",
    "radius_of",
]
