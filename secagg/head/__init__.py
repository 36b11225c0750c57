"""Linear heads: closed-form discriminant, evaluation, digest and export."""

from secagg.head.discriminant import discriminant
from secagg.head.evaluation import Evaluation, evaluate
from secagg.head.export import (
    load_safetensors,
    parse_safetensors,
    save_safetensors,
    save_state_dict,
    to_linear,
    to_safetensors,
)
from secagg.head.linear import LinearHead, head_digest, predict

__all__ = [
    "Evaluation",
    "LinearHead",
    "discriminant",
    "evaluate",
    "head_digest",
    "load_safetensors",
    "parse_safetensors",
    "predict",
    "save_safetensors",
    "save_state_dict",
    "to_linear",
    "to_safetensors",
]
