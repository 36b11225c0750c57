"""Several backbones side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.features.backbone import Backbone, Features, digest_of


@dataclass(frozen=True)
class Concatenation:
    """The features of two or more backbones of the same inputs, one after the other."""

    parts: tuple[Backbone, ...]

    @property
    def name(self) -> str:
        """The parts' names, joined by +."""
        return "+".join(part.name for part in self.parts)

    @property
    def digest(self) -> str:
        """SHA-256 over the parts' digests in order."""
        return digest_of_parts([part.digest for part in self.parts])

    @property
    def dimension(self) -> int:
        """The sum of the parts' dimensions."""
        return sum(part.dimension for part in self.parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """The parts', each once."""
        return tuple(dict.fromkeys(note for part in self.parts for note in part.notes))

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map inputs (n, …) to features (n, d) float64; row i depends on record i alone."""
        return np.hstack([part.extract(inputs) for part in self.parts])

    def bound(self, input_bound: float | None, /) -> float | None:
        """Public L2 bound √Σ bound²; None when a part has none."""
        bounds = [part.bound(input_bound) for part in self.parts]
        known = [bound for bound in bounds if bound is not None]
        return math.hypot(*known) if len(known) == len(bounds) else None


def digest_of_parts(digests: Sequence[str]) -> str:
    """The digest of a concatenation, without opening any part; of a single part its own."""
    return digests[0] if len(digests) == 1 else digest_of(f"secagg concatenation v1: {' '.join(digests)}")
