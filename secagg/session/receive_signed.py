"""Receipt of messages, which count only if the sender has signed them for this receiver and this session."""

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
    """Interface of a session's connection to another party, such as `transport.Link`."""

    @property
    def patience(self) -> float:
        """Seconds for which a failing request is repeated."""

    async def submit(self, frame: bytes) -> bytes:
        """Send a signed message (`frame`); return the signed answer, or no bytes."""

    async def upload(self, frame: bytes, vector: Path, start: int, size: int) -> bytes:
        """Send a signed message and the part of a file that it announces; return the signed answer, or no bytes."""

    async def fetch(self, round_digest: bytes, step: str, seconds: float) -> bytes:
        """Wait for the server's signed message of one step; return no bytes if it takes more than `seconds`."""

    async def read(
        self, round_digest: bytes, digest: bytes, start: int, length: int, take: Callable[[bytes], None]
    ) -> None:
        """Download bytes `start` to `length` − 1 of the file with this digest; `take` gets each byte once, in order."""


@dataclass(frozen=True)
class SignedReceiver:
    """A receiver of signed messages for the party `receiver`; `progress` gets a line when answers begin to be bad."""

    setup: RoundSetup
    receiver: int
    progress: Callable[[str], None]

    async def receive_signed(
        self, sender: int, expected: tuple[type, ...], ask: Callable[[], Awaitable[bytes]], patience: float
    ) -> tuple[bytes, FrameBody]:
        """Repeat `ask` until it brings an expected message signed by `sender`; return it, and its decoded body.

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
