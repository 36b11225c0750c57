"""What a member keeps of its own between rounds, in bytes that are sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from methods.training.client_update import KeptTensors
from secagg.networks import Projecting, Untainted, require_untainted, tensors_of

OWN, SENDS = "own", "sends."
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Kept:
    """The `program`'s tensors in one row, `flat` (size,), and the member's own class `prototypes` (C, width).

    `sends` are the tensors of the same program by which it makes what it sends, where these are others: then no record
    has decided them but by noisy steps. Both are sealed by one member for itself, so that what was untainted still is.
    """

    program: Projecting
    flat: Floats = field(repr=False)
    prototypes: Floats = field(repr=False)
    sends: Untainted[Floats] | None = field(default=None, repr=False)

    @property
    def tensors(self) -> Mapping[str, NDArray[np.float32]]:
        """The program's, by name."""
        return tensors_of(self.program, self.flat)

    def to_bytes(self) -> bytes:
        """A safetensors file of float32. Raises TypeError for tainted tensors in place of those that it sends by."""
        sends = [] if self.sends is None else [require_untainted(self.sends)]
        kept = kept_of(self.program, len(self.prototypes), sends_others=self.sends is not None)
        return kept.to_bytes(np.concatenate([self.flat, self.prototypes.ravel(), *sends]))

    @classmethod
    def of(cls, content: bytes, program: Projecting, classes: int, *, sends_others: bool = False) -> Kept:
        """Undo `to_bytes` for this program and so many classes. Raises BadInput for other tensors or no numbers."""
        size, end = program.size, program.size + classes * program.width
        row = kept_of(program, classes, sends_others=sends_others).row(content)
        sends = Untainted(row[end:]) if sends_others else None
        return cls(program, row[:size], row[size:end].reshape(classes, program.width), sends)


def kept_of(program: Projecting, classes: int, *, sends_others: bool) -> KeptTensors:
    """Return what is kept: the program's tensors, own prototypes, and the tensors to send by if these are others."""
    sends = {f"{SENDS}{name}": shape for name, shape in program.shapes.items()} if sends_others else {}
    shapes = {**program.shapes, OWN: (classes, program.width), **sends}
    return KeptTensors(shapes, frozenset(shapes))
