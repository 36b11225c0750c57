"""Reception of frames: only those count that the sender signed for this receiver and this session."""

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
    """The connection to another party that a session needs; `transport.Link` is one."""

    @property
    def patience(self) -> float:
        """Seconds for which a failing request is repeated."""

    async def submit(self, frame: bytes) -> bytes:
        """Send a frame; return the frame that answers it, or no bytes."""

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Send a frame and the part of a file that it announces; return the frame that answers it, or no bytes."""

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's frame of one step; return no bytes if it does not come within `seconds`."""

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Read the bytes from `start` to `length` − 1 of the file with this digest; `take` gets each once, in order."""


@dataclass(frozen=True)
class SignedReceiver:
    """A receiver of signed frames for the party `receiver`; `progress` is called with a line about each bad answer."""

    setup: RoundSetup
    receiver: int
    progress: Callable[[str], None]

    async def receive_signed(
        self, sender: int, expected: tuple[type, ...], ask: Callable[[], Awaitable[bytes]], patience: float
    ) -> tuple[bytes, FrameBody]:
        """Repeat the request `ask` until `sender` answers with an expected step; return the frame and its body.

        Whatever else `ask` brings (damage, another's frame, one of another session or step) may be the doing of whoever
        carries the bytes, so it is asked again. Raises ServerAway when that is all for `patience` seconds.
        """
        steps, failing_since = [tag_of(each) for each in expected], None
        while True:
            answer = await ask()
            try:
                body = open_frame(answer, self.setup.roster, self.setup.context.round_digest, sender, self.receiver)
                if body.step in steps:
                    return answer, body
                problem = f"sends a {body.step} while {steps[0]} is awaited"
            except (MalformedMessage, ProtocolViolation) as error:
                problem = str(self.setup.roster.name_culprit(error))
            failing_since = await self.wait_to_ask(sender, problem, patience, failing_since)

    async def wait_to_ask(self, sender: int, problem: str, patience: float, since: float | None) -> float:
        """Wait before a failed request is repeated; return the time of its first failure. Raises ServerAway."""
        name, clock = self.setup.roster.name(sender), asyncio.get_running_loop().time
        if since is None:
            since = clock()
            self.progress(f"{name}: {problem}; asking again for up to {patience:.0f} s")
        if clock() > since + patience:
            raise ServerAway(patience, name, problem)
        await asyncio.sleep(_AGAIN_SECONDS)
        return since
