"""Who notices a fault in a session, at which message, and whose name it gives: read off what honest parties did.

`Planted` is a session with a fault in it. `noticed` runs one and looks at how each honest party ended, at what server
and aggregators refused of their callers, at complaints, and at the server's warnings. Where these name nobody it asks
`verify`: of the honest parties' transcripts together, and at last of the liars'.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import (
    LeftBehind,
    MalformedMessage,
    NotConfirmed,
    NotNow,
    ProtocolViolation,
    SessionAborted,
    TranscriptInvalid,
    Unconfirmed,
)
from secagg.protection.interface import ReadyState, Transition
from secagg.protection.messages import Abort, Acknowledgement, Confirmation, Outcome, UploadHeader
from secagg.protection.sharing.aggregator import SetAgreed
from secagg.protection.sharing.messages import SetLists
from secagg.session import AggregatorWork, MemberSession, ServerSession, SumResult
from secagg.transcript import FrameBody, Journal, Record, payload_of, peek, read_transcript
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import NOTHING_BROUGHT
from secagg.wire import tag_of
from tests.session.test_malicious_helpers import Telling, signed_again
from tests.worlds.hosts import parts_of
from tests.worlds.session import Ending, SessionRun, SimulatedSession

NOBODY = "nobody"
WARNINGS = (
    re.compile("tags that are not those of the upload, which is released in their place: (.+)"),
    re.compile("(.+) signed two different uploads; "),
)
"""The server's warnings that say whose fault something is."""
Change = Callable[[bytes], bytes]
Made = Callable[[MemberSession, Transition], Transition]


@dataclass(frozen=True, order=True)
class Notice:
    """Who noticed, at which message, and whose name was given for it."""

    who: str
    when: str
    whose: str


class Planted(Telling):
    """A session with a fault: of the server in what it tells (`told`), of the `liar` in what it sends or makes.

    `sent` changes the liar's frames of one step. `more` makes another frame, which follows one of them, with these
    bytes where it is an upload. `made` changes what the liar's machine gives. `declared` changes the request by which
    the server has others open the sum, `result` what it makes of the opened one, `outcome` what it says of that.
    A message that is `lost` (sender, receiver, class) does not arrive, and no answer comes.
    """

    def __init__(
        self,
        world: SimulatedSession,
        liar: int = SERVER_INDEX,
        *,
        told: tuple[int | Collection[int], type, Callable[[FrameBody], FrameBody]] = ((), Outcome, lambda body: body),
        sent: tuple[type, Change] | None = None,
        more: tuple[type, Change, bytes] | None = None,
        made: Made | None = None,
        result: Callable[[SumResult], SumResult] = lambda result: result,
        outcome: Callable[[Outcome], Outcome] = lambda outcome: outcome,
        declared: Callable[[Any], Any] = lambda request: request,
        lost: tuple[int, int, type] | None = None,
    ) -> None:
        victims, message, change = told
        super().__init__(world, victims, tag_of(message), change)
        self.refused: set[tuple[int, str, int | None]] = set()
        """What server and aggregators refuse, and clients that these leave out for two uploads: (who, step, whose)."""
        self._liar, self._sent, self._more, self._made, self._lost = liar, sent, more, made, lost
        self._result, self._outcome, self._declared = result, outcome, declared

    def new_server(self, journal: Journal) -> ServerSession:
        """The server, watched."""
        server = super().new_server(journal)
        writing, declaring = server.write, server._declare

        async def declare(ready: Any) -> None:
            asking = ready.request
            ready.request = lambda identity: self._declared(asking(identity))
            await declaring(ready)

        server.write = lambda result: self._outcome(writing(self._result(result)))  # type: ignore[method-assign]
        server._declare = declare  # type: ignore[method-assign]
        self._watch(SERVER_INDEX, server, "submit", "upload")
        return server

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """An aggregator's uploads, watched."""
        work = super().new_work(member, journal)
        self._watch(member, work, "upload")
        return work

    def _watch(self, receiver: int, party: Any, *names: str) -> None:
        """Change what the liar sends to a party, note what the party refuses, and change what the server answers."""

        def watched(taking: Callable[..., Any]) -> Callable[..., Any]:
            async def take(member: int, frame: bytes, *parts: Any) -> bytes:
                step, is_liar = peek(frame).step, member == self._liar
                if self._lost is not None and (member, receiver, step) == (*self._lost[:2], tag_of(self._lost[2])):
                    return b""
                if is_liar and self._sent is not None and step == tag_of(self._sent[0]):
                    frame = self._sent[1](frame)
                with self._noting(receiver, step):
                    answer: bytes = await taking(member, frame, *parts)
                if is_liar and self._more is not None and step == tag_of(self._more[0]):
                    content = [parts_of(self._more[2])] if parts else []
                    with contextlib.suppress(ProtocolViolation), self._noting(receiver, step):
                        await taking(member, self._more[1](frame), *content)
                is_lie = answer and member in self._victims and peek(answer).step == self._step
                return signed_again(self.world, answer, self._change) if is_lie else answer

            return take

        for name in names:
            setattr(party, name, watched(getattr(party, name)))

    @contextmanager
    def _noting(self, party: int, step: str) -> Iterator[None]:
        """Note a refusal, which goes on to whoever called."""
        try:
            yield
        except (ProtocolViolation, MalformedMessage) as error:
            self.refused.add((party, step, error.culprit if isinstance(error, ProtocolViolation) else None))
            raise

    def _session(self, member: int, journal: Journal, own: Any = None, **work: Any) -> MemberSession:
        session = super()._session(member, journal, own, **work)
        keeping, made, context = session._keep, self._made, self.world.setup.context

        def keep(transition: Transition) -> Any:
            if member == self._liar and made is not None:
                if isinstance(transition.state, ReadyState) and own is not None:
                    transition = transition.state.protect(context, session._me, context.ring.encode(own.vector()))
                transition = made(session, transition)
            if isinstance(transition.state, SetAgreed):
                self.refused |= {(member, tag_of(SetLists), each.one.client) for each in transition.state.conflicts}
            return keeping(transition)

        session._keep = keep  # type: ignore[method-assign]
        return session


