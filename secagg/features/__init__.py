"""Frozen feature maps whose output for one record never depends on its batch."""

from secagg.features.backbone import Backbone
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap
from secagg.features.opening import backbone_digest, open_backbone, planned_name, programs_in
from secagg.features.program import Progress
from secagg.features.radius import lengths_of, radius_of, round_up

__all__ = [
    "Backbone",
    "Expansion",
    "FeatureMap",
    "Progress",
    "backbone_digest",
    "lengths_of",
    "open_backbone",
    "planned_name",
    "programs_in",
    "radius_of",
    "round_up",
]
