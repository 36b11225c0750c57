"""The server's protocol as a state machine without disk, network or clock, fed with messages and decisions.

The live server and `secagg verify` run this same object: one as things happen, the other from the transcript.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import COUNTS, MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection import SumToDeclare, SumToOpen
from secagg.protection.interface import ServerState, VectorState
from secagg.protection.messages import Abort, Acknowledgement, Announcement, Confirmation, Decline, Outcome, Taken
from secagg.session.round_setup import RoundSetup
from secagg.session.rounds import acknowledgement_of
from secagg.transcript import NOT_SEEN, FrameBody, Record, chain, open_frame, payload_of, peek
from secagg.wire import tag_of

_CANCELLED = "the server's operator has cancelled the session"


class ServerProtocol:
    """The server's protocol state in one session: the step, the messages received, and the messages to send."""

    def __init__(self, setup: RoundSetup) -> None:
        self._setup = setup
        self._step: ServerState | None = setup.protocol.begin_server(setup.context)
        self._taken: dict[str, dict[int, bytes]] = {}
        self._past: set[str] = set()
        self._reasons: dict[int, str] = {}
        self._declined: dict[int, str] = {}
        self._own_heads = {NOT_SEEN}
        self.client_heads: dict[int, bytes] = {}
        self.uploads: dict[int, Announcement] = {}
        self.upload_frames: dict[int, bytes] = {}
        self.acknowledgements: dict[int, bytes] = {}
        self._acknowledgement: Acknowledgement | None = None
        self.due: dict[str, Mapping[int, Any]] = {}
        self.recipients: dict[str, frozenset[int]] = {}
        self.sum_to_declare: SumToDeclare | None = None
        self.sum_to_open: SumToOpen | None = None
        self.outcome: Outcome | None = None
        self.failure: str | None = None

    @property
    def awaits(self) -> str:
        """Name of the message that the current step awaits; "Acknowledgement" after the last step."""
        return tag_of(Acknowledgement) if self._step is None else tag_of(self._step.awaits)

    @property
    def step_in_words(self) -> str:
        """The present step by its place, such as "step 2 of 5"; "outcome" after the last step."""
        names = [tag_of(each) for each in self._setup.protocol.server_steps]
        return "outcome" if self._step is None else f"step {names.index(self.awaits) + 1} of {len(names)}"

    @property
    def vectors(self) -> VectorState | None:
        """The current step's state, if that step collects clients' vectors; None in other steps."""
        return self._step if isinstance(self._step, VectorState) else None

    @property
    def seconds_to_wait(self) -> int:
        """Seconds that the present step may take, according to the plan.

        Where clients speak once, they come back for the outcome in their own time. Helpers may themselves wait
        as long for the clients before they answer. Before anybody acknowledges a census it checks all proofs.
        """
        plan, setup = self._setup.plan, self._setup
        if self._step is None:
            waiting = plan.join_seconds if setup.protection.speaks_once else plan.step_seconds
            return waiting + setup.context.proof_seconds
        joining = setup.join_seconds if self._step.is_joining else plan.step_seconds
        return joining + (plan.step_seconds if self._step.expected & set(setup.context.helpers) else 0)

    @property
    def is_joining(self) -> bool:
        """Whether parties may still join the session."""
        return self._step is not None and self._step.is_joining

    @property
    def is_complete(self) -> bool:
        """Whether the present step can be closed before its deadline."""
        return (self._step is not None and self._step.complete) or not self.awaited or bool(self._too_few_left)

    @property
    def is_short(self) -> bool:
        """Whether so few have answered the present step that closing it now would leave the session without a sum."""
        if self._step is None:
            return False
        answered = self._takers(self._taken_at(self.awaits).keys())
        asks_clients = bool(self._step.expected & set(self._setup.context.clients)) and not self._uploads_are_closed
        return self._step.is_short or (asks_clients and len(answered) < self._fewest)

    @property
    def awaited(self) -> AbstractSet[int]:
        """Roster indices of the parties that may still answer the present step: not answered, left or declined."""
        expected = self._step.expected if self._step is not None else self.recipients.get(tag_of(Outcome), ())
        left = self._taken_at(tag_of(Abort)).keys() | self._declined.keys()
        return set(expected) - self._taken_at(self.awaits).keys() - left

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Names of the parties that may still answer the present step."""
        return self._names_of(self.awaited)

    @property
    def declined(self) -> tuple[str, ...]:
        """Names of the clients that have declined the round and sent nothing since."""
        return self._names_of(self._declined)

    @property
    def answered(self) -> tuple[str, ...]:
        """Names of the parties that have answered the present step."""
        return self._names_of(self._taken_at(self.awaits))

    @property
    def present(self) -> frozenset[int]:
        """Roster indices of the parties that have sent a message and have not left the session."""
        return frozenset(self.client_heads) - frozenset(self._reasons)

    def is_left_out(self, member: int) -> bool:
        """Return whether the session goes on without a client, as the last message to clients was not sent to it."""
        clients = set(self._setup.context.clients)
        told = [who for who in self.recipients.values() if who & clients]
        return member in clients and bool(told) and member not in told[-1]

    def open(self, member: int, frame: bytes) -> FrameBody:
        """Decode and check a member's signed message (`frame`). Raises MalformedMessage or ProtocolViolation."""
        body = open_frame(frame, self._setup.roster, self._setup.context.round_digest, member, SERVER_INDEX)
        if body.seen not in self._own_heads:
            raise ProtocolViolation(member, "has seen another transcript than this server's")
        return body

    def is_wanted(self, member: int, frame: bytes, body: FrameBody) -> bool:
        """Return whether a member's message (`frame`) belongs to the current step and is new.

        False for an exact repetition and for a message of a step that is over (its sender learns at the next one
        whether it is still part of the session). Raises ProtocolViolation for a second, different frame, or for one
        of a step that has not begun.
        """
        if body.step == tag_of(Decline):
            return self._is_decline_wanted(member, body)
        known = self._taken_at(body.step).get(member)
        if known is not None:
            if known != hashlib.sha256(frame).digest():
                raise ProtocolViolation(member, f"sent a second, different {body.step}")
            return False
        if body.step in self._past:
            return False
        if body.step not in (self.awaits, tag_of(Abort)):
            raise ProtocolViolation(member, f"sent {body.step} while {self.awaits} is awaited")
        return True

    def _is_decline_wanted(self, member: int, body: FrameBody) -> bool:
        """Return whether a `Decline` changes anything. Raises ProtocolViolation for one after an upload, or of others.

        A second one, and one after the uploads, change nothing: a client declines a round once.
        """
        if member not in self._setup.context.identities:
            raise ProtocolViolation(member, "declines a round of which it is no client")
        if member in self.uploads:
            raise ProtocolViolation(member, "declines after its upload")
        if (body.head, body.seen) != (NOT_SEEN, NOT_SEEN):
            raise ProtocolViolation(member, "declines in a frame that belongs to its transcript")
        return self._step is not None and not self._uploads_are_closed and member not in self._taken_at(body.step)

    def take(self, member: int, frame: bytes, body: FrameBody) -> None:
        """Process a message that `is_wanted` approved. On MalformedMessage or ProtocolViolation nothing has changed."""
        step = self._step
        if body.step == tag_of(Decline):
            self._declined[member] = payload_of(body, Decline).reason
            self._taken.setdefault(body.step, {})[member] = hashlib.sha256(frame).digest()
            return
        if body.step == tag_of(Abort):
            self._reasons[member] = payload_of(body, Abort).reason
        elif step is None:
            receivers = self.recipients.get(tag_of(Outcome), frozenset())
            if member not in receivers or payload_of(body, Acknowledgement) != self._acknowledgement:
                raise ProtocolViolation(member, "acknowledges another outcome")
            self.acknowledgements[member] = frame
            self._confirm()
        else:
            payload = payload_of(body, step.awaits)
            step.accept(member, payload)
            if isinstance(payload, Announcement):
                self.uploads[member], self.upload_frames[member] = payload, frame
        self._declined.pop(member, None)
        self._taken.setdefault(body.step, {})[member] = hashlib.sha256(frame).digest()
        self.client_heads[member] = chain(body.head, "sent", frame)

    def is_acceptance(self, member: int, taken: Taken) -> bool:
        """Return whether the server may sign this acceptance to the member, as it is of the message that it took."""
        acceptance = self._setup.protocol.acceptance
        return acceptance is not None and self._taken_at(tag_of(acceptance.message)).get(member) == taken.frame

    @property
    def confirmations(self) -> tuple[int, int]:
        """The number of acknowledgements that count towards the confirmation, and the number that is enough."""
        confirmers, enough = self._setup.protocol.confirmers(self._setup.context)
        return len(confirmers & self.acknowledgements.keys()), enough

    @property
    def is_confirmed(self) -> bool:
        """Whether enough parties have acknowledged the outcome."""
        heard, enough = self.confirmations
        return heard >= enough

    @property
    def could_confirm(self) -> tuple[str, ...]:
        """Names of the parties that may still confirm an unconfirmed outcome; empty if too many have left for good."""
        confirmers, _ = self._setup.protocol.confirmers(self._setup.context)
        heard, enough = self.confirmations
        names = self._names_of(self.awaited & confirmers)
        return names if heard + len(names) >= enough else ()

    def _confirm(self) -> None:
        """Make the Confirmation due to everyone in the outcome, as soon as enough have acknowledged it."""
        confirmers, enough = self._setup.protocol.confirmers(self._setup.context)
        if self.is_confirmed and tag_of(Confirmation) not in self.recipients:
            frames = [self.acknowledgements[each] for each in sorted(confirmers & self.acknowledgements.keys())]
            self._owe(dict.fromkeys(self.recipients[tag_of(Outcome)], Confirmation(tuple(frames[:enough]))))

    def replay(self, record: Record) -> None:
        """Apply one record of this server's transcript again. Raises MalformedMessage, ProtocolViolation and others."""
        if record.kind == "received":
            sender = peek(record.content).sender
            self.take(sender, record.content, self.open(sender, record.content))
        elif record.kind == "closed":
            self.close()
        elif record.kind == "aborted":
            self.abort(record.content.decode(errors="replace"))
        elif record.kind == "sent":
            body = peek(record.content)
            self.sent(chain(body.head, "sent", record.content))
            if body.step == tag_of(Outcome):
                self.conclude(payload_of(body, Outcome))
            elif self.sum_to_declare is not None and body.step == tag_of(self.sum_to_declare.requests):
                self.declare(payload_of(body, self.sum_to_declare.requests))

    def close(self) -> None:
        """End the present step. If the session cannot go on, no step follows, and `failure` gives the reason."""
        if self._step is None:
            raise MalformedMessage("closed", "there is no step left to close")
        too_few = self._too_few_left
        self._past.add(self.awaits)
        if too_few:
            self._fail(too_few)
            return
        try:
            following, messages = self._step.close()
        except (SessionAborted, ProtocolViolation) as error:
            reason = error.reason if isinstance(error, SessionAborted) else str(self._setup.roster.name_culprit(error))
            self._fail(reason)
            return
        self._owe(messages)
        if isinstance(following, ServerState):
            self._step = following
        elif isinstance(following, SumToDeclare):
            self._step, self.sum_to_declare = None, following
        else:
            self._step, self.sum_to_open = None, following

    def _fail(self, reason: str) -> None:
        """End the session; its failure names the helpers that left and the clients that declined, too."""
        gone = (index for index in self._setup.context.helpers if index in self._reasons)
        helpers = (f"{self._setup.roster.name(index)} left: {self._reasons[index]}" for index in gone)
        declined = (f"declined: {', '.join(self.declined)}",) if self._declined else ()
        released = (f"{self.revealed}: {COUNTS}",) if self.revealed else ()
        self.abort("; ".join((reason, *helpers, *declined, *released)))

    def abort(self, reason: str) -> None:
        """End the session for this reason: no message of the present step is taken from now on."""
        self._past.add(self.awaits)
        self._step, self.failure = None, reason

    @property
    def cancellation(self) -> str:
        """Reason of the abort by which the server's operator ends the session; empty once a sum is being opened."""
        if self._step is None:
            return ""
        return f"{_CANCELLED}; {self.revealed}: {COUNTS}" if self.revealed else _CANCELLED

    @property
    def _too_few_left(self) -> str:
        """Reason why no sum can come about, as too many clients have declined or left; empty while one can.

        Where uploads go past the server it cannot know them, and leaves this to those who take them.
        """
        if not self._declined:
            return ""
        past_server = self._setup.protocol.handover is not None and bool(self.recipients)
        if self._step is None or self._uploads_are_closed or past_server:
            return ""
        clients = set(self._setup.context.clients)
        left = self._takers(self._step.expected & clients or clients)
        if len(left) >= self._fewest:
            return ""
        return f"only {len(left)} of {len(clients)} clients are left; at least {self._fewest} are needed"

    def _takers(self, clients: AbstractSet[int]) -> AbstractSet[int]:
        """Return those of the clients that have uploaded, or have neither declined nor left."""
        return clients - (self._declined.keys() | self._reasons.keys()) | (clients & self.uploads.keys())

    @property
    def _fewest(self) -> int:
        return self._setup.protocol.fewest(self._setup.context)

    @property
    def _uploads_are_closed(self) -> bool:
        return tag_of(self._setup.protocol.client.announcement) in self._past

    def _taken_at(self, step: str) -> Mapping[int, bytes]:
        """Return the digests of the messages that were taken for a step, by sender."""
        return self._taken.get(step, {})

    def _names_of(self, members: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._setup.roster.name(member) for member in sorted(members))

    @property
    def revealed(self) -> str:
        """Reason why a party may know the sum by now, even if it is unpublished; empty if no party can know it."""
        protection = self._setup.protocol
        step = tag_of(protection.reveals)
        is_revealed = step in self.recipients or bool(self._taken_at(step))
        return protection.revealed if is_revealed else ""

    def declare(self, request: Any) -> None:
        """Queue the message that asks another party to open the sum. Raises ProtocolViolation for a wrong `request`."""
        if self.sum_to_declare is None:
            raise MalformedMessage(tag_of(type(request)), "there is no sum to declare")
        self._step, messages = self.sum_to_declare.requested(request)
        self.sum_to_declare = None
        self._owe(messages)

    def conclude(self, outcome: Outcome) -> None:
        """Queue the outcome of the opened sum as a message to the clients in the sum and to the helpers."""
        self.outcome = outcome
        self._acknowledgement = acknowledgement_of(self._setup, outcome)
        self._owe(dict.fromkeys((*outcome.members, *self._setup.context.helpers), outcome))

    def _owe(self, messages: Mapping[int, Any]) -> None:
        """Make messages of one class due to their receivers, by index, who may then fetch them."""
        if messages:
            step = tag_of(type(next(iter(messages.values()))))
            self.due[step] = messages
            self.recipients[step] = frozenset(messages)

    def sent(self, head: bytes) -> None:
        """Record a hash-chain head of the server's transcript, which clients may countersign from now on."""
        self._own_heads.add(head)
