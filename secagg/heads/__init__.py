"""Linear heads from sums: the discriminant, its form under noise, evaluation, digest and files.

Training of heads and adaptation to a client's own records are imported from their modules.
"""

from secagg.heads.adapter import HeadAdapter
from secagg.heads.artifact import Artifact
from secagg.heads.discriminant import discriminant
from secagg.heads.evaluation import Evaluation
from secagg.heads.export import (
    load_as,
    load_safetensors,
    parse_safetensors,
    parse_tensors,
    save_safetensors,
    to_safetensors,
)
from secagg.heads.linear import LinearHead, Recentring, head_digest, predict
from secagg.heads.noise_aware import noise_aware_discriminant
from secagg.heads.opened_moments import ReleaseNoise

__all__ = [
    "Artifact",
    "Evaluation",
    "HeadAdapter",
    "LinearHead",
    "Recentring",
    "ReleaseNoise",
    "discriminant",
    "head_digest",
    "load_as",
    "load_safetensors",
    "noise_aware_discriminant",
    "parse_safetensors",
    "parse_tensors",
    "predict",
    "save_safetensors",
    "to_safetensors",
]
