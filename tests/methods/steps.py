"""A round's parts by themselves, as tests of methods look at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from methods.round import Examples, Local, Noise, OpenedTotal, Round
from secagg.encoding import Block, Grid, Integers, Kind
from secagg.encoding.moments import sanity_failures

KINDS = {
    "census": Kind.CENSUS,
    "counts": Kind.COUNTS,
    "class_sums": Kind.CLASS_SUMS,
    "second_moment": Kind.SECOND_MOMENT,
    "slot_counts": Kind.COUNTS,
    "slot_sums": Kind.CLASS_SUMS,
    "gradient": Kind.UPDATE,
}


def contribute(round_: Round, examples: Examples, classes: int, levels: int) -> dict[str, Integers]:
    """The blocks of examples on a grid of so many levels."""
    return dict(round_.contribute(Local(examples, classes, Grid(1.0, levels))).blocks)


def artifact_of(round_: Round, blocks: Mapping[str, Any], grid: Grid, noise: Noise | None) -> Any:
    """What a total gives, None where another round must come first."""
    return round_.finalize(OpenedTotal(blocks, grid, noise)).artifact


def next_of(round_: Round, blocks: Mapping[str, Any], grid: Grid, noise: Noise | None) -> Any:
    """The round that a total leads to, None after the last."""
    return round_.finalize(OpenedTotal(blocks, grid, noise)).next_round


def failures_of(round_: Round, blocks: Mapping[str, Integers], grid: Grid) -> list[str]:
    """What no honest total without noise would show: by the kinds of its blocks, and by the round's own rule."""
    layout = [Block(name, block.shape, 1, KINDS[name]) for name, block in blocks.items()]
    return [*sanity_failures(layout, blocks, grid), *round_.sanity_failures(blocks, grid)]
