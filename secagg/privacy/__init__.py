"""Differential privacy: how far one record or client moves a release, how much noise hides it, and the resulting ε."""

from secagg.privacy.calibration import BlockNoise, Mechanism, NoiseCalibration, OpenedNoise, Releases
from secagg.privacy.claim import Claim, PrivacyClaim, TrainingClaim
from secagg.privacy.noise_levels import NoiseLevel
from secagg.privacy.sampler import discrete_gaussian, rounded_gaussian
from secagg.privacy.sensitivity import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    CellSensitivity,
    CensusSensitivity,
    MomentSensitivity,
    Sensitivity,
    Unit,
)
from secagg.privacy.shares import GaussianCost
from secagg.privacy.subsampled import SampledSteps, TrainingCost, multiplier_for

__all__ = [
    "Adjacency",
    "BlockNoise",
    "BlockSensitivity",
    "BlockwiseSensitivity",
    "CellSensitivity",
    "CensusSensitivity",
    "Claim",
    "GaussianCost",
    "Mechanism",
    "MomentSensitivity",
    "NoiseCalibration",
    "NoiseLevel",
    "OpenedNoise",
    "PrivacyClaim",
    "Releases",
    "SampledSteps",
    "Sensitivity",
    "TrainingClaim",
    "TrainingCost",
    "Unit",
    "discrete_gaussian",
    "multiplier_for",
    "rounded_gaussian",
]