async def noticed(run: SessionRun, *liars: int, leaving: dict[int, str] | None = None) -> frozenset[Notice]:
    """Run a session with a fault of the liars in it; return what the honest parties notice, and what `verify` shows.

    Notices that name somebody count, and those that name nobody where there are no others.
    """
    found = _Found(run, frozenset(liars))
    with found.listening():
        ending = await run.run(leaving=leaving)
    found.look(ending)
    notices = found.notices()
    return notices if any(each.whose != NOBODY for each in notices) else notices | found.verified()


@dataclass
class _Found:
    """What a run's honest parties noticed: those who did, by message and by whose doing it is (None: nobody's)."""

    run: SessionRun
    liars: frozenset[int]
    by: defaultdict[tuple[str, int | None], set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.roster = self.run.world.setup.roster
        self.honest = frozenset(range(len(self.roster.members))) - self.liars

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note whom the server's warnings name, and in which step."""
        listener = logging.Handler()
        listener.emit = self.warned  # type: ignore[method-assign]
        log = logging.getLogger("secagg.server")
        log.addHandler(listener)
        try:
            yield
        finally:
            log.removeHandler(listener)

    def warned(self, said: logging.LogRecord) -> None:
        """Note whom a warning names."""
        for name in (found[1] for each in WARNINGS if (found := each.match(said.getMessage()))):
            self.add(SERVER_INDEX, self.closed, self.named(name))

    def look(self, ending: Ending) -> None:
        """Go through everything that there is to see."""
        refused: set[tuple[int, str, int | None]] = getattr(self.run, "refused", set())
        for party, step, culprit in refused:
            self.add(party, step, culprit)
        for body in self.heard(SERVER_INDEX):
            if body.step == tag_of(UploadHeader):
                for dealer in payload_of(body, UploadHeader).complaints:
                    self.add(body.sender, body.step, dealer)
        self.look_at_server(ending.server)
        for party, end in (ending.clients | ending.helpers).items():
            self.look_at_member(party, end)

    def add(self, party: int, step: str, culprit: int | None) -> None:
        """Note what a party noticed, unless it is a liar."""
        if party in self.honest:
            self.by[step, culprit].add(party)

    def records(self, party: int) -> tuple[Record, ...]:
        """A party's transcript."""
        return tuple(read_transcript(self.run.world.transcript(party), torn_tail_allowed=True))

    def heard(self, party: int) -> list[FrameBody]:
        """What a party was sent."""
        return [peek(record.content) for record in self.records(party) if record.kind == "received"]

    @property
    def closed(self) -> str:
        """The step that the server closed last."""
        return [record.content.decode() for record in self.records(SERVER_INDEX) if record.kind == "closed"][-1]

    def named(self, text: str) -> int | None:
        """The party with whose name a text begins."""
        found = re.match(r"[a-z]+(-[a-z]+)*(-\d+)?\b", text)
        names = [member.name for member in self.roster.members]
        return names.index(found[0]) if found and found[0] in names else None

    def look_at_server(self, end: Any) -> None:
        """The server says who is missing, or who is at fault; of who left it has the reason, which is not its own."""
        left = {body.sender for body in self.heard(SERVER_INDEX) if body.step == tag_of(Abort)}
        if isinstance(end, NotConfirmed):
            for missing in {self.named(name) for name in end.missing} - left:
                self.add(SERVER_INDEX, tag_of(Acknowledgement), missing)
        elif isinstance(end, SessionAborted):
            culprit = self.named(end.reason)
            if culprit not in left and (culprit is not None or not left):
                self.add(SERVER_INDEX, self.closed, culprit)

    def look_at_member(self, party: int, end: Any) -> None:
        """A client or helper leaves by itself, is told that it is too late, or waits in vain."""
        step = self.run.latest.get(party, "")
        if isinstance(end, Unconfirmed):
            self.add(party, tag_of(Confirmation), None)
        elif isinstance(end, NotNow | LeftBehind):
            self.add(party, step, None)
        elif isinstance(end, SessionAborted):
            culprit = self.named(end.reason.removeprefix("this party leaves: "))
            if step != tag_of(Abort) or culprit == SERVER_INDEX:
                self.add(party, step, culprit)

    def notices(self) -> frozenset[Notice]:
        """Those that name somebody; if none does, all."""
        named = {key: parties for key, parties in self.by.items() if key[1] is not None}
        return frozenset(
            Notice(who, step, self.word(culprit))
            for (step, culprit), parties in (named or self.by).items()
            for who in self.words(parties)
        )

    def word(self, party: int | None) -> str:
        """What a party is called in a table; whoever is blamed and honest is told from a liar."""
        if party is None:
            return NOBODY
        role = self.roster.role(party).replace("-", " ")
        return role if party in self.liars else f"{role}, which is honest"

    def words(self, parties: set[int]) -> Iterator[str]:
        """What the parties that noticed are called, by their roles."""
        for role in dict.fromkeys(self.roster.role(party) for party in sorted(parties)):
            some = [party for party in parties if self.roster.role(party) == role]
            whole = [party for party in self.honest if self.roster.role(party) == role]
            if role in ("server", "key-holder"):
                yield role.replace("-", " ")
            elif len(some) == len(whole) > 1:
                yield f"every {role}"
            else:
                yield f"that {role}" if len(some) == 1 else f"those {role}s"

    def verified(self) -> frozenset[Notice]:
        """What `verify` says of the honest parties' transcripts together; if nothing, what of each liar's."""
        together = self.refusals(self.honest, "`verify`")
        alone = (self.refusals({liar}, f"`verify` of the {self.word(liar)}'s transcript") for liar in self.liars)
        return together or frozenset().union(*alone)

    def refusals(self, parties: Collection[int], who: str) -> frozenset[Notice]:
        """Whom `verify` names for which message; a transcript of one author names this one where it names nobody."""
        paths = {self.run.world.transcript(party): party for party in sorted(parties)}
        paths = {path: party for path, party in paths.items() if path.exists()}
        found = set()
        for said, party in zip(verify_together(list(paths), NOTHING_BROUGHT), paths.values(), strict=True):
            if isinstance(said, TranscriptInvalid) and said.record < len(self.records(party)):
                culprit = self.named(said.problem)
                record = self.records(party)[said.record]
                step = peek(record.content).step if record.kind in ("sent", "received") else record.kind
                found.add(Notice(who, step, self.word(party if culprit is None else culprit)))
        return frozenset(found)
