"""Differential privacy: what one record or client can move, how much noise hides it, and what that promises."""

from secagg.privacy.calibration import (
    SHARE_RULES,
    BlockNoise,
    Calibration,
    Mechanism,
    OpenedNoise,
    Part,
    Releases,
    calibrate_mu,
    calibrate_releases,
    of_client,
    of_record,
    read_shares,
)
from secagg.privacy.claim import Claim, PrivacyClaim, TrainingClaim
from secagg.privacy.rdp import RdpCurve
from secagg.privacy.sampler import discrete_gaussian, rounded_gaussian
from secagg.privacy.sensitivity import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    CensusSensitivity,
    MomentSensitivity,
    Sensitivity,
    Unit,
)
from secagg.privacy.shares import GaussianCost
from secagg.privacy.subsampled import SampledSteps, TrainingCost, multiplier_for

__all__ = [
    "SHARE_RULES",
    "Adjacency",
    "BlockNoise",
    "BlockSensitivity",
    "BlockwiseSensitivity",
    "Calibration",
    "CensusSensitivity",
    "Claim",
    "GaussianCost",
    "Mechanism",
    "MomentSensitivity",
    "OpenedNoise",
    "Part",
    "PrivacyClaim",
    "RdpCurve",
    "Releases",
    "SampledSteps",
    "Sensitivity",
    "TrainingClaim",
    "TrainingCost",
    "Unit",
    "calibrate_mu",
    "calibrate_releases",
    "discrete_gaussian",
    "multiplier_for",
    "of_client",
    "of_record",
    "read_shares",
    "rounded_gaussian",
]
