"""Write heads and models for PyTorch: a linear layer, state dictionaries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from secagg.errors import BadInput, why
from secagg.heads.artifact import Artifact
from secagg.heads.linear import LinearHead

if TYPE_CHECKING:
    import torch


def to_linear(head: LinearHead) -> torch.nn.Linear:
    """Return the head as a `torch.nn.Linear` with the same float32 weights and biases, without what stands before."""
    import torch

    classes, dimension = head.weight.shape
    linear = torch.nn.Linear(dimension, classes)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(head.weight))
        linear.bias.copy_(torch.from_numpy(head.bias))
    return linear


def save_state_dict(artifact: Artifact, path: Path) -> None:
    """Write a state dictionary for its owner: of `to_linear(head)`, or of a model's tensors by name.

    `torch.load(path, weights_only=True)` reads it. Raises BadInput where nothing can be written.
    """
    import torch

    if isinstance(artifact, LinearHead):
        content = to_linear(artifact).state_dict()
    else:
        content = {name: torch.from_numpy(tensor.copy()) for name, tensor in artifact.tensors.items()}
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))  # torch would let everybody read it
        torch.save(content, path)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"cannot write the head {path} ({why(error)})") from error
