"""Linear heads from sums: the discriminant, its form under noise, evaluation, digest and files.

Training of heads and adaptation to a client's own records are imported from their modules.
"""

from secagg.heads.artifact import Artifact, Evaluation
from secagg.heads.discriminant import ReleaseNoise, discriminant, noise_aware_discriminant
from secagg.heads.export import (
    load_as,
    load_safetensors,
    parse_safetensors,
    parse_tensors,
    save_safetensors,
    to_safetensors,
)
from secagg.heads.linear import HeadAdapter, LinearHead, Recentring, head_digest, predict

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
