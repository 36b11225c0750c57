"""Recovery of a lost ledger from the session transcripts beside it, which name the rows that the ledger must hold.

A client's transcript holds the plan, the policy that named its data set, and the head of the ledger after the plan's
row. The row follows from plan and policy alone, and a head covers its row and all before it: rows that give every head
again are the lost ones, and none is missing between them. Where they do not, rows are missing, nobody knows about which
data set, and every data set that the transcripts name counts as spent.
"""

from __future__ import annotations

import functools
import hashlib
import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from secagg.agreement.policy import Budget, data_set
from secagg.errors import BadInput, SecaggError, TranscriptInvalid
from secagg.ledger import FILE_NAME, START, Entry, Ledger, head_after
from secagg.ledger.spending import Release, settles
from secagg.plan_facts.facts import PlanFacts, plan_cost, plan_cost_until
from secagg.privacy import Unit
from secagg.session import RoundSetup
from secagg.session.attachments import folder_name
from secagg.session.purging import session_folders
from secagg.session.transcripts import setup_of
from secagg.transcript import FILE_NAME as TRANSCRIPT
from secagg.transcript import read_transcript

_ANYTHING = Budget(math.inf, 1e-5, may_repeat=True)


@dataclass(frozen=True)
class Charge:
    """One ledger row, as a client's transcript records it; `head` is the ledger's hash-chain head after that row."""

    folder: Path
    data_name: str
    plan: bytes
    head: bytes

    def setup(self) -> RoundSetup | None:
        """Return the round whose transcript names this ledger row; None if this program cannot read its plan."""
        try:
            return setup_of(read_transcript(self.folder / TRANSCRIPT, torn_tail_allowed=True))[0]
        except SecaggError:
            return None


def release_of(facts: PlanFacts, data_name: str) -> Release:
    """Return the ledger row that charges a data set with the privacy cost of a whole plan."""
    plan = facts.plan
    promise = plan.unit, plan.adjacency, plan.epsilon, plan.delta
    return Release(data_name, plan.session, plan.digest, *promise, plan_cost(facts))


def release_until(facts: PlanFacts, data_name: str, sums: int) -> Release | None:
    """Return the ledger row of a plan that ended after its first `sums` sums, at their cost alone; None if unknown."""
    settled_cost = plan_cost_until(facts, sums)
    return settled_cost and replace(release_of(facts, data_name), epsilon=settled_cost[0], spent=settled_cost[1])


def open_ledger(state: Path) -> Ledger:
    """Open or create a client's ledger. Raises BadInput if a transcript beside it names a row that the ledger lacks."""
    _refuse_lost(state)
    return Ledger(state)


def releases_in(state: Path) -> list[Release]:
    """Return the rows of a client's ledger, creating no files. Raises BadInput if `open_ledger` would refuse it."""
    _refuse_lost(state)
    existing = _existing(state)
    return [entry.release for entry in existing.entries()] if existing is not None else []


def _refuse_lost(state: Path) -> None:
    path = state / FILE_NAME
    if lost := _lost(state):
        problem = f"the ledger {path} lacks" if path.exists() else f"there is no ledger {path}, but there are"
        problem = f"{problem} releases that transcripts beside it name (in {lost[0].folder.name} for one)"
        remedy = f"bring it back from a backup, or write it again: secagg ledger recover --state {state}"
        raise BadInput(problem, remedy=remedy)


