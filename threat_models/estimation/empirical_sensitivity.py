"""Search for the contribution of one record or client with the largest L2 norm: a lower limit of the sensitivity.

A round's own `contribute` is run on single records (or, in a sum per client, on whole clients) that are as long as the
plan allows, along axes, evenly and at random, of every class, and on the records at hand under right and wrong labels.
What is found is an example, so that it disproves a shorter declaration; what nothing here reaches stays unseen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import numpy as np

from methods.method import SumSpec
from methods.round import Blocks, Examples, Local, Round
from secagg.encoding import Grid
from secagg.encoding.layout import Kind
from secagg.privacy import Unit

TRIED = 24
"""Number of records at hand that are tried with every class, and of axes and directions tried with some."""
CLASSES = 4
"""Number of classes under which each record is tried."""


def longest_parts(
    round_: Round, kind: SumSpec, grid: Grid, classes: int, domains: int, at_hand: Sequence[Examples]
) -> dict[str, float]:
    """Return, by block name, the largest L2 norm found of one record's or client's contribution to a sum.

    Tries the records `at_hand`, too. Of a triangle it is the length of the whole matrix.
    """
    given = [each.name for each in fields(Examples) if each.init]
    everyone = Examples(*(np.concatenate([getattr(each, name) for each in at_hand]) for name in given))
    singles = _singles(grid, everyone, classes, domains)
    if kind.per is Unit.RECORD:
        tried: Iterable[Examples] = (singles.take(np.array([row])) for row in range(len(singles)))
    else:
        tried = (*at_hand, *(_relabelled(each, classes) for each in at_hand), singles, _relabelled(singles, classes))
    made = (round_.contribute(Local(examples, classes, grid)).blocks for examples in tried)
    return longest_of(made, kind)


def longest_of(made: Iterable[Blocks], kind: SumSpec) -> dict[str, float]:
    """Return, by block name, the largest L2 norm in contributions `made`; an upper triangle counts as a full matrix.

    A part with a negative entry where the kind says there is none counts as √2 times as long as the kind allows: it
    could be turned round.
    """
    unsigned = any(getattr(each, "nonnegative", False) for each in kind.sensitivities)
    found = dict.fromkeys((block.name for block in kind.blocks), 0.0)
    for blocks in made:
        for block in kind.blocks:
            entries = np.asarray(blocks[block.name], dtype=np.float64).ravel()
            length = float(np.linalg.norm(entries))
            if block.kind is Kind.SECOND_MOMENT:  # entries off the diagonal stand for two
                upper, right = np.triu_indices((math.isqrt(8 * entries.size + 1) - 1) // 2)
                length = math.sqrt(float(np.sum(np.where(upper == right, 1.0, 2.0) * entries**2)))
            if unsigned and (entries < 0).any():
                length = math.sqrt(2) * max(length, kind.unit_lengths[block.name])
            found[block.name] = max(found[block.name], length)
    return found


def _relabelled(examples: Examples, classes: int) -> Examples:
    """Return the same records, each labelled with the next class."""
    return Examples(examples.records, (examples.labels + 1) % classes, examples.domains)


def _singles(grid: Grid, at_hand: Examples, classes: int, domains: int) -> Examples:
    """Make records of full length, and take some of those at hand, under several classes each."""
    generator = np.random.default_rng(0)
    dimension, levels = at_hand.records.shape[1], grid.levels
    axes = levels * np.eye(dimension, dtype=np.int64)[np.linspace(0, dimension - 1, min(TRIED, dimension)).astype(int)]
    even = np.full((1, dimension), math.isqrt(levels**2 // dimension), dtype=np.int64)
    random = generator.normal(size=(TRIED, dimension))
    random *= (1 - 1e-9) * levels / np.linalg.norm(random, axis=1, keepdims=True)
    own = at_hand.records[generator.permutation(len(at_hand.records))[:TRIED]]
    rows = np.concatenate([axes, -axes[:1], even, -even, np.trunc(random).astype(np.int64), own])
    chosen = np.linspace(0, classes - 1, min(CLASSES, classes)).astype(np.int64)
    labels = np.repeat(chosen, len(rows))
    return Examples(np.tile(rows, (len(chosen), 1)), labels, np.arange(len(labels)) % domains)


Found = Mapping[tuple[int, str], float]
"""Lengths found, by (the place of the kind of sum among the plan's, the block's name)."""
