"""What every attack says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from threat_models.findings import Finding
from threat_models.session import Knowledge

Progress = Callable[[int, int], None]
"""Told (steps done, steps in all)."""


@dataclass(frozen=True)
class Attack:
    """One attack: `run(views, knowledge, progress)` on the views of as many sessions as it needs, in order.

    `needs` are what a view must have (`threat_models.views.has`), `sessions` how many sums about nearly the same data,
    `paper` who published it; `tries_records`: it takes candidate records to try and to score by, `trusts_owners`: what
    it finds depends on which of these took part; `limits`: on how many confidence limits its verdict and what a gate
    may judge of it rest at most. `run` returns a Finding whose
    `adversary` is empty (the driver fills it in), with its own positive and negative controls: the same code on an
    unprotected copy, which must succeed, and on random data, which must not. Where a control does not hold the verdict
    is inconclusive.
    """

    name: str
    title: str
    paper: str
    needs: tuple[str, ...]
    run: Callable[[tuple[Any, ...], Knowledge, Progress], Finding]
    sessions: int = 1
    tries_records: bool = True
    trusts_owners: bool = False
    limits: int = 1
