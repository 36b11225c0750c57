"""The declaration of a privacy attack: its name, needs and metrics, and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from threat_models.findings import Finding, Metric
from threat_models.session import Knowledge, Session
from threat_models.views import View

Progress = Callable[[int, int], None]
"""A callback for progress, called with (steps done, steps in all)."""

Run = Callable[[tuple[View, ...], Knowledge, Progress], Finding]


@dataclass(frozen=True)
class Attack:
    """A privacy attack that an audit can run: its texts, the data that it must see, its metrics, and its function.

    `name` is that of gates and of the command line, `paper` who published it; `meaning` says what an adversary
    knows if it works, `remedy` what keeps it from working. `unsuited` says of a session why its plan gives the attack
    nothing to work on, whoever looks and whatever the sums hold; "" where it does. `lacks` says the same by the kinds
    of the sums' rounds and blocks: blocks of unknown kind may hold what it looks for. `weighs_all`: no kind decides the
    attack's verdict, since it weighs every block or none. `needs` are the fields or blocks that a view must have
    (`View.has`); a block that is needed is read, whatever its kind. Kinds of rounds, of which whoever sees sums is
    told, are found out when it runs, as is whether contributions will do in a release's place. `sessions` is the number
    of sums about nearly the same data. `metrics` are all that it may measure. `tries_records`: it needs candidate
    records; `tells_members`: of both kinds, that took part and that did not; `trusts_owners`: its numbers depend on
    which of these took part, as those of all that tell members do.
    `limits` is the largest number of confidence limits that its verdict and the gate may judge, of one view.

    `run(views, knowledge, progress)` gets the views of as many sessions as it needs, in order. It returns a Finding
    with an empty `adversary`, and with controls of its own: the same code on an unprotected copy, which must succeed,
    and on random data, which must not. Where a control does not hold the verdict is inconclusive.
    """

    name: str
    title: str
    paper: str
    needs: tuple[str, ...]
    run: Run
    metrics: tuple[Metric, ...]
    sessions: int = 1
    tries_records: bool = True
    tells_members: bool = False
    trusts_owners: bool = False
    limits: int = 1
    meaning: str = ""
    remedy: str = ""
    unsuited: Callable[[Session], str] = lambda session: ""
    lacks: Callable[[Session], str] = lambda session: ""
    weighs_all: bool = False
