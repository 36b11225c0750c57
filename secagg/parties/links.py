"""Transcripts held against each other: a round's against those of the rounds before it, which opened it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, SecaggError, TranscriptInvalid
from secagg.parties.doubt import Doubt
from secagg.parties.transcripts import Openings, round_of
from secagg.parties.verification import NOTHING_BROUGHT, Verified, place_of_opening, verified
from secagg.parties.vouching import Trust
from secagg.roster import SERVER_INDEX


def verify_transcript(path: Path, trust: Trust = NOTHING_BROUGHT) -> dict[str, Any]:
    """What one transcript tells and proves, as plain values. Raises what `verified` raises."""
    return Series(()).link(verified(path, trust, Openings((path,)))).findings


def verify_together(paths: Sequence[Path], trust: Trust) -> tuple[Verified | SecaggError, ...]:
    """Every transcript, held against the others of its plan, or why it is not valid (TranscriptInvalid, BadInput)."""
    openings = Openings(paths)
    found = {path: _attempt(path, partial(verified, path, trust, openings)) for path in sorted(paths, key=round_of)}
    alone = [found[path] for path in paths]
    series = Series(each for each in alone if isinstance(each, Verified))
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


class Series:
    """The `given` transcripts that tell an outcome, by plan and round."""

    def __init__(self, given: Iterable[Verified]) -> None:
        self._ended: dict[tuple[bytes, int], list[Verified]] = {}
        for each in given:
            if each.outcome is not None:
                self._ended.setdefault((each.setup.plan.digest, each.number), []).append(each)
        self._problems: dict[tuple[bytes, int], str] = {}
        for place in sorted(self._ended):
            self._problems[place] = self._problem(self._ended[place][0])

    def link(self, one: Verified) -> Verified:
        """`one`, held against the outcomes of the rounds before it, as far back as the given transcripts go.

        Each round names the one before it by a digest. With a doubt where the one before `one`, of the same party or of
        the server, is not among them. Raises TranscriptInvalid for another sum or broadcast than a transcript of an
        earlier round tells, or another round.
        """
        if problem := self._problem(one):
            raise TranscriptInvalid(place_of_opening(one.setup, one.records), problem)
        before = self._ended.get(_place_before(one), ())
        if one.number <= 1 or any(each.author in (one.author, SERVER_INDEX) for each in before):
            return one
        return replace(one, doubts=(*one.doubts, self._gap(one)))

    def _gap(self, one: Verified) -> Doubt:
        """What stands for the rounds before `one`, whose transcripts are not there."""
        if one.setup.shown is not None:
            last = max((number for number in range(one.number) if self._has(one, number)), default=0)
            return Doubt(
                f"rounds {last + 1} to {one.number - 1} were not followed by this member, as far as the given "
                f"transcripts tell: {len(one.setup.shown.acknowledgements)} members' signatures stand for them",
                f"if the rounds before it ended as {len(one.setup.shown.acknowledgements)} members have signed",
                "give the server's transcripts of all rounds",
            )
        words = f"round {one.number} of {one.setup.rounds} stands without the transcript of round {one.number - 1}"
        return Doubt(words, "if the rounds before it ended as it says", "give the transcripts of all rounds")

    def _has(self, one: Verified, number: int) -> bool:
        return any(each.author == one.author for each in self._ended.get((one.setup.plan.digest, number), ()))

    def _problem(self, one: Verified) -> str:
        """What contradicts the history that `one` names, in the round before it or further back; else nothing."""
        place = _place_before(one)
        own = (_contradiction(one, each) for each in self._ended.get(place, ()))
        return next(filter(None, own), "") or self._problems.get(place, "")


def _place_before(one: Verified) -> tuple[bytes, int]:
    return one.setup.plan.digest, one.number - 1


def _contradiction(later: Verified, before: Verified) -> str:
    """Why `later` was not opened by the outcome `before`; nothing where it was."""
    opening, outcome = later.setup.opening, before.outcome
    if before.setup.is_draw and outcome is not None and outcome.aggregate_sha256 != later.setup.seed:
        return f"other cohorts were drawn, says {before.path}"
    if opening is None or outcome is None:
        return ""
    if opening.aggregate_sha256 != outcome.aggregate_sha256:
        told = f"the sum {opening.aggregate_sha256.hex()}, {before.path} {outcome.aggregate_sha256.hex()}"
        return f"of round {before.number} it tells {told}"
    if opening.broadcast != outcome.opens:
        return f"round {before.number} ended with another broadcast, says {before.path}"
    if opening.previous != before.setup.context.plan:
        return f"round {before.number} followed from other rounds, says {before.path}"
    return ""
