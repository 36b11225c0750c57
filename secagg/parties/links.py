"""Transcripts held against each other: a round's against those of the rounds before it, which opened it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, SecaggError, TranscriptInvalid
from secagg.parties.member_verification import Doubt
from secagg.parties.transcripts import Openings
from secagg.parties.verification import NOTHING_BROUGHT, Verified, place_of_plan, verified
from secagg.parties.vouching import Trust
from secagg.roster import SERVER_INDEX


def verify_transcript(path: Path, trust: Trust = NOTHING_BROUGHT) -> dict[str, Any]:
    """What one transcript tells and proves, as plain values. Raises what `verified` raises."""
    return linked(verified(path, trust, Openings((path,))), ()).findings


def verify_together(paths: Sequence[Path], trust: Trust) -> tuple[Verified | SecaggError, ...]:
    """Every transcript, held against the others of its plan, or why it is not valid (TranscriptInvalid, BadInput)."""
    openings = Openings(paths)
    alone = [_attempt(path, partial(verified, path, trust, openings)) for path in paths]
    consistent = [each for each in alone if isinstance(each, Verified)]
    return tuple(
        _attempt(each.path, partial(linked, each, consistent)) if isinstance(each, Verified) else each for each in alone
    )


def _attempt(path: Path, verify: Callable[[], Verified]) -> Verified | SecaggError:
    try:
        return verify()
    except TranscriptInvalid as error:
        return TranscriptInvalid(error.record, error.problem, source=str(path))
    except BadInput as error:
        return error


def linked(one: Verified, given: Sequence[Verified]) -> Verified:
    """`one`, held against the outcomes of the rounds before it, as far back as the `given` transcripts of its plan go.

    Each round names the one before it by a digest. With a doubt where the one before `one`, of the same party or of the
    server, is not among them. Raises TranscriptInvalid for another sum or broadcast than a transcript of an earlier
    round tells, or another round.
    """
    later, is_linked = one, one.number == 1
    while before := [each for each in given if each.outcome is not None and _precedes(each, later)]:
        for each in before:
            _check_link(one, later, each)
        is_linked |= later is one and any(each.author in (one.author, SERVER_INDEX) for each in before)
        later = before[0]
    if is_linked:
        return one
    words = f"round {one.number} of {one.setup.rounds} stands without the transcript of round {one.number - 1}"
    alone = Doubt(words, "if the rounds before it ended as it says", "give the transcripts of all rounds")
    return replace(one, doubts=(*one.doubts, alone))


def _precedes(one: Verified, other: Verified) -> bool:
    """Whether a transcript is of the round before another's, under the same plan."""
    return one.number == other.number - 1 and one.setup.plan.digest == other.setup.plan.digest


def _check_link(one: Verified, later: Verified, before: Verified) -> None:
    """Raise TranscriptInvalid for `one` unless `later`, which it goes back to, was opened by the outcome `before`."""
    opening, outcome, place = later.setup.opening, before.outcome, place_of_plan(one.records) + 2
    if opening is None or outcome is None:
        return
    if opening.aggregate_sha256 != outcome.aggregate_sha256:
        told = f"the sum {opening.aggregate_sha256.hex()}, {before.path} {outcome.aggregate_sha256.hex()}"
        raise TranscriptInvalid(place, f"of round {before.number} it tells {told}")
    if opening.broadcast != outcome.broadcast:
        raise TranscriptInvalid(place, f"round {before.number} ended with another broadcast, says {before.path}")
    if opening.previous != before.setup.context.plan:
        raise TranscriptInvalid(place, f"round {before.number} followed from other rounds, says {before.path}")
