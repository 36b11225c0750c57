"""What a member keeps of its own between rounds, in bytes that are sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.heads import parse_tensors
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
        from safetensors.numpy import save

        sends = {} if self.sends is None else tensors_of(self.program, require_untainted(self.sends))
        named = {f"{SENDS}{name}": tensor for name, tensor in sends.items()}
        return save({**self.tensors, OWN: self.prototypes.astype(np.float32), **named})

    @classmethod
    def of(cls, content: bytes, program: Projecting, classes: int, *, sends_others: bool = False) -> Kept:
        """Undo `to_bytes` for this program and so many classes. Raises BadInput for other tensors or no numbers."""
        shapes = {**program.shapes, OWN: (classes, program.width)}
        if sends_others:
            shapes |= {f"{SENDS}{name}": shape for name, shape in program.shapes.items()}
        tensors = read_kept(content, shapes)

        def row(prefix: str) -> Floats:
            parts = [tensors[f"{prefix}{name}"].ravel() for name in program.shapes]
            return np.concatenate(parts).astype(np.float64)

        sends = Untainted(row(SENDS)) if sends_others else None
        return cls(program, row(""), tensors[OWN].astype(np.float64), sends)


def read_kept(content: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a safetensors file. Raises BadInput unless they are numbers of these names and shapes."""
    tensors, _ = parse_tensors(content)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != dict(shapes) or not all(
        tensor.dtype == np.float32 and np.isfinite(tensor).all() for tensor in tensors.values()
    ):
        raise BadInput(f"the private state holds {found} and not {dict(shapes)}")
    return tensors
