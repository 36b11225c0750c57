"""Parties that others call, as the transport calls them: they may be killed and started again between two calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import NotNow, SecaggError, ServerAway
from tests.worlds.crashes import Crash, Fuse

CHUNK = 40


@dataclass
class Life:
    """One life of a party: what answers its calls, its work, and how its files are closed when it ends.

    `is_dead` says whether it died unnoticed: what it ended on is then held by no record.
    """

    called: Any
    work: Coroutine[Any, Any, Any]
    close: Callable[[], None]
    is_dead: Callable[[], bool] = lambda: False


class Host:
    """A party that others call. Killed, it takes along every call that it is answering, and begins its next life."""

    def __init__(self, member: int, begin: Callable[[], Life]) -> None:
        self.session: Any = None
        self.is_over = False
        self.is_gone = False
        self.is_stopped = False
        self.lives = 0
        self._member = member
        self._begin = begin
        self._calls: set[asyncio.Future[Any]] = set()
        self._life: Life | None = None
        self._running: asyncio.Task[Any] | None = None
        self._revived: asyncio.Task[Any] | None = None

    async def live(self) -> Any:
        """The party's whole session, started again whenever it was killed."""
        while True:
            self.is_over = False
            self.lives += 1
            try:
                life = self._life = self._begin()
                self.session = life.called
                self._running = asyncio.ensure_future(life.work)
                outcome = await self._running
                if self._life is life and not life.is_dead():
                    return outcome
                self._bury()
            except (Crash, asyncio.CancelledError):
                self._bury()
                task = asyncio.current_task()
                if self.is_stopped or (task is not None and task.cancelling()):
                    raise
            except Left:
                self.is_gone = True
                raise
            finally:
                self.is_over = True

    async def call(self, make: Callable[[Any], Awaitable[Any]]) -> Any:
        """Ask the party as the transport would: again when it died; a refusal ends nothing, and is not waited out."""
        while True:
            while self.session is None and not self.is_stopped and not self.is_gone:
                if self.is_over:
                    self.is_over, self._revived = False, asyncio.ensure_future(self.live())
                await asyncio.sleep(0)
            if self.is_gone:
                raise ServerAway(0)
            if self.session is None:
                raise asyncio.CancelledError
            call = asyncio.ensure_future(make(self.session))
            self._calls.add(call)
            try:
                return await call
            except Crash:
                await self.kill()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not call.cancelled() or (task is not None and task.cancelling()):
                    raise
            except NotNow as error:
                if self._member == SERVER_INDEX or self.is_over:
                    raise ServerAway(0, said=error.problem) from None
                await asyncio.sleep(0.001)  # an aggregator whose collection has not begun is asked again
            except SecaggError as error:
                raise ServerAway(0, said=str(error)) from None
            finally:
                self._calls.discard(call)

    async def kill(self) -> None:
        """The party's process is gone, with every call that it was answering."""
        self._bury()
        while self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.sleep(0)

    def _bury(self) -> None:
        self.session = None
        for call in list(self._calls):
            call.cancel()
        self.close()

    def close(self) -> None:
        """Close the party's files."""
        if self._life is not None:
            self._life.close()
            self._life = None


class Left(Exception):
    """A party vanished for good, as the test wanted."""


async def ending_of(party: Awaitable[Any]) -> Any:
    """How a party's work ended: what it returned, or the exception that said why not."""
    try:
        return await party
    except (SecaggError, Left) as error:
        return error


async def parts_of(content: bytes, fuses: tuple[Fuse, ...] = ()) -> AsyncIterator[bytes]:
    """A vector in small parts; whoever has a fuse may die between two of them."""
    size = max(CHUNK, len(content) // 8)
    for start in range(0, len(content), size):
        for fuse in fuses:
            fuse.burn("before a part")
        yield content[start : start + size]
