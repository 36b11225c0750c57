"""A client of a plan: one session after another, each with its folder and transcript."""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from secagg.agreement.policy import Policy
from secagg.encoding import Integers
from secagg.errors import COUNTS, BadInput, LeftBehind, SessionAborted
from secagg.federation.recovery import release_of, release_until
from secagg.federation.rejoin import learn_draw, rejoin
from secagg.ledger import Ledger
from secagg.ledger.spending import Account, Release
from secagg.plan_facts.records import LocalRecords
from secagg.privacy.claim import format_epsilon
from secagg.protection import LocalParty
from secagg.protection.draw import Draw
from secagg.protection.messages import Outcome
from secagg.session import Connection, MemberSession, Prepared, Rounds, RoundSetup, begin_transcript, contribution_of
from secagg.session.attachments import drop_openings, read_opening, session_folder
from secagg.session.outcome import HEAD_FILE
from secagg.session.rejoin import outcome_at_end
from secagg.session.rounds import opening_after
from secagg.session.sealed_state import erase_state, keep_state, recall_state
from secagg.system.files import write_synced
from secagg.system.threads import compute_aside
from secagg.transcript import FILE_NAME, Journal
from secagg.verification import note_plan


@dataclass(frozen=True)
class FederationClient:
    """One member's part in a plan. Start again after a crash: what was sent is not computed again.

    A round's vector is computed before the round is joined, so that no later step waits for the data, and beside the
    event loop: an interrupt ends it. `greet` is
    awaited before a session that still needs the server, and raises when that is not there, or runs another plan.
    Where a session goes on without it, or it is not drawn for one, it returns in a later one, if the plan lets it
    (`secagg.federation.rejoin`); its private state from rounds before then is not used.
    `stays`: wait for every outcome even where a client may speak once in each session and be gone; with cohorts it
    does, for those that are drawn next need its signature. Raises BadInput on a machine that lacks what the plan's
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

    def __post_init__(self) -> None:
        self.setup.protection.check_machine()

    async def run(
        self, server: Connection, others: Mapping[int, Connection] | None = None
    ) -> list[tuple[RoundSetup, Outcome]]:
        """Carry every session to its outcome; return them in order. Raises what a session raises.

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
        """The cost of the whole plan: one row of the ledger, entered before the first upload."""
        return release_of(self.setup.facts, self.policy.data_name)

    def account(self) -> Account:
        """The policy's budget for the data set: spent before, this plan, left."""
        return self.ledger.account(self.release, self.policy.data_name, self.policy.budget)

    async def _return(
        self,
        left: RoundSetup,
        before: Sequence[RoundSetup],
        why: LeftBehind,
        server: Connection,
        others: Mapping[int, Connection],
    ) -> RoundSetup:
        """The session in which this client goes on, left behind in one after those `before`.

        Raises SessionAborted, with why it was left behind, for none.
        """
        away = others.values()
        try:
            if left.is_draw:
                return await learn_draw(left, server, self.progress)
            first = self.setup.seeded(left.seed, left.draw)
            return await rejoin(left, first, self.me.member, self.state, server, away, self.progress)
        except LeftBehind:
            raise self._with_cost(why, [*before, left]) from None
        except SessionAborted as error:
            raise self._with_cost(LeftBehind(f"{why.reason}; {error.reason}"), [*before, left]) from None

    def _with_cost(
        self, error: SessionAborted, seen: Sequence[RoundSetup], *, is_settled: bool = False
    ) -> SessionAborted:
        """The plan's end with its cost, which is never refunded where vectors may have left, and what to do next."""
        left, rounds, remedy = self._count_uploads(seen), self.setup.rounds, seen[-1].remedy
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

    def _count_uploads(self, sessions: Sequence[RoundSetup]) -> int:
        """In how many of them a vector may have left."""
        return sum(self.ledger.has_uploaded(each.context.round_digest) for each in sessions)

    def _settle(self, seen: Sequence[RoundSetup]) -> bool:
        """Where the plan is over for good, charge it for the sums for which a vector may have left, and for no other.

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
        """Play a part in a session, or take the result that others have signed; return the draw too, if it is one.

        Raises LeftBehind where it is not drawn.
        """
        if self.me.member not in setup.context.identities:
            raise LeftBehind(f"this client is not drawn for round {setup.number}")
        if not setup.is_end:
            return await self._session(setup, private, server, others)
        head = read_opening(self.state, setup.opening)
        with closing(self._journal(setup)):
            outcome = outcome_at_end(setup, head)
            write_synced(session_folder(self.state, setup) / HEAD_FILE, head)
            return outcome, None

    def _journal(self, setup: RoundSetup) -> Journal:
        """The transcript of a session, begun. Raises BadInput where an earlier one of it is gone, and may have left."""
        folder, round_digest = session_folder(self.state, setup), setup.context.round_digest
        note_plan(self.state, setup.plan)
        journal = Journal(folder / FILE_NAME)
        try:
            if journal.was_empty and self.ledger.has_uploaded(round_digest):
                raise BadInput(
                    f"a vector for this session may have left already, but its folder {folder} is gone",
                    remedy="taking part again would release the data once more: bring the folder back, or stay out",
                )
            if journal.was_empty:
                journal.append("salt", self.me.randomness.bytes(32))
            begin_transcript(journal, setup)
        except BaseException:
            journal.close()
            raise
        return journal

    async def _session(
        self, setup: RoundSetup, private: bytes, server: Connection, others: Mapping[int, Connection]
    ) -> tuple[Outcome | None, Draw | None]:
        """One session, `private` being what the one before left to this member."""
        folder = session_folder(self.state, setup)
        with closing(self._journal(setup)) as journal:
            if not any(record.kind == "policy" for record in journal.records()):  # else the one that it joined under
                journal.append("policy", self.policy.to_toml().encode())
            stays = self.stays or bool(setup.plan.cohort) or not setup.protection.speaks_once
            own = _RoundContributor(self, setup, private, folder, journal)
            session = MemberSession(setup, self.me, folder, journal, self.progress, own, stays=stays)
            if session.outcome is None:
                if not setup.is_draw and not session.is_protected:
                    await compute_aside(own.vector)
                await self.greet()
            return await session.run(server, others), session.draw


@dataclass
class _RoundContributor:
    """A client's vector for one round, computed once, and what must be on its disk before the vector leaves.

    `private` is what the round before left to it.
    """

    client: FederationClient
    setup: RoundSetup
    private: bytes
    folder: Path
    journal: Journal

    def vector(self) -> Integers:
        return self._prepared.vector

    def before_upload(self) -> None:
        """Write down what the round leaves to this member, charge the ledger, and note both."""
        client, round_digest = self.client, self.setup.context.round_digest
        keep_state(self.folder, self._prepared.state, round_digest, client.me.randomness)
        entry = client.ledger.record(client.release, client.policy.budget, datetime.datetime.now(datetime.UTC))
        client.ledger.begin_upload(round_digest)
        self.journal.append("ledger", entry.digest)

    @cached_property
    def _prepared(self) -> Prepared:
        me = self.client.me
        return contribution_of(self.setup, self.client.records, me.randomness, me.member, self.private)