def recover_ledger(state: Path) -> tuple[list[Entry], bool]:
    """Add the rows that a ledger has lost; return them, and whether transcripts prove them to be the lost ones.

    Where they are not, every data set that transcripts or ledger name is charged with an exact sum. Raises BadInput
    where nothing is lost, or nothing is there to tell.
    """
    session_folders(state)
    lost = _lost(state)
    if not lost:
        raise BadInput(f"no transcript in {state} names a release that its ledger lacks", remedy="use it as it is")
    ledger = Ledger(state)
    setups = {each.folder: each.setup() for each in lost}
    known = [(each.head, release_of(setup.facts, each.data_name)) for each in lost if (setup := setups[each.folder])]
    plans = [(setup.facts, each.data_name) for each in lost if (setup := setups[each.folder])]
    settled = [
        row
        for facts, name in plans
        for sums in range(1, facts.rounds)
        if (row := release_until(facts, name, sums))  # a plan may have been settled by it; no transcript names it
    ]
    proven = _proven(ledger.entries(), known, settled) if len(known) == len(lost) else None
    releases = _exact_sums(ledger.entries(), lost) if proven is None else proven
    rows = []
    for release in releases:
        whole = next((entry.release for entry in ledger.entries() if settles(release, entry.release)), None)
        rows.append(ledger.record(release, _ANYTHING) if whole is None else ledger.settle(whole, release))
    for setup in filter(None, setups.values()):
        ledger.begin_upload(setup.context.round_digest)
    return rows, proven is not None


def _exact_sums(entries: Sequence[Entry], lost: Sequence[Charge]) -> list[Release]:
    """Return a release with infinite ε for each lost plan and data set, in place of costs that are unknown.

    A plan's digest stands for its session too; data sets in the ledger that no lost plan names are charged as well.
    """
    charged = {(data_set(each.data_name), each.plan): each.data_name for each in lost}
    named = {key for key, _ in charged}
    others = {data_set(each.release.data_name): each.release.data_name for each in entries}
    charged |= {(key, lost[0].plan): name for key, name in others.items() if key not in named}
    return [Release(name, plan, plan, Unit.RECORD, "", math.inf, 0.0, ()) for (_, plan), name in charged.items()]


def _proven(
    entries: Sequence[Entry], known: Sequence[tuple[bytes, Release]], settled: Sequence[Release]
) -> list[Release] | None:
    """Return the lost releases in the only order that gives every head that transcripts name; None if there is none.

    Between two of them one plan at the most may have been settled.
    """
    head, left, ordered = entries[-1].head if entries else START, dict(known), list[Release]()
    while left:
        number = len(entries) + len(ordered) + 1
        ways = [(), *((row,) for row in settled if any(settles(row, each) for each in ordered))]
        for way in ways:
            reached = functools.reduce(lambda at, row: head_after(at, number, row), way, head)
            following = [h for h, release in left.items() if head_after(reached, number + len(way), release) == h]
            if following:
                (head,) = following
                ordered += [*way, left.pop(head)]
                break
        else:
            return None
    return ordered


def _lost(state: Path) -> list[Charge]:
    """Return the rows that transcripts name and the ledger lacks; all of them if the ledger is missing.

    A session that the ledger has among its uploads is not looked into: its row was written before. The rows are read
    last, as a row is written before a transcript names it: another client of this folder may be at work.
    """
    existing = _existing(state)
    known = {folder_name(context) for context in existing.uploads()} if existing is not None else set()
    paths = sorted(path for path in state.glob(f"*/{TRANSCRIPT}") if path.parent.name not in known)
    found = [charge for path in paths for charge in _charges(path)]
    existing = _existing(state)
    entries = existing.entries() if existing is not None else ()
    rows = {(data_set(entry.release.data_name), entry.release.plan) for entry in entries}
    return [charge for charge in found if (data_set(charge.data_name), charge.plan) not in rows]


def _existing(state: Path) -> Ledger | None:
    return Ledger(state) if (state / FILE_NAME).exists() else None


def _charges(transcript: Path) -> Iterator[Charge]:
    """Yield the rows that a transcript names. Raises BadInput for an unreadable transcript."""
    plan = name = None
    try:
        for record in read_transcript(transcript, torn_tail_allowed=True):
            if record.kind == "plan":
                plan = hashlib.sha256(record.content).digest()
            elif record.kind == "policy":
                name = str(tomllib.loads(record.content.decode())["data"]["name"])
            elif record.kind == "ledger" and plan is not None and name is not None:
                yield Charge(transcript.parent, name, plan, record.content)
    except (TranscriptInvalid, ValueError, KeyError, TypeError) as error:
        remedy = "bring it back from a backup; to move its folder away is to forget what it released"
        raise BadInput(f"{transcript} does not tell what it was charged with ({error})", remedy=remedy) from None
