"""Linear classifiers computed from opened sums: discriminant (exact or noisy), evaluation, digest and files.

Training of heads and adaptation to a client's own records are imported from their modules.
"""

from secagg.heads.artifact import Artifact, Evaluation
from secagg.heads.discriminant import ReleaseNoise
from secagg.heads.export import load_as, parse_safetensors, parse_tensors, save_safetensors, to_safetensors
from secagg.heads.linear import LinearHead, head_digest, predict

__all__ = [
    "Artifact",
    "Evaluation",
    "LinearHead",
    "ReleaseNoise",
    "head_digest",
    "load_as",
    "parse_safetensors",
    "parse_tensors",
    "predict",
    "save_safetensors",
    "to_safetensors",
]
