"""Differential privacy: what one record or client can move, how much noise hides it, and what that promises."""

from secagg.privacy.allocation import SHARE_RULES, BlockNoise, Calibration, Mechanism, calibrate, calibrate_mu
from secagg.privacy.claim import PrivacyClaim
from secagg.privacy.rdp import RdpCurve
from secagg.privacy.sampler import discrete_gaussian, rounded_gaussian
from secagg.privacy.sensitivity import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    MomentSensitivity,
    Sensitivity,
    Unit,
)

__all__ = [
    "SHARE_RULES",
    "Adjacency",
    "BlockNoise",
    "BlockSensitivity",
    "BlockwiseSensitivity",
    "Calibration",
    "Mechanism",
    "MomentSensitivity",
    "PrivacyClaim",
    "RdpCurve",
    "Sensitivity",
    "Unit",
    "calibrate",
    "calibrate_mu",
    "discrete_gaussian",
    "rounded_gaussian",
]
