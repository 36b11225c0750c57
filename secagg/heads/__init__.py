"""Heads: closed-form discriminant, layers behind an adapter, evaluation, digest and export."""

from secagg.heads.adaptation import Adaptation, adapt, class_means
from secagg.heads.adapter import Adapter
from secagg.heads.artifact import Artifact
from secagg.heads.discriminant import discriminant
from secagg.heads.evaluation import Evaluation
from secagg.heads.export import (
    load_as,
    load_safetensors,
    parse_safetensors,
    parse_tensors,
    save_safetensors,
    save_state_dict,
    to_linear,
    to_safetensors,
)
from secagg.heads.linear import LinearHead, Recentring, head_digest, predict
from secagg.heads.noise_aware import noise_aware_discriminant
from secagg.heads.opened_moments import ReleaseNoise

__all__ = [
    "Adaptation",
    "Adapter",
    "Artifact",
    "Evaluation",
    "LinearHead",
    "Recentring",
    "ReleaseNoise",
    "adapt",
    "class_means",
    "discriminant",
    "head_digest",
    "load_as",
    "load_safetensors",
    "noise_aware_discriminant",
    "parse_safetensors",
    "parse_tensors",
    "predict",
    "save_safetensors",
    "save_state_dict",
    "to_linear",
    "to_safetensors",
]
