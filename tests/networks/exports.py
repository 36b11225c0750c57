"""Networks that tests export: a small CNN, a perceptron, and those that are refused."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import nn


class SmallCNN(nn.Module):
    """Convolution, group norm, pooling and a linear layer: (n, 1, 8, 8) → (n, classes)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.output = nn.Linear(4 * 16, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Scores."""
        maps = nn.functional.max_pool2d(self.norm(self.convolution(images)).relu(), 2)
        scores: torch.Tensor = self.output(maps.flatten(1))
        return scores


def perceptron(inputs: int, classes: int) -> nn.Module:
    """One hidden layer with layer norm."""
    return nn.Sequential(nn.Linear(inputs, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, classes))


def export(network: nn.Module, path: Path, *shape: int, dynamic: bool = True) -> Path:
    """Export for records of a shape, in batches of any size or of 1."""
    sizes = ({0: torch.export.Dim("records")},) if dynamic else None
    example = (torch.rand(2 if dynamic else 1, *shape),)
    torch.export.save(torch.export.export(network, example, dynamic_shapes=sizes), path)
    return path


def export_seeded(kind: str, path: Path, classes: int, *, dynamic: bool = True) -> Path:
    """A "cnn" for images of 8×8, or an "mlp" for rows of 6, with the same weights every time."""
    path.write_bytes(_exported_seeded(kind, classes, dynamic))
    return path


@cache
def _exported_seeded(kind: str, classes: int, dynamic: bool) -> bytes:
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.pt2"
        if kind == "cnn":
            return export(SmallCNN(classes), path, 1, 8, 8, dynamic=dynamic).read_bytes()
        return export(perceptron(6, classes), path, 6, dynamic=dynamic).read_bytes()
