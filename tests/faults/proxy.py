"""A TCP proxy between the parties of one session that delays, cuts, swallows and silently drops connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

_READ_BYTES = 1 << 16


class Trouble(StrEnum):
    """One thing that a network does to connections."""

    DELAY = "delay"
    """Every byte comes later, in both directions, from the beginning to the end."""
    CUT = "cut"
    """All connections are closed, several times."""
    HALF_OPEN_TO = "half-open towards the party"
    """For a while connections are accepted, and bytes from the caller are swallowed."""
    HALF_OPEN_FROM = "half-open from the party"
    """For a while connections are accepted, and bytes to the caller are swallowed."""
    DROP = "silent drop"
    """The connections that there are carry nothing from now on, and are never closed; new ones work."""


_SWALLOWED = {Trouble.HALF_OPEN_TO: {0}, Trouble.HALF_OPEN_FROM: {1}, Trouble.DROP: {0, 1}}


@dataclass(eq=False)
class _Pair:
    """One caller's connection and that to its target; of the directions in `swallowed` no byte arrives any more."""

    writers: tuple[asyncio.StreamWriter, ...]
    swallowed: set[int]


class Proxy:
    """Listeners in a thread of their own, each for one target; a context manager."""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._pairs: set[_Pair] = set()
        self._swallowed: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.carried = 0
        """Connections so far."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._close_all()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self, target: str) -> str:
        """Return an address that leads to the target from now on."""

        async def start() -> str:
            server = await asyncio.start_server(lambda *streams: self._carry(target, *streams), "127.0.0.1", 0)
            self._servers.append(server)
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result()

    def begin(self, trouble: Trouble) -> None:
        """Do to all connections what the trouble is; new ones are half-open, too, until `heal`."""
        self._loop.call_soon_threadsafe(self._begin, trouble)

    def heal(self) -> None:
        """Carry every byte of new connections; those that have lost some carry nothing more."""
        self._loop.call_soon_threadsafe(self._swallowed.clear)

    def _begin(self, trouble: Trouble) -> None:
        if trouble is Trouble.CUT:
            self._close_all()
        for pair in self._pairs:
            pair.swallowed |= _SWALLOWED.get(trouble, set())
        if trouble is not Trouble.DROP:
            self._swallowed |= _SWALLOWED.get(trouble, set())

    def _close_all(self) -> None:
        for pair in self._pairs:
            _abort(pair.writers)

    async def _carry(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry_both(target, reader, writer)
        except (OSError, asyncio.CancelledError):
            _abort((writer,))
        finally:
            self._tasks.discard(task)

    async def _carry_both(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        await asyncio.sleep(self._delay)
        there, further = await asyncio.open_connection(host, int(port))
        pair = _Pair((writer, further), set(self._swallowed))
        self._pairs.add(pair)
        self.carried += 1
        try:
            await asyncio.gather(self._copy(reader, further, pair, 0), self._copy(there, writer, pair, 1))
        finally:
            self._pairs.discard(pair)
            _abort(pair.writers)

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, pair: _Pair, direction: int
    ) -> None:
        """Copy one direction until it ends; each piece arrives `delay` seconds after it was sent."""
        loop = asyncio.get_running_loop()
        while data := await source.read(_READ_BYTES):
            if direction not in pair.swallowed:
                loop.call_later(self._delay, _write, target, data)
        if not pair.swallowed:  # otherwise the other side is not told
            await asyncio.sleep(self._delay)
            _abort(pair.writers)


def _write(target: asyncio.StreamWriter, data: bytes) -> None:
    if not target.is_closing():
        target.write(data)


def _abort(writers: Iterable[asyncio.StreamWriter]) -> None:
    for writer in writers:
        with contextlib.suppress(OSError, RuntimeError):
            writer.transport.abort()
