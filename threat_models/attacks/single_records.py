"""The part of a sum that single records add, by the method's own `contribute`: no block's kind decides what it holds.

The blocks have a session's names and shapes, and the units of one record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from methods import method_of, sums_of
from methods.round import Local
from secagg.privacy import Unit
from threat_models.attacks.gaussian_likelihood import MOMENTS, Noise, squared_length, squared_mu
from threat_models.evidence.blocks import names_of
from threat_models.session import Blocks, Records
from threat_models.views import View

Floats = NDArray[np.float64]
Contribute = Callable[[Records], Blocks]
"""Computes some records' part of a sum."""
Squares = Callable[[Records, Noise], Floats]
"""Computes μ² = ‖Δ‖²/σ² of every record, (n,), where a record adds Δ."""
TRIED = 8
"""Records by which the closed form of moments is tried against `contribute`."""
MOST_ENTRIES = 1 << 27
FEWEST = 64
"""Beyond so many entries of single records' parts fewer records stand for all, but no fewer than these."""


def contribute_to(view: View) -> Contribute | None:
    """Return what computes some records' part of a view's sum; None where single records have no part of their own."""
    kinds = [kind for kind in sums_of(view.plan) for _ in range(kind.times)]
    kind, round_, plan = kinds[view.number - 1], view.round, view.plan
    is_of_records = kind.is_additive and kind.per is Unit.RECORD and not kind.keeps_state and kind.training is None
    names = names_of(kind.blocks, plan.dimension)
    reads = method_of(plan).traits.reads_inputs
    if round_ is None or not is_of_records or reads or set(names.values()) != set(view.release):
        return None

    def contribute(records: Records) -> Blocks:
        made = round_.contribute(Local(records.examples, len(plan.classes), plan.grid)).blocks
        return {names[name]: np.reshape(block, np.shape(view.release[names[name]])) for name, block in made.items()}

    return contribute


def squares_by(contribute: Contribute | None, records: Records, noise: Noise) -> Squares | None:
    """Return what computes μ² of records over all blocks that `noise` is on; None where nothing does.

    This is the closed form of moments where the blocks are called so, and some of the `records` add just these. Else
    each record's part is computed by itself.
    """
    by_record = None if contribute is None else partial(_squared_mu_by, contribute)
    if not {"counts", "class_sums"} <= set(noise) <= MOMENTS:
        return by_record
    some = records.take(_evenly(len(records), TRIED))
    if by_record is None or np.allclose(by_record(some, noise), squared_mu(some, noise), rtol=1e-9):
        return squared_mu
    return by_record


def _squared_mu_by(contribute: Contribute, records: Records, noise: Noise) -> Floats:
    parts = (contribute(records.take([row])) for row in range(len(records)))
    return np.array([squared_length(part, noise) for part in parts])


def choose_some(squares: Squares, records: Records, release: Blocks) -> Records:
    """Choose the records to compute μ² of: all with the closed form, else as many as take a moment, evenly."""
    if squares is squared_mu:
        return records
    entries = max(1, sum(np.size(block) for block in release.values()))
    return records.take(_evenly(len(records), max(FEWEST, MOST_ENTRIES // entries)))


def _evenly(count: int, most: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.intp))
