"""Frozen feature maps whose output for one record never depends on its batch."""

from secagg.features.backbone import Backbone
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap
from secagg.features.opening import open_backbone
from secagg.features.radius import radius_of, round_up

__all__ = ["Backbone", "Expansion", "FeatureMap", "open_backbone", "radius_of", "round_up"]
