"""Heads as files: safetensors (with what the head belongs to) and PyTorch state dictionaries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from secagg.errors import BadInput
from secagg.head.linear import LinearHead, Recentring

if TYPE_CHECKING:
    import torch

_RECENTRING = ("recentring_matrix", "recentring_centre")


def to_safetensors(head: LinearHead, metadata: Mapping[str, str]) -> bytes:
    """Return a file's bytes: `weight`, `bias`, where there is one the recentring, and a mapping of texts to texts."""
    from safetensors.numpy import save

    tensors = {"weight": np.ascontiguousarray(head.weight), "bias": np.ascontiguousarray(head.bias)}
    if head.recentring is not None:
        recentring = (head.recentring.matrix, head.recentring.centre)
        tensors |= dict(zip(_RECENTRING, map(np.ascontiguousarray, recentring), strict=True))
    return save(tensors, metadata=dict(metadata))


def save_safetensors(head: LinearHead, path: Path, metadata: Mapping[str, str]) -> None:
    """Write `to_safetensors(head, metadata)`. Raises BadInput."""
    try:
        path.write_bytes(to_safetensors(head, metadata))
    except OSError as error:
        raise BadInput(f"cannot write the head {path}: {error}") from error


def load_safetensors(path: Path) -> tuple[LinearHead, dict[str, str]]:
    """Read what `save_safetensors` wrote. Raises BadInput for other tensors, types, shapes or values."""
    try:
        return parse_safetensors(path.read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read the head {path} ({error.strerror})") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error.problem}") from error


def parse_safetensors(content: bytes) -> tuple[LinearHead, dict[str, str]]:
    """The head and its metadata from a file's bytes. Raises BadInput as `load_safetensors` does."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except (SafetensorError, ValueError, KeyError) as error:
        raise BadInput(f"not a safetensors file ({error})") from error
    linear = {"weight", "bias"}
    if set(tensors) not in (linear, linear | set(_RECENTRING)):
        raise BadInput(f"it holds the tensors {sorted(tensors)}, a head has `weight` and `bias`")
    recentring = Recentring(*(tensors[name] for name in _RECENTRING)) if len(tensors) > len(linear) else None
    return LinearHead(tensors["weight"], tensors["bias"], recentring), dict(header.get("__metadata__", {}))


def to_linear(head: LinearHead) -> torch.nn.Linear:
    """Return the head as a `torch.nn.Linear` with the same float32 weights and biases (after its recentring)."""
    import torch

    classes, dimension = head.weight.shape
    linear = torch.nn.Linear(dimension, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(head.weight))
        linear.bias.copy_(torch.from_numpy(head.bias))
    return linear


def save_state_dict(head: LinearHead, path: Path) -> None:
    """Write the state dictionary of `to_linear(head)`; `torch.load(path, weights_only=True)` reads it."""
    import torch

    try:
        torch.save(to_linear(head).state_dict(), path)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"cannot write the head {path}: {error}") from error
