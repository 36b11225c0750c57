"""Networks of adapters in a frozen encoder: the shared adapter alone, with a head, or with a client's own adapter.

Without the encoder programs have shapes and starts; `over` an encoder they take its prepared records and give scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

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
    """An adapter in several modules of an encoder (`places`): bottlenecks of `rank` ReLU units, or LoRA of that rank.

    A bottleneck adds W_up·ReLU(W_down·h + b_down) + b_up to the h that comes out, a LoRA 2·B·A·x of the x that goes in.
    `places` is a text of `tell_places`.
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
        """Name of the adapter within network names, for example bottleneck:48:12x768."""
        return f"{self.kind}:{self.rank}:{self.places}"

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Output widths of the encoder modules that the adapter attaches to, in order."""
        return read_places(self.places)

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the adapter's tensors by name, module by module."""
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
        """Return bounds of initial weights by name: of bottlenecks, or of LoRA's A (Kaiming); LoRA's B starts at 0."""
        started: dict[str, float] = {}
        for number, width in enumerate(self.widths):
            if self.kind == BOTTLENECK:
                spread = math.sqrt(3) * SPREAD
                started |= dict.fromkeys((f"{prefix}.{number}.down.weight", f"{prefix}.{number}.up.weight"), spread)
            else:
                started[f"{prefix}.{number}.A"] = 1 / math.sqrt(width)
        return started

    def require_fit(self, encoder: Encoder) -> None:
        """Raise BadInput unless the encoder has exactly the modules, by number and width, that the adapter needs."""
        found = tell_places(encoder.places(self.kind))
        if found != self.places:
            problem = f"{encoder.name} has the places {found} for {self.kind} adapters, the plan says {self.places}"
            raise BadInput(problem, remedy=f"plan with places={found}, or give the model that the plan means")

    def changes(
        self, encoder: Encoder, parameters: Mapping[str, Tensor], weights: Mapping[str, float]
    ) -> dict[str, Change]:
        """Return, for each module of the encoder, the function that adds the adapters' weighted outputs to its own.

        `weights` are by the prefix of an adapter's tensor names.
        """
        return {
            place.name: partial(self._changed, parameters, number, weights)
            for number, place in enumerate(encoder.places(self.kind))
        }

    def _changed(
        self, parameters: Mapping[str, Tensor], number: int, weights: Mapping[str, float], given: Tensor, output: Tensor
    ) -> Tensor:
        added = [
            weight * self.added(parameters, f"{prefix}.{number}", given, output) for prefix, weight in weights.items()
        ]
        return output + sum(added[1:], added[0])

    def added(self, parameters: Mapping[str, Tensor], at: str, given: Tensor, output: Tensor) -> Tensor:
        """Return one adapter's addition to the `output` (n, …, width) of a module whose input is `given`."""
        from torch.nn import functional

        if self.kind == LORA:
            inner = functional.linear(given, parameters[f"{at}.A"])
            return LORA_SCALE * functional.linear(inner, parameters[f"{at}.B"])
        inner = functional.linear(output, parameters[f"{at}.down.weight"], parameters[f"{at}.down.bias"]).relu()
        return functional.linear(inner, parameters[f"{at}.up.weight"], parameters[f"{at}.up.bias"])


SHARED, OWN = "shared", "own"
"""Prefixes of the names of an adapter's tensors: of the shared adapter, and of a member's own."""
HEAD, HEAD_BIAS = "head.weight", "head.bias"


@dataclass(frozen=True)
class Adapted(BuiltIn):
    """Base of adapter networks: `dimension` is the encoder's pooled width, `classes` the largest number of classes."""

    scale = 1.0  # encoders take prepared records
    form: ClassVar[str]
    """The program's name, with {} for the adapter's name."""

    adapter: EncoderAdapter

    @property
    def name(self) -> str:
        """Name of the network, for example head-bottleneck:48:12x768."""
        return self.form.format(self.adapter.name)

    @property
    def prefixes(self) -> Mapping[str, float]:
        """Each adapter's weight in predictions, by its tensor names' prefix; by default the shared adapter alone."""
        return {SHARED: 1.0}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {**self.adapters, HEAD: (self.classes, self.dimension), HEAD_BIAS: (self.classes,)}

    @property
    def adapters(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the adapters' tensors by name."""
        return {name: shape for prefix in self.prefixes for name, shape in self.adapter.shapes(prefix).items()}

    @property
    def bounds(self) -> Mapping[str, float]:
        parts = [self.adapter.bounds(prefix) for prefix in self.prefixes]
        return {name: bound for part in parts for name, bound in part.items()} | {
            HEAD: glorot_bound(self.dimension, self.classes)
        }

    def over(self, encoder: Encoder) -> OverEncoder:
        """Return this network inside an encoder. Raises BadInput if the encoder's modules or pooled width differ."""
        self.adapter.require_fit(encoder)
        if encoder.dimension != self.dimension:
            raise BadInput(f"{encoder.name} gives {encoder.dimension} numbers, the adapters are for {self.dimension}")
        return OverEncoder(encoder.prepared, self.classes, self, encoder)

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        raise BadInput("an adapter predicts nothing without its encoder", remedy="give --backbone transformers:FOLDER")


@dataclass(frozen=True)
class SharedAdapter(Adapted):
    """The shared adapter alone; it cannot predict, because each client keeps a head of its own."""

    form = "{}"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.adapters

    @property
    def bounds(self) -> Mapping[str, float]:
        return self.adapter.bounds(SHARED)


@dataclass(frozen=True)
class WithHead(Adapted):
    """The shared adapter with a classifier head."""

    form = "head-{}"


@dataclass(frozen=True)
class Dual(Adapted):
    """The dual-adapter teacher of FedDAT: the mean of the shared adapter and of a client's own, with a head."""

    form = "dual-{}"

    @property
    def prefixes(self) -> Mapping[str, float]:
        return {SHARED: 0.5, OWN: 0.5}


@dataclass(frozen=True)
class OverEncoder(BuiltIn):
    """Adapters inside their encoder, as a network on records that `prepare` converted to `dimension` numbers each."""

    scale = 1.0  # records are prepared
    adapted: Adapted
    encoder: Encoder = field(repr=False)

    @property
    def name(self) -> str:
        """The name of the network of adapters, without the encoder."""
        return self.adapted.name

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self.adapted.shapes

    @property
    def bounds(self) -> Mapping[str, float]:
        return self.adapted.bounds

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return self.by(parameters, x, self.adapted.prefixes)

    def by(self, parameters: Mapping[str, Tensor], x: Tensor, weights: Mapping[str, float]) -> Tensor:
        """Return the head's scores (n, C), each adapter's output being multiplied by its weight (by prefix)."""
        from torch.nn import functional

        with self.encoder.changed(self.adapted.adapter.changes(self.encoder, parameters, weights)):
            pooled = self.encoder.pooled(x)
        return functional.linear(pooled, parameters[HEAD], parameters[HEAD_BIAS])

    def prepare(self, inputs: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Convert stored records to the input (n, d) of `logits`. Raises BadInput."""
        return self.encoder.prepare(inputs)
