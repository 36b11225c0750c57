"""Adapters as pure functions of named tensors: what each adds to what comes out of its place in a frozen encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from secagg.errors import BadInput
from secagg.features.encoder import BOTTLENECK, KINDS, LORA, Change, Encoder, read_places, tell_places

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
        named = {}
        for number, width in enumerate(self.widths):
            for part, shape in self._parts(width).items():
                named[f"{prefix}.{number}.{part}"] = shape
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

    def _parts(self, width: int) -> dict[str, tuple[int, ...]]:
        if self.kind == LORA:
            return {"A": (self.rank, width), "B": (width, self.rank)}
        down = {"down.weight": (self.rank, width), "down.bias": (self.rank,)}
        return {**down, "up.weight": (width, self.rank), "up.bias": (width,)}

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
