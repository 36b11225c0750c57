"""Where adapters sit in an encoder, by the types of its modules.

A bottleneck adapter sits after each feed-forward block (Houlsby et al. 2019, Pfeiffer et al. 2021), a LoRA beside each
query and value projection (Hu et al. 2021).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from secagg.errors import BadInput

if TYPE_CHECKING:
    import torch

BOTTLENECK, LORA = "bottleneck", "lora"
KINDS = (BOTTLENECK, LORA)
FEED_FORWARD = re.compile(r"\w+MLP|\w+(?<!Self)Output")
"""Types of modules that end a layer's feed-forward block: ViltOutput, BertOutput, ViTMLP, CLIPMLP."""
PROJECTIONS = ("query", "value", "q_proj", "v_proj")
PLACES = re.compile(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,4}(\+[1-9][0-9]{0,3}x[1-9][0-9]{0,4}){0,15}")


@dataclass(frozen=True)
class Place:
    """A module of an encoder by its name, and the width of what comes out of it."""

    name: str
    width: int


def find_places(module: torch.nn.Module, kind: str) -> tuple[Place, ...]:
    """The places of a kind, in the model's order. Raises BadInput for a model that has none."""
    found = tuple(_feed_forward(module) if kind == BOTTLENECK else _projections(module))
    if not found:
        what = "feed-forward blocks" if kind == BOTTLENECK else "query and value projections"
        problem = f"{type(module).__name__} has no {what} of a known type"
        raise BadInput(problem, remedy="give an encoder such as ViLT, CLIP, ViT or BERT")
    return found


def tell_places(places: tuple[Place, ...]) -> str:
    """Such as 12x768, or 12x512+12x768: how many places one after the other, and how wide."""
    runs = [(width, len(list(run))) for width, run in groupby(place.width for place in places)]
    return "+".join(f"{count}x{width}" for width, count in runs)


def read_places(text: str) -> tuple[int, ...]:
    """The widths of the places that `tell_places` tells of. Raises BadInput."""
    if not PLACES.fullmatch(text):
        raise BadInput(f"places are {text!r}", remedy="give how many and how wide, such as 12x768 or 12x512+12x768")
    pairs = [tuple(map(int, run.split("x"))) for run in text.split("+")]
    return tuple(width for count, width in pairs for _ in range(count))


def _feed_forward(module: torch.nn.Module) -> list[Place]:
    from torch import nn

    found = []
    for name, part in module.named_modules():
        linear = [each for each in part.children() if isinstance(each, nn.Linear)]
        if FEED_FORWARD.fullmatch(type(part).__name__) and linear:
            found.append(Place(name, linear[-1].out_features))
    return found


def _projections(module: torch.nn.Module) -> list[Place]:
    from torch import nn

    return [
        Place(name, part.out_features)
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
        and name.rpartition(".")[2] in PROJECTIONS
        and part.in_features == part.out_features
    ]
