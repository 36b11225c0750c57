"""Comparison of transcripts: those of one round with each other, and each with those of earlier rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.errors import BadInput, SecaggError, TranscriptInvalid
from secagg.protection.messages import Outcome
from secagg.session.outcome import Caveat
from secagg.session.rounds import end_after, opening_after
from secagg.session.transcripts import Openings, round_of
from secagg.transcript import peek
from secagg.verification.verification import NOTHING_BROUGHT, Trust, Verified, place_of_opening, verified
from secagg.wire import tag_of

_RESULT = {
    "members": "clients in the sum",
    "aggregate_sha256": "sum",
    "head_sha256": "head",
    "head": "head's file",
    "broadcast": "broadcast",
    "release": "released sum",
}
"""The fields of an Outcome, and the words for them in messages."""


def verify_transcript(path: Path, trust: Trust = NOTHING_BROUGHT) -> dict[str, Any]:
    """Verify one transcript; return its findings as JSON values by name. Raises TranscriptInvalid or BadInput."""
    return TranscriptSeries(()).link(verified(path, trust, Openings((path,)))).findings


def verify_together(paths: Sequence[Path], trust: Trust) -> tuple[Verified | SecaggError, ...]:
    """Verify transcripts and compare those of one plan; return each one's findings or error, in order of `paths`."""
    openings = Openings(paths)
    found = {path: _attempt(path, partial(verified, path, trust, openings)) for path in sorted(paths, key=round_of)}
    alone = [found[path] for path in paths]
    series = TranscriptSeries(each for each in alone if isinstance(each, Verified))
    return tuple(
        _attempt(each.path, partial(series.link, each)) if isinstance(each, Verified) else each for each in alone
    )


def _attempt(path: Path, verify: Callable[[], Verified]) -> Verified | SecaggError:
    try:
        return verify()
    except TranscriptInvalid as error:
        return TranscriptInvalid(error.record, error.problem, source=str(path))
    except BadInput as error:
        return error


class TranscriptSeries:
    """Verified transcripts by plan and round, with which others are compared; those without an outcome are left out."""

    def __init__(self, given: Iterable[Verified]) -> None:
        self._ended: dict[tuple[bytes, int], list[Verified]] = {}
        for each in given:
            if each.outcome is not None:
                self._ended.setdefault((each.setup.plan.digest, each.number), []).append(each)
        self._problems: dict[tuple[bytes, int], str] = {}
        for place in sorted(self._ended):
            self._problems[place] = self._problem(self._ended[place][0])

    def link(self, one: Verified) -> Verified:
        """Compare `one` with the transcripts of its round and earlier ones; return it, with a caveat if one is missing.

        Each round names the one before it by a digest. With a doubt where the one before `one`, of the same party or of
        the server, is not among them. Raises TranscriptInvalid for another result than another transcript of its round
        tells, and for another sum or broadcast than a transcript of an earlier round tells, or another round.
        """
        same_round = self._ended.get((one.setup.plan.digest, one.number), ()) if one.outcome is not None else ()
        if conflict := next(filter(None, (_conflict_between(one, each) for each in same_round)), ""):
            raise TranscriptInvalid(_outcome_record(one), conflict)
        if problem := self._problem(one):
            raise TranscriptInvalid(place_of_opening(one.setup, one.records), problem)
        before = self._ended.get(_place_before(one), ())
        if one.number <= 1 or any(each.author in (one.author, SERVER_INDEX) for each in before):
            return one
        return replace(one, doubts=(*one.doubts, self._gap(one)))

    def _gap(self, one: Verified) -> Caveat:
        if one.setup.rejoin is not None:
            last = max((number for number in range(one.number) if self._has(one, number)), default=0)
            is_one, signers = last + 2 == one.number, len(one.setup.rejoin.acknowledgements)
            rounds = f"round {last + 1} was" if is_one else f"rounds {last + 1} to {one.number - 1} were"
            return Caveat(
                f"{rounds} not followed by this member, as far as the given transcripts tell: {signers} members' "
                f"signatures stand for {'it' if is_one else 'them'}",
                f"if the rounds before it ended as {signers} members have signed",
                "give the server's transcripts of all rounds",
            )
        words = f"round {one.number} of {one.setup.rounds} stands without the transcript of round {one.number - 1}"
        return Caveat(words, "if the rounds before it ended as it says", "give the transcripts of all rounds")

    def _has(self, one: Verified, number: int) -> bool:
        """Return whether a transcript of the same author is given for round `number`.

        An author that has sent nothing is identified by the common state folder.
        """
        given = self._ended.get((one.setup.plan.digest, number), ())
        if one.author is not None:
            return any(each.author == one.author for each in given)
        return any(each.path.resolve().parent.parent == one.path.resolve().parent.parent for each in given)

    def _problem(self, one: Verified) -> str:
        """Describe how `one` contradicts an outcome of an earlier round; empty if it contradicts none."""
        place = _place_before(one)
        own = (_contradiction(one, each) for each in self._ended.get(place, ()))
        return next(filter(None, own), "") or self._problems.get(place, "")


def _conflict_between(one: Verified, other: Verified) -> str:
    """Describe how two outcomes of a round differ, and name the server if it signed both in one session; else empty."""
    if one.setup.context.round_digest != other.setup.context.round_digest:
        return f"round {one.number} follows from other rounds than in {other.path}"
    told, there = one.outcome, other.outcome
    if told is None or there is None or told == there:
        return ""
    roster = one.setup.roster
    differing = ", ".join(
        f"the {words} ({_in_words(told, name, roster)} and {_in_words(there, name, roster)})"
        for name, words in _RESULT.items()
        if getattr(told, name) != getattr(there, name)
    )
    there_at = f"record {_outcome_record(other)} of {other.path}"
    server = roster.name(SERVER_INDEX)
    return f"{server} has signed two results of one session, which differ in {differing}: the other is {there_at}"


def _in_words(outcome: Outcome, name: str, roster: Roster) -> str:
    value = getattr(outcome, name)
    if name == "members":
        return ", ".join(roster.name(member) for member in value)
    digest: bytes = value if isinstance(value, bytes) else value[0].digest if value else b""
    return f"{digest.hex()[:16]}…" if digest else "none"


def _outcome_record(one: Verified) -> int:
    frames = (record for record in one.records if record.kind in ("received", "sent"))
    return next(record.index for record in frames if peek(record.content).step == tag_of(Outcome))


def _place_before(one: Verified) -> tuple[bytes, int]:
    return one.setup.plan.digest, one.number - 1


def _contradiction(later: Verified, before: Verified) -> str:
    """Describe why the outcome `before` did not begin the round of `later`; empty if it did."""
    opening, outcome = later.setup.opening, before.outcome
    if before.setup.is_draw and outcome is not None and outcome.aggregate_sha256 != later.setup.seed:
        return f"other cohorts were drawn, says {before.path}"
    if opening is None or outcome is None:
        return ""
    expected = opening_after(before.setup, outcome) or end_after(before.setup, outcome)
    if opening.aggregate_sha256 != outcome.aggregate_sha256:
        told = f"the sum {opening.aggregate_sha256.hex()}, {before.path} {outcome.aggregate_sha256.hex()}"
        return f"of round {before.number} it tells {told}"
    if expected is None or opening.broadcast != expected.broadcast:
        return f"round {before.number} ended with another broadcast, says {before.path}"
    if opening.previous != before.setup.context.round_digest:
        return f"round {before.number} followed from other rounds, says {before.path}"
    return ""
