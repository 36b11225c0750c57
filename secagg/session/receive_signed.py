"""Receive frames: accept those alone that the sender signed for this receiver and session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from secagg.errors import MalformedMessage, ProtocolViolation, ServerAway
from secagg.session.round_setup import RoundSetup
from secagg.transcript import FrameBody, open_frame
from secagg.wire import tag_of

_AGAIN_SECONDS = 0.5


class Connection(Protocol):
    """Connection as a session needs it (`transport.Link` is one)."""

    @property
    def patience(self) -> float:
        """For how many seconds to go on asking in vain."""

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or nothing."""

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Send a frame and the part of a file that it announces; return the frame that answers, or nothing."""

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame of one step; nothing when it does not come within `seconds`."""

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Have `take` take the bytes start … length − 1 of what has this digest, in order and each once."""


@dataclass(frozen=True)
class SignedReceiver:
    """Receives signed frames for the party `receiver`. `progress` takes a line about each other answer."""

    setup: RoundSetup
    receiver: int
    progress: Callable[[str], None]

    async def receive_signed(
        self, sender: int, expected: tuple[type, ...], ask: Callable[[], Awaitable[bytes]], patience: float
    ) -> tuple[bytes, FrameBody]:
        """The sender's frame of an expected step, and its body.

        Whatever else `ask` brings (damage, another's frame, one of another session or step) may be the doing of whoever
        carries the bytes, so it is asked again. Raises ServerAway when that is all for `patience` seconds.
        """
        clock, steps = asyncio.get_running_loop().time, [tag_of(each) for each in expected]
        name, failing_since = self.setup.roster.name(sender), None
        while True:
            answer = await ask()
            try:
                body = open_frame(answer, self.setup.roster, self.setup.context.round_digest, sender, self.receiver)
                if body.step in steps:
                    return answer, body
                problem = f"sends a {body.step} while {steps[0]} is awaited"
            except (MalformedMessage, ProtocolViolation) as error:
                problem = str(self.setup.roster.name_culprit(error))
            if failing_since is None:
                failing_since = clock()
                self.progress(f"{name}: {problem}; asking again for up to {patience:.0f} s")
            if clock() > failing_since + patience:
                raise ServerAway(patience, name, problem)
            await asyncio.sleep(_AGAIN_SECONDS)
