"""The client's side of a plan: it runs one session for each round, each with its own folder and transcript."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from secagg.agreement.policy import Policy
from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers
from secagg.errors import (
    COUNTS,
    BadInput,
    LeftBehind,
    MalformedMessage,
    PlanRefused,
    ProtocolViolation,
    SecaggError,
    ServerAway,
    SessionAborted,
)
from secagg.federation.declining import send_decline
from secagg.federation.recovery import release_of, release_until
from secagg.ledger import Ledger
from secagg.ledger.spending import Account, Release
from secagg.plan_facts.facts import longest_round, may_return, witnesses_in_words
from secagg.plan_facts.records import LocalRecords
from secagg.privacy.claim import format_epsilon
from secagg.protection import LocalParty
from secagg.protection.draw import SHOWN_DRAW, Draw
from secagg.protection.messages import Outcome, Return
from secagg.session import Connection, MemberSession, Rounds, RoundSetup, begin_transcript, contribution_of
from secagg.session.attachments import drop_openings, read_opening, read_opening_of, session_folder
from secagg.session.outcome import HEAD_FILE
from secagg.session.receive_signed import SignedReceiver
from secagg.session.rounds import follow_return, opening_after, outcome_at_end
from secagg.session.sealed_state import erase_state, keep_state, recall_state
from secagg.session.transcripts import next_return
from secagg.system.files import write_synced
from secagg.system.threads import compute_aside
from secagg.transcript import FILE_NAME, Journal
from secagg.verification import note_plan
from secagg.wire import decode, tag_of


@dataclass
class FederationClient:
    """A client that runs a plan's rounds in order, and can be started again after a crash.

    A vector already sent is not computed again.
    A round's vector is computed before the round is joined, so that no later step waits for the data, and beside the
    event loop: an interrupt ends it. `greet` is
    awaited before a session that still needs the server, and raises when that is not there, or runs another plan.
    Where a session goes on without it, or it is not drawn for one, it returns in a later one, if the plan lets it
    (`secagg.federation.rejoin`); its private state from rounds before then is not used.
    `stays`: wait for every outcome even where a client may speak once in each session and be gone; with cohorts it
    does, for those that are drawn next need its signature. `decline`: the reason, which may be empty, of the `Decline`
    that it sends where it refuses the plan, or is cancelled, before its vector is protected; None sends none: whoever
    cancels it to start it again later sets that first. Raises BadInput on a machine that lacks what the plan's
    protection needs.
    """

    setup: RoundSetup
    me: LocalParty
    policy: Policy
    ledger: Ledger
    state: Path
    records: LocalRecords
    greet: Callable[[], Awaitable[object]]
    progress: Callable[[str], None]
    stays: bool = True
    decline: str | None = None

    def __post_init__(self) -> None:
        self.setup.protection.check_machine()

    async def run(
        self, server: Connection, others: Mapping[int, Connection] | None = None
    ) -> list[tuple[RoundSetup, Outcome]]:
        """Run the plan's sessions, one for each round, in order; return each session with its outcome.

        Raises what a session raises.
        A client that uploads and does not wait returns the rounds before that one, so that there are none or the last
        of them opens another. `others` are the connections to aggregators. With cohorts the last one is the end of the
        plan, for a client that was not in its last round.
        """
        rounds: Rounds[Outcome] = Rounds(self.setup)
        missed: list[RoundSetup] = []
        private = b""
        await compute_aside(self.setup.facts.load_libraries)
        for setup in rounds:
            if 1 < setup.number <= setup.rounds:
                self.progress(f"round {setup.number} of {setup.rounds}")
            try:
                outcome, draw = await self._part(setup, private, server, others or {})
            except LeftBehind as error:
                before = [*missed, *(each for each, _ in rounds.done)]
                missed.append(setup)  # its vector may have left all the same
                rounds.go_on_at(await self._return(setup, before, error, server, others or {}))
                private = b""
                continue
            except SessionAborted as error:
                seen = [*(each for each, _ in rounds.done), setup]
                raise self._with_cost(error, [*missed, *seen], is_settled=self._settle(seen)) from None
            if outcome is None:
                return rounds.done
            if rounds.done:
                erase_state(session_folder(self.state, rounds.done[-1][0]))
            private = recall_state(session_folder(self.state, setup), setup.context.round_digest)
            rounds.ended(outcome, read_opening(self.state, opening_after(setup, outcome)), draw)
            drop_openings(self.state, rounds.done)
        return rounds.done

    @property
    def release(self) -> Release:
        """Privacy cost of the whole plan, charged to the ledger as one row before the first upload."""
        return release_of(self.setup.facts, self.policy.data_name)

    def account(self) -> Account:
        """Return the state of the data set's budget: policy limit, cost before, this plan's cost, and what is left."""
        return self.ledger.account(self.release, self.policy.data_name, self.policy.budget)

    async def _return(
        self,
        left: RoundSetup,
        before: Sequence[RoundSetup],
        why: LeftBehind,
        server: Connection,
        others: Mapping[int, Connection],
    ) -> RoundSetup:
        """Return the session in which this client rejoins after those `before`. Raises SessionAborted if none."""
        try:
            if left.is_draw:
                return await learn_draw(left, server, self.progress)
            first = self.setup.seeded(left.seed, left.draw)
            return await rejoin(left, first, self.me.member, self.state, server, others.values(), self.progress)
        except LeftBehind:
            raise self._with_cost(why, [*before, left]) from None
        except SessionAborted as error:
            raise self._with_cost(LeftBehind(f"{why.reason}; {error.reason}"), [*before, left]) from None

    def _with_cost(
        self, error: SessionAborted, seen: Sequence[RoundSetup], *, is_settled: bool = False
    ) -> SessionAborted:
        """Return the abort with the plan's cost to this client's budget, and what to do next.

        The cost is never refunded for a sum for which a vector may have been sent.
        """
        left = sum(self.ledger.has_uploaded(each.context.round_digest) for each in seen)
        rounds, remedy = self.setup.rounds, seen[-1].remedy
        rows = [entry.release for entry in self.ledger.entries() if entry.release.plan == self.setup.plan.digest]
        if not rows:
            cost = "nothing of your records has left, and your ledger was not charged"
            return SessionAborted(f"{error.reason}; {cost}", remedy=remedy)
        charged = f"your ledger was charged epsilon {format_epsilon(rows[-1].epsilon)} about {rows[-1].data_name}"
        what = "the upload" if rounds == 1 else f"a vector for {left} of {rounds} sums"
        cost = f"{what} may have left, and {charged}" if left else f"nothing has left, but {charged}"
        if rounds > 1:
            cost += ", for these sums alone" if is_settled else ", for the whole plan"
        if COUNTS in error.reason:
            opened = "the sum may have been opened"
        elif isinstance(error, LeftBehind):
            opened = "the others may open a sum without this client or with it"
        else:
            opened = "nothing of the last sum was opened, as far as this client knows"
        return SessionAborted(f"{error.reason}; {cost}; {opened}", remedy=remedy)

    def _settle(self, seen: Sequence[RoundSetup]) -> bool:
        """Reduce the charge of a plan that is over for good to the sums for which a vector may have been sent.

        `seen` ends with the session that ended it, after those that led there: only who was told of all can count.
        Return whether the ledger says so now.
        """
        *before, ended = seen
        if len(seen) != ended.number or not self.ledger.has_uploaded(self.setup.context.round_digest):
            return False
        sums = len(before) + self.ledger.has_uploaded(ended.context.round_digest)
        settled_cost = release_until(self.setup.facts, self.policy.data_name, sums)
        if settled_cost is not None:
            self.ledger.settle(self.release, settled_cost, datetime.datetime.now(datetime.UTC))
        return settled_cost is not None

    async def _part(
        self, setup: RoundSetup, private: bytes, server: Connection, others: Mapping[int, Connection]
    ) -> tuple[Outcome | None, Draw | None]:
        """Run one session, or read the signed result at the end; return outcome and draw. Raises LeftBehind."""
        if self.me.member not in setup.context.identities:
            raise LeftBehind(f"this client is not drawn for round {setup.number}")
        folder = session_folder(self.state, setup)
        if setup.is_end:
            head = read_opening(self.state, setup.opening)
            with closing(self._journal(setup)):
                outcome = outcome_at_end(setup, head)
                write_synced(folder / HEAD_FILE, head)
                return outcome, None
        with closing(self._journal(setup)) as journal:
            if not any(record.kind == "policy" for record in journal.records()):  # else the one that it joined under
                journal.append("policy", self.policy.to_toml().encode())
            stays = self.stays or bool(setup.plan.cohort) or not setup.protection.speaks_once
            own = _RoundContributor(self, setup, private, folder, journal)
            session = MemberSession(setup, self.me, folder, journal, self.progress, own, stays=stays)
            try:
                if session.outcome is None:
                    if not setup.is_draw and not session.is_protected:
                        await compute_aside(own.vector)
                    await self.greet()
                return await session.run(server, others), session.draw
            except (PlanRefused, asyncio.CancelledError):
                if self.decline is not None and session.outcome is None and not session.is_protected:
                    heard = await send_decline(setup, self.me, self.decline, {**others, SERVER_INDEX: server})
                    self.progress(f"declined: {', '.join(heard) or 'nobody'} will not wait for this client")
                raise

    def _journal(self, setup: RoundSetup) -> Journal:
        """Open a session's transcript. Raises BadInput if an earlier one is lost and the upload may have begun."""
        folder, round_digest = session_folder(self.state, setup), setup.context.round_digest
        note_plan(self.state, setup.plan, self.me.identity)
        journal = Journal(folder / FILE_NAME)
        try:
            if journal.was_empty and self.ledger.has_uploaded(round_digest):
                problem = f"a vector for this session may have left already, but its folder {folder} is gone"
                remedy = "taking part again would release the data once more: bring the folder back, or stay out"
                raise BadInput(problem, remedy=remedy)
            if journal.was_empty:
                journal.append("salt", self.me.randomness.bytes(32))
            begin_transcript(journal, setup)
        except BaseException:
            journal.close()
            raise
        return journal


