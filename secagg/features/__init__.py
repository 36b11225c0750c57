"""Frozen feature maps whose output for one record never depends on its batch."""

from secagg.features.backbone import Backbone
from secagg.features.diffusion_files import DIFFUSERS, DiffusionFiles
from secagg.features.encoder import Change, Encoder
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap
from secagg.features.latents import Latents, as_feature, latents_of, pixels_of, to_latents, to_pixels
from secagg.features.opening import backbone_digest, needs_files, open_backbone, planned_name, programs_in
from secagg.features.places import BOTTLENECK, KINDS, LORA, Place, read_places, tell_places
from secagg.features.program import Progress
from secagg.features.radius import lengths_of, radius_of

__all__ = [
    "BOTTLENECK",
    "DIFFUSERS",
    "KINDS",
    "LORA",
    "Backbone",
    "Change",
    "DiffusionFiles",
    "Encoder",
    "Expansion",
    "FeatureMap",
    "Latents",
    "Place",
    "Progress",
    "as_feature",
    "backbone_digest",
    "latents_of",
    "lengths_of",
    "needs_files",
    "open_backbone",
    "pixels_of",
    "planned_name",
    "programs_in",
    "radius_of",
    "read_places",
    "tell_places",
    "to_latents",
    "to_pixels",
]
