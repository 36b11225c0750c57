"""What a member keeps of its own between rounds, in bytes that are sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.head import parse_tensors
from secagg.models import Projecting, tensors_of

OWN = "own"
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Kept:
    """The `program`'s tensors in one row, `flat` (size,), and the member's own class `prototypes` (C, width)."""

    program: Projecting
    flat: Floats = field(repr=False)
    prototypes: Floats = field(repr=False)

    @property
    def tensors(self) -> Mapping[str, NDArray[np.float32]]:
        """The program's, by name."""
        return tensors_of(self.program, self.flat)

    def to_bytes(self) -> bytes:
        """A safetensors file of float32."""
        from safetensors.numpy import save

        return save({**self.tensors, OWN: self.prototypes.astype(np.float32)})

    @classmethod
    def of(cls, content: bytes, program: Projecting, classes: int) -> Kept:
        """Undo `to_bytes` for this program and so many classes. Raises BadInput for other tensors or no numbers."""
        tensors = read_kept(content, {**program.shapes, OWN: (classes, program.width)})
        flat = np.concatenate([tensors[name].ravel() for name in program.shapes])
        return cls(program, flat.astype(np.float64), tensors[OWN].astype(np.float64))


def read_kept(content: bytes, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a safetensors file. Raises BadInput unless they are numbers of these names and shapes."""
    tensors, _ = parse_tensors(content)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != dict(shapes) or not all(
        tensor.dtype == np.float32 and np.isfinite(tensor).all() for tensor in tensors.values()
    ):
        raise BadInput(f"the private state holds {found} and not {dict(shapes)}")
    return tensors