@dataclass
class _RoundContributor:
    """Computes a client's vector for one round, once; `private` is the private state of the round before."""

    client: FederationClient
    setup: RoundSetup
    private: bytes
    folder: Path
    journal: Journal

    def vector(self) -> Integers:
        vector, _ = self._prepared
        return vector

    def before_upload(self) -> None:
        """Store the private state for the next round, charge the ledger, and record both."""
        client, round_digest = self.client, self.setup.context.round_digest
        _, state = self._prepared
        keep_state(self.folder, state, round_digest, client.me.randomness)
        entry = client.ledger.record(client.release, client.policy.budget, datetime.datetime.now(datetime.UTC))
        client.ledger.begin_upload(round_digest)
        self.journal.append("ledger", entry.digest)

    @cached_property
    def _prepared(self) -> tuple[Integers, bytes]:
        me = self.client.me
        return contribution_of(self.setup, self.client.records, me.randomness, me.member, self.private)


KNOCK_SECONDS = 0.5
HEARD_SECONDS = 2.0
"""Seconds after which a request to rejoin gives up on an aggregator; after the last round none is there."""
KNOCKING = 100
"""The most clients that may each ask every KNOCK_SECONDS to rejoin; with more, each asks less often."""


async def rejoin(
    left: RoundSetup,
    first: RoundSetup,
    client: int,
    state: Path,
    server: Connection,
    others: Iterable[Connection],
    progress: Callable[[str], None],
) -> RoundSetup:
    """Find the later round in which a client may rejoin after it was left out of the session `left`.

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
    said = f"no later round was shown to it, with the signatures of {witnesses_in_words(first.facts)}"
    raise SessionAborted(f"{said}: {problem or 'nobody has shown it any'}")


async def learn_draw(drawing: RoundSetup, server: Connection, progress: Callable[[str], None]) -> RoundSetup:
    """Ask the server for the random draw of cohorts, made before this client came; return the plan's first round.

    Raises SessionAborted if no valid draw comes.
    """
    clock, problem = asyncio.get_running_loop().time, ""
    deadline = clock() + longest_round(drawing.plan)
    while clock() < deadline:
        try:
            if data := await server.fetch(drawing.plan.digest, SHOWN_DRAW, 0.0):
                return drawing.with_draw(decode(Draw, data))
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
