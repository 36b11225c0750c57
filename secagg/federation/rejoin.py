"""Rejoin a plan: a client that is not in a round asks until the server names a later one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from secagg.errors import LeftBehind, MalformedMessage, ProtocolViolation, SecaggError, ServerAway, SessionAborted
from secagg.plan_facts.facts import may_return, witnesses_of
from secagg.plan_facts.timing import longest_round
from secagg.protection.draw import SHOWN_DRAW, Draw
from secagg.protection.messages import Return
from secagg.session import Connection, RoundSetup
from secagg.session.attachments import read_opening, read_opening_of
from secagg.session.receive_signed import SignedReceiver
from secagg.session.rejoin import follow_return
from secagg.session.transcripts import next_return
from secagg.wire import decode, tag_of

KNOCK_SECONDS = 0.5
HEARD_SECONDS = 2.0
"""Within which an aggregator that is there hears a knock: after a plan's last round none is."""
KNOCKING = 100
"""Clients that may all knock so often; more of them wait longer, so that the server hears no more of them a second."""


async def rejoin(
    left: RoundSetup,
    first: RoundSetup,
    client: int,
    state: Path,
    server: Connection,
    others: Iterable[Connection],
    progress: Callable[[str], None],
) -> RoundSetup:
    """The session of a later round in which a client goes on that the session `left` goes on without.

    The one that it had returned in before a crash, else the one that t others have signed: `first` is the plan's first,
    `others` the aggregators, which wait for who knocks, too. In a plan with cohorts that is the next one that it is
    drawn for and comes in time for, or the end; no connection need last between two questions. Raises SessionAborted
    where nobody shows a valid one for as long as a round, or with cohorts all that are left, may take, LeftBehind where
    there can be none.
    """
    if not may_return(first.facts) or (left.is_last and not first.seed):
        raise LeftBehind("no round follows in which it may return")
    kept = next_return(state, first.plan, left.number)
    if kept is not None:
        return follow_return(first, kept, client, left.number, read_opening(state, kept.opening))
    signed = SignedReceiver(first, client, progress)
    clock, problem = asyncio.get_running_loop().time, ""
    seconds = longest_round(first.plan) * (first.rounds + 1 - left.number if first.seed else 1)
    deadline = clock() + seconds
    progress(f"not in round {left.number}; asking for a later one for up to {seconds:.0f} s")
    pause = min(KNOCK_SECONDS * max(1.0, len(first.roster.clients) / KNOCKING), first.plan.round_seconds / 4)
    while clock() < deadline:
        try:
            data = await _request_rejoin(first, server, others)
            if data:
                shown = decode(Return, data)
                follow_return(first, shown, client, left.number)  # before anything is asked that it names
                await read_opening_of(signed, server, shown.opening, state)
                opened = read_opening(state, shown.opening)
                if shown.opening.number > first.rounds:
                    await _request_rejoin(first, server, ())  # so that the server need not wait for it any longer
                return follow_return(first, shown, client, left.number, opened)
        except (MalformedMessage, ProtocolViolation) as error:  # nobody signed the whole: whoever carried it may have
            problem = _say_once(str(first.roster.name_culprit(error)), problem, progress)
        except ServerAway as error:
            problem = problem or error.problem
            break
        await asyncio.sleep(pause)
    said = f"no later round was shown to it, with {witnesses_of(first.facts)} other clients' signatures"
    raise SessionAborted(f"{said}: {problem or 'nobody has shown it any'}")


async def learn_draw(drawing: RoundSetup, server: Connection, progress: Callable[[str], None]) -> RoundSetup:
    """The first round, for a client that came too late for the draw: the draw proves itself.

    Raises SessionAborted where nobody shows a valid one for as long as it may take.
    """
    clock, problem = asyncio.get_running_loop().time, ""
    deadline = clock() + longest_round(drawing.plan)
    while clock() < deadline:
        try:
            if data := await server.fetch(drawing.plan.digest, SHOWN_DRAW, 0.0):
                return drawing.drawn(decode(Draw, data))
        except (MalformedMessage, ProtocolViolation) as error:
            problem = _say_once(str(drawing.roster.name_culprit(error)), problem, progress)
        except ServerAway as error:
            problem = problem or error.problem
            break
        await asyncio.sleep(KNOCK_SECONDS)
    raise SessionAborted(f"it came too late for the draw, which nobody has shown to it: {problem or 'not yet'}")


async def _request_rejoin(first: RoundSetup, server: Connection, others: Iterable[Connection]) -> bytes:
    for other in others:
        with contextlib.suppress(SecaggError, TimeoutError):  # it may be late for one, or gone: that holds up no other
            async with asyncio.timeout(HEARD_SECONDS):
                await other.fetch(first.plan.digest, tag_of(Return), 0.0)
    return await server.fetch(first.plan.digest, tag_of(Return), 0.0)


def _say_once(said: str, before: str, progress: Callable[[str], None]) -> str:
    if said != before:
        progress(f"{said}; asking again")
    return said
