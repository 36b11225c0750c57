"""What the server says in a session: signed, in its transcript before anybody can fetch it, and the same each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.signatures import SigningKey
from secagg.plan_facts.setup import SessionSetup
from secagg.session.server_protocol import ServerProtocol
from secagg.transcript import EVERYONE, NOT_SEEN, Journal, chain, make_body, peek, sign_frame
from secagg.wire import tag_of


class Outbox:
    """The frames that the server has sent, by step and receiver. `write` puts one into the transcript."""

    def __init__(
        self,
        setup: SessionSetup,
        identity: SigningKey,
        journal: Journal,
        protocol: ServerProtocol,
        write: Callable[[str, bytes], None],
    ) -> None:
        self._round_digest = setup.context.round_digest
        self._identity = identity
        self._journal = journal
        self._protocol = protocol
        self._write = write
        self._frames: dict[str, dict[int, bytes]] = {}

    def said(self, message: type, receiver: int) -> bytes | None:
        """The frame with such a message that is addressed to `receiver`."""
        return self._frames.get(tag_of(message), {}).get(receiver)

    def frame_for(self, member: int, step: str) -> bytes | None:
        """The frame of a step for a member: its own, or the one for everyone."""
        frames = self._frames.get(step, {})
        return frames.get(member) or frames.get(EVERYONE)

    def publish(self) -> None:
        """Sign and record every due frame that is not recorded yet: one to everyone when all say the same."""
        while self._protocol.due:
            step, messages = self._protocol.due.popitem()
            known = self._frames.get(step, {})
            same_to_all = len(messages) > 1 and len({id(message) for message in messages.values()}) == 1
            owed = {EVERYONE: next(iter(messages.values()))} if same_to_all else messages
            for receiver, message in owed.items():
                if receiver not in known:
                    self.send(receiver, message)

    def send(self, receiver: int, message: Any) -> bytes:
        """Sign and record one frame."""
        seen = self._protocol.client_heads.get(receiver, NOT_SEEN)
        body = make_body(self._round_digest, SERVER_INDEX, receiver, self._journal.head, seen, message)
        frame = sign_frame(self._identity, body)
        self._write("sent", frame)
        self._protocol.sent(chain(body.head, "sent", frame))
        self.keep(frame)
        return frame

    def keep(self, frame: bytes) -> None:
        """Take in a frame that the transcript holds, and the protocol knows or is told of."""
        body = peek(frame)
        self._frames.setdefault(body.step, {})[body.receiver] = frame
