"""Programs of adapters in a frozen encoder: the one that members share, with a head of a member's own, and both.

Without the encoder they have shapes and starts; `over` an encoder they take its prepared records and give scores.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features import Encoder
from secagg.networks.adapters import Adapter
from secagg.networks.programs import BuiltIn, glorot_bound

if TYPE_CHECKING:
    from torch import Tensor

SHARED, OWN = "shared", "own"
"""What the names of an adapter's tensors begin with: of the one that all share, and of a member's own."""
HEAD, HEAD_BIAS = "head.weight", "head.bias"


@dataclass(frozen=True)
class Adapted(BuiltIn):
    """`dimension` is the encoder's pooled width, `classes` the most answers that a member's head has."""

    adapter: Adapter

    @property
    @abstractmethod
    def name(self) -> str:
        """What there is beside the adapter's own name, and that."""

    @property
    def prefixes(self) -> Mapping[str, float]:
        """Which adapters there are, and how much of each is added when the program predicts: mostly the shared one."""
        return {SHARED: 1.0}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The adapters', then `head.weight` (C, d) and `head.bias` (C,)."""
        return {**self.adapters, HEAD: (self.classes, self.dimension), HEAD_BIAS: (self.classes,)}

    @property
    def scale(self) -> float:
        """1: encoders take prepared records."""
        return 1.0

    @property
    def adapters(self) -> dict[str, tuple[int, ...]]:
        """The adapters' tensors."""
        return {name: shape for prefix in self.prefixes for name, shape in self.adapter.shapes(prefix).items()}

    @property
    def bounds(self) -> Mapping[str, float]:
        """The adapters', and Glorot's for the head."""
        parts = [self.adapter.bounds(prefix) for prefix in self.prefixes]
        return {name: bound for part in parts for name, bound in part.items()} | {
            HEAD: glorot_bound(self.dimension, self.classes)
        }

    def over(self, encoder: Encoder) -> OverEncoder:
        """The same in this encoder. Raises BadInput for one with other places, or another pooled width."""
        self.adapter.require_fit(encoder)
        if encoder.dimension != self.dimension:
            raise BadInput(f"{encoder.name} gives {encoder.dimension} numbers, the adapters are for {self.dimension}")
        return OverEncoder(encoder.prepared, self.classes, self, encoder)

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """There are none without the encoder. Raises BadInput."""
        raise BadInput("an adapter predicts nothing without its encoder", remedy="give --backbone transformers:FOLDER")


@dataclass(frozen=True)
class SharedAdapter(Adapted):
    """The adapter that all members share, alone: it predicts nothing without a head, and heads are the members' own."""

    @property
    def name(self) -> str:
        """Such as bottleneck:48:12x768."""
        return self.adapter.name

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The adapter's: no head."""
        return self.adapters

    @property
    def bounds(self) -> Mapping[str, float]:
        """The adapter's."""
        return self.adapter.bounds(SHARED)


@dataclass(frozen=True)
class WithHead(Adapted):
    """The shared adapter with a head."""

    @property
    def name(self) -> str:
        """Such as head-bottleneck:48:12x768."""
        return f"head-{self.adapter.name}"


@dataclass(frozen=True)
class Dual(Adapted):
    """The mean of the shared adapter and of a member's own, with a head: the dual-adapter teacher."""

    @property
    def name(self) -> str:
        """Such as dual-bottleneck:48:12x768."""
        return f"dual-{self.adapter.name}"

    @property
    def prefixes(self) -> Mapping[str, float]:
        """Half of each."""
        return {SHARED: 0.5, OWN: 0.5}


@dataclass(frozen=True)
class OverEncoder(BuiltIn):
    """A program of adapters in an encoder: records are prepared ones, `dimension` numbers each."""

    adapted: Adapted
    encoder: Encoder = field(repr=False)

    @property
    def name(self) -> str:
        """The adapters'."""
        return self.adapted.name

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The adapters' and the head's."""
        return self.adapted.shapes

    @property
    def scale(self) -> float:
        """1: records are prepared."""
        return 1.0

    @property
    def bounds(self) -> Mapping[str, float]:
        """The same."""
        return self.adapted.bounds

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Scores (n, C) of prepared records (n, d)."""
        return self.by(parameters, x, self.adapted.prefixes)

    def by(self, parameters: Mapping[str, Tensor], x: Tensor, weights: Mapping[str, float]) -> Tensor:
        """Scores (n, C) with so much of each adapter; a name that begins with none of the prefixes is the head's."""
        from torch.nn import functional

        with self.encoder.changed(self.adapted.adapter.changes(self.encoder, parameters, weights)):
            pooled = self.encoder.pooled(x)
        return functional.linear(pooled, parameters[HEAD], parameters[HEAD_BIAS])

    def prepare(self, inputs: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Stored records as `logits` takes them (n, d). Raises BadInput."""
        return self.encoder.prepare(inputs)
