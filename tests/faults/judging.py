"""The verdict on one cell: right, a clean abort, wrong, hung, or a client lost that came back in time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from secagg.errors import BadInput, TranscriptInvalid
from secagg.ledger import Ledger
from secagg.ledger.ledger import FILE_NAME as LEDGER_NAME
from secagg.protection.messages import Outcome
from secagg.session.confirming import confirm_from
from secagg.session.transcripts import outcome_of, round_of
from secagg.transcript import FILE_NAME, read_transcript
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import Trust, Verified
from tests.faults.cells import Cell
from tests.faults.inside import Refusing
from tests.faults.playing import FULL, Played
from tests.federation.deaths import expected_results, said_twice
from tests.federation.outages import NOT_NOW, OVER, said_by
from tests.worlds.rosters import SERVER


class Verdict(StrEnum):
    """What came of a cell."""

    RIGHT = "right"
    ABORTED = "clean abort"
    WRONG = "wrong"
    HUNG = "hung"
    LOST = "client lost"
    UNTOUCHED = "skipped"
    """It went well, but the fault did not happen in it."""


@dataclass(frozen=True)
class Judgement:
    """A verdict, and its reasons."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()


def judge(cell: Cell, played: Played) -> Judgement:
    """Hold everything that the parties left against their records, and against each other."""
    federation = played.federation
    parties = tuple(member.name for member in federation.roster.members)
    if not played.has_ended:
        waiting = sorted(set(parties) - set(played.codes))
        return Judgement(Verdict.HUNG, (f"{', '.join(waiting)} did not end in {played.seconds:.0f} s",))
    told = {name: _told(federation.folder / name / "state") for name in parties}
    wrong = (*_differences(played, told), *_faulty_ends(cell, played, parties))
    if wrong:
        return Judgement(Verdict.WRONG, wrong)
    if played.codes[SERVER] == OVER:
        return _judged_abort(cell, played)
    if lost := tuple(_lost(cell, played, told[SERVER])):
        return Judgement(Verdict.LOST, lost)
    return Judgement(Verdict.RIGHT if played.has_struck else Verdict.UNTOUCHED)


def _transcripts(state: Path) -> list[Path]:
    return sorted(state.glob(f"*/{FILE_NAME}"), key=round_of)


def _told(state: Path) -> dict[int, Outcome]:
    """The outcome of each round by a party's transcripts."""
    found = {round_of(path): outcome_of(read_transcript(path)) for path in _transcripts(state)}
    return {number: outcome for number, outcome in found.items() if outcome is not None}


def _differences(played: Played, told: dict[str, dict[int, Outcome]]) -> Iterator[str]:
    """Sums that are not those of the members' records, and messages that somebody said in two ways."""
    federation = played.federation
    for what in said_twice(federation):
        yield f"said twice: {what}"
    rounds = told[SERVER]
    in_sums = [[federation.roster.name(member) for member in rounds[number].members] for number in sorted(rounds)]
    expected = expected_results(federation, in_sums) if in_sums else []
    for name, outcomes in told.items():
        for number, outcome in outcomes.items():
            if number > len(expected):
                yield f"{name} has an outcome of round {number}, the server has none"
            elif outcome.aggregate_sha256 != expected[number - 1].aggregate_sha256:
                yield f"the sum of round {number} at {name} is not that of the records"
            elif outcome != rounds[number]:
                yield f"{name} has another outcome of round {number} than the server"


def _faulty_ends(cell: Cell, played: Played, parties: tuple[str, ...]) -> Iterator[str]:
    """Exit codes, words, transcripts and ledgers that must not be."""
    federation, codes = played.federation, played.codes
    for name in parties:
        if codes[name] not in (0, OVER, NOT_NOW):
            yield f"{name} ended with {codes[name]}: {said_by(federation, (name,))[-300:]}"
        if codes[name] in (0, OVER):
            yield from _unverified(federation.folder / name, codes[name])
    said = said_by(federation, parties)
    if "Traceback" in said or "internal error" in said:
        yield "a traceback, or an internal error"
    if cell.kind.disk and played.has_struck and FULL not in said_by(federation, (cell.party,)):
        yield f"{cell.party} met a full disk without the remedy"
    for name in federation.names:
        state = federation.folder / name / "state"
        if not (state / LEDGER_NAME).exists():
            continue
        ledger = Ledger(state, create=False)
        if len(ledger.entries()) > 1 or len(ledger.uploads()) > cell.rounds:
            yield f"{name} was charged {len(ledger.entries())} times for {len(ledger.uploads())} uploads"


def _unverified(home: Path, code: int) -> Iterator[str]:
    """Transcripts that do not verify, or say less of the results of a party that ended well."""
    for each in verify_together(_transcripts(home / "state"), Trust.in_files((), (), (home,))):
        if not isinstance(each, Verified):
            yield f"transcript of {home.name}: {each}"
        elif code == 0 and each.verdict != "verifies":
            yield f"transcript of {home.name}: {each.verdict}"


def _judged_abort(cell: Cell, played: Played) -> Judgement:
    """A clean abort has a reason that everybody was told; it is one only where the fault may end a session."""
    federation = played.federation
    untold = [name for name, code in played.codes.items() if code != OVER]
    reason = said_by(federation, (SERVER,)).strip().splitlines()[-1][:300]
    if untold:
        return Judgement(Verdict.WRONG, (f"aborted, and {', '.join(untold)} not told: {reason}",))
    if not cell.kind.is_absence:
        return Judgement(Verdict.LOST, (f"aborted although everybody came back in time: {reason}",))
    return Judgement(Verdict.ABORTED, (reason,))


def _is_confirmed(played: Played, name: str) -> bool:
    """Whether a party ended unconfirmed, and the server's transcript confirms its outcome, as by `secagg confirm`.

    So does the operator of a party whose disk refused the last message of all, and which the server had waited for.
    """
    folder = played.federation.folder
    if name == SERVER or played.codes[name] != NOT_NOW:
        return False
    with tempfile.TemporaryDirectory() as copied:
        state = shutil.copytree(folder / name / "state", Path(copied) / "state")  # what is judged stays as it is
        try:
            _, was_confirmed = confirm_from([_transcripts(folder / SERVER / "state")[-1]], state)
        except (BadInput, TranscriptInvalid):
            return False
        return not was_confirmed


def _lost(cell: Cell, played: Played, rounds: dict[int, Outcome]) -> Iterator[str]:
    """Parties without the outcome, and clients that are not in each sum, although they came back in time."""
    federation, codes = played.federation, played.codes
    confirms = {cell.party} if cell.kind.disk or isinstance(cell.kind.inside, Refusing) else set()
    absent = {name for name, code in codes.items() if code and not (name in confirms and _is_confirmed(played, name))}
    for name in federation.names:
        missed = [number for number in rounds if federation.roster.index(name) not in rounds[number].members]
        may_miss = cell.kind.is_absence and (name == cell.party)
        if (missed or name in absent) and not may_miss:
            yield f"{name} ended with {codes[name]}, and is not in rounds {missed}"
    for name in sorted(absent - set(federation.names)):
        yield f"{name} ended with {codes[name]}"
