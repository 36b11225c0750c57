"""Adapters in a frozen encoder, and programs of them: the one that members share, with a member's head, and both.

Without the encoder programs have shapes and starts; `over` an encoder they take its prepared records and give scores.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features.encoder import BOTTLENECK, KINDS, LORA, Change, Encoder, read_places, tell_places
from secagg.networks.programs import BuiltIn, glorot_bound

if TYPE_CHECKING:
    from torch import Tensor

SPREAD = 0.02
"""Standard deviation of a bottleneck's start, as BERT's (and the FedDAT authors')."""
LORA_SCALE = 2.0
"""alpha ÷ rank: what a LoRA's product is multiplied by."""
LARGEST_RANK = 1 << 12


@dataclass(frozen=True)
class EncoderAdapter:
    """One adapter for every place (`tell_places`): a bottleneck of `rank` ReLU units, or a LoRA of that rank.

    A bottleneck adds W_up·ReLU(W_down·h + b_down) + b_up to the h that comes out, a LoRA 2·B·A·x of the x that goes in.
    """

    kind: str
    rank: int
    places: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"there is no adapter {self.kind!r}", remedy=f"choose {' or '.join(KINDS)}")
        if not 1 <= self.rank <= LARGEST_RANK:
            raise BadInput(f"the adapter's rank is {self.rank}", remedy=f"give 1 to {LARGEST_RANK}")
        self.widths  # noqa: B018  # refuses what are no places

    @property
    def name(self) -> str:
        """Such as bottleneck:48:12x768."""
        return f"{self.kind}:{self.rank}:{self.places}"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Of the places, one after the other."""
        return read_places(self.places)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """The tensors of an adapter by name, place by place."""
        named: dict[str, tuple[int, ...]] = {}
        for number, width in enumerate(self.widths):
            at, wide, narrow = f"{prefix}.{number}", (self.rank, width), (width, self.rank)
            if self.kind == LORA:
                named |= {f"{at}.A": wide, f"{at}.B": narrow}
            else:
                named |= {f"{at}.down.weight": wide, f"{at}.down.bias": (self.rank,)}
                named |= {f"{at}.up.weight": narrow, f"{at}.up.bias": (width,)}
        return named

    def bounds(self, prefix: str) -> dict[str, float]:
        """The bounds of the starts: weights of a bottleneck, and a LoRA's A (Kaiming); its B starts at 0."""
        started: dict[str, float] = {}
        for number, width in enumerate(self.widths):
            if self.kind == BOTTLENECK:
                spread = math.sqrt(3) * SPREAD
                started |= dict.fromkeys((f"{prefix}.{number}.down.weight", f"{prefix}.{number}.up.weight"), spread)
            else:
                started[f"{prefix}.{number}.A"] = 1 / math.sqrt(width)
        return started

    def require_fit(self, encoder: Encoder) -> None:
        """Raise BadInput unless the encoder has exactly these places."""
        found = tell_places(encoder.places(self.kind))
        if found != self.places:
            problem = f"{encoder.name} has the places {found} for {self.kind} adapters, the plan says {self.places}"
            raise BadInput(problem, remedy=f"plan with places={found}, or give the model that the plan means")

    def changes(
        self, encoder: Encoder, parameters: Mapping[str, Tensor], weights: Mapping[str, float]
    ) -> dict[str, Change]:
        """Return the changes at every place: the adapters of the prefixes in `weights`, each times its weight."""
        changes: dict[str, Change] = {}
        for number, place in enumerate(encoder.places(self.kind)):
            parts = [(parameters, f"{prefix}.{number}", weight) for prefix, weight in weights.items()]
            changes[place.name] = partial(_changed, self, parts)
        return changes

    def added(self, parameters: Mapping[str, Tensor], at: str, given: Tensor, output: Tensor) -> Tensor:
        """Return one adapter's addition to the `output` (n, …, width) of a place, for what is `given` to it."""
        from torch.nn import functional

        if self.kind == LORA:
            inner = functional.linear(given, parameters[f"{at}.A"])
            return LORA_SCALE * functional.linear(inner, parameters[f"{at}.B"])
        inner = functional.linear(output, parameters[f"{at}.down.weight"], parameters[f"{at}.down.bias"]).relu()
        return functional.linear(inner, parameters[f"{at}.up.weight"], parameters[f"{at}.up.bias"])


def _changed(
    adapter: EncoderAdapter, parts: Sequence[tuple[Mapping[str, Tensor], str, float]], given: Tensor, output: Tensor
) -> Tensor:
    added = [weight * adapter.added(parameters, at, given, output) for parameters, at, weight in parts]
    return output + sum(added[1:], added[0])


SHARED, OWN = "shared", "own"
"""What the names of an adapter's tensors begin with: of the one that all share, and of a member's own."""
HEAD, HEAD_BIAS = "head.weight", "head.bias"


@dataclass(frozen=True)
class Adapted(BuiltIn):
    """`dimension` is the encoder's pooled width, `classes` the most answers that a member's head has."""

    adapter: EncoderAdapter

    @property
    @abstractmethod
    def name(self) -> str:
        """The program's name: a prefix, then the adapter's."""

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
