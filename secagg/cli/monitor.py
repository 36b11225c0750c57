"""Watch a party while its command runs, for metrics, JSON logs and a hook: certificates, its end, a server's step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer

from secagg.agreement.plan import Plan, read_plan
from secagg.cli.console import Speaker
from secagg.cli.hook import Hook
from secagg.cli.metrics import MetricsAddress, metrics_served
from secagg.errors import NotConfirmed, NotNow, SecaggError, SessionAborted, Unconfirmed
from secagg.session.member_session import VECTOR_FILE
from secagg.session.staging import vector_path
from secagg.session.status import SessionStatus
from secagg.system.files import write_synced
from secagg.transcript import FILE_NAME
from secagg.transport import Credentials, read_credentials

T = TypeVar("T")
LOOK_SECONDS = 1.0
WAITING_SECONDS = 60.0
"""Seconds after which a step that has not changed is an event `waiting`."""
STALE_SECONDS = 30.0
"""Seconds without a look after which /healthz answers that the party hangs."""
CERTIFICATE_SECONDS = 3600.0
LAST_END_FILE = "last-end.json"
"""How and when a party's last command ended, in its state folder."""
_ENDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((NotConfirmed, Unconfirmed), "unconfirmed"),
    ((SessionAborted,), "aborted"),
    ((NotNow,), "not-now"),
    ((asyncio.CancelledError, KeyboardInterrupt), "stopped"),
)
_NAMED = 50
"""The most awaited parties that an event or /healthz names."""

MetricsOption = Annotated[
    MetricsAddress | None,
    typer.Option(
        "--metrics",
        metavar="[HOST:]PORT",
        parser=MetricsAddress.read,
        help="Serve /metrics (Prometheus) and /healthz there, without authentication; a PORT alone: on 127.0.0.1.",
    ),
]
HookOption = Annotated[
    Hook | None,
    typer.Option(
        "--hook",
        metavar="COMMAND",
        parser=Hook,
        help="Run this command, without a shell, with a JSON event on stdin: waiting, certificate, and how it ended.",
    ),
]


@dataclass(frozen=True)
class Position:
    """A server's position in its plan: round, step, the parties that it waits for, and when the step closes.

    `step` is the message that it waits for. `closes` is in seconds since 1970, None where unknown. The bytes are those
    of the round's files.
    """

    round: int
    rounds: int
    step: str
    waiting_for: tuple[str, ...]
    closes: float | None
    message_bytes: int
    vector_bytes: int


Look = Callable[[], Awaitable[Position | None]]


def position_of(status: SessionStatus) -> Position:
    """Return a server's position from its session's status."""
    setup, sizes = status.setup, _sizes(status.folder)
    return Position(setup.number, setup.rounds, status.step, status.waiting_for, status.closes, *sizes)


def _sizes(folder: Path) -> tuple[int, int]:
    """Return the bytes of a round's transcript and of its protected vectors."""
    vectors = [*vector_path(folder, 0).parent.glob("*"), folder / VECTOR_FILE]
    return (folder / FILE_NAME).stat().st_size, sum(path.stat().st_size for path in vectors if path.exists())


class Monitor:
    """Watches one party inside `async with`: it looks at its position each second, and runs the hook on events.

    A server alone has a position. Nothing that fails here ends the session. When the party ends, the file
    `last-end.json` in its state folder says how. Raises BadInput, before anything is sent, for metrics that cannot be
    served.
    """

    def __init__(
        self,
        speaker: Speaker,
        credentials: Credentials,
        plan: Plan,
        state: Path,
        metrics: MetricsAddress | None,
        hook: Hook | None,
    ) -> None:
        self._speaker, self._credentials, self._plan, self._state = speaker, credentials, plan, state
        self._metrics, self._hook = metrics, hook
        self._look: Look | None = None
        self._position: Position | None = None
        self._looked = time.monotonic()
        self._days: dict[str, int] = {}
        self._last_end = _read_last_end(state)
        self._open = AsyncExitStack()

    def watch(self, look: Look) -> Self:
        """Set the function that returns the server's position; return this monitor, for `async with`."""
        self._look = look
        return self

    async def __aenter__(self) -> Self:
        """Serve metrics, and begin to look."""
        if self._metrics is not None:
            self._open.enter_context(metrics_served(self._metrics, self.facts))
            self._speaker.say(f"metrics on http://{self._metrics}/metrics")
        task = asyncio.create_task(self._run())
        self._open.push_async_callback(_end_task, task)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Stop, note how the party ended, and run the hook for that."""
        await self._open.aclose()
        if error is None and self._position is not None:  # a party that is done waits for nobody
            self._position = replace(self._position, step="", waiting_for=(), closes=None)
        self._last_end = {"end": _name_of(error), "seconds": time.time(), "plan": self._plan.digest.hex()}
        with contextlib.suppress(OSError):
            write_synced(self._state / LAST_END_FILE, json.dumps(self._last_end).encode())
        self._send(self._last_end["end"], "ended without an error" if error is None else str(error) or "stopped")
        if self._hook is not None:
            await asyncio.to_thread(self._hook.finish)

    def facts(self) -> dict[str, Any]:
        """Return what /healthz says, as JSON values; `ok` is whether the party still looks at its own position."""
        where = self._position
        return {
            "ok": time.monotonic() - self._looked < STALE_SECONDS,
            "party": self._credentials.name,
            "role": self._credentials.roster.role(self._credentials.index),
            "plan": self._plan.digest.hex(),
            "round": where and where.round,
            "rounds": where and where.rounds,
            "step": where and where.step,
            "waiting_for": list(where.waiting_for[:_NAMED]) if where is not None else [],
            "awaited": len(where.waiting_for) if where is not None else None,
            "seconds_left": where and where.closes and round(where.closes - time.time()),
            "message_bytes": where and where.message_bytes,
            "vector_bytes": where and where.vector_bytes,
            "certificate_days": self._days,
            "last_end": self._last_end,
        }

    async def _run(self) -> None:
        since, warned, checked = time.monotonic(), False, -CERTIFICATE_SECONDS
        while True:
            before = self._position
            with contextlib.suppress(SecaggError, OSError):  # what cannot be read now is read again
                if time.monotonic() - checked >= CERTIFICATE_SECONDS:
                    checked = time.monotonic()
                    self._check_certificates()
                self._position = await self._look() if self._look is not None else None
            now = self._looked = time.monotonic()
            where = self._position
            if where is None or before is None or (where.round, where.step) != (before.round, before.step):
                since, warned = now, False
            elif now - since >= WAITING_SECONDS and not warned:
                warned = True
                self._send("waiting", f"the step {where.step} has waited for {WAITING_SECONDS:.0f} s")
            if where is not None:
                self._speaker.context |= {"round": where.round, "step": where.step}
            if self._hook is not None:
                self._hook.reap()
            await asyncio.sleep(LOOK_SECONDS)

    def _check_certificates(self) -> None:
        before, ends = self._days, self._credentials.ends()
        self._days = {end.file.name: end.days for end in ends}
        for end in ends:
            if end.is_near and before.get(end.file.name) != end.days:
                self._send("certificate", end.warning())

    def _send(self, event: str, text: str) -> None:
        if self._hook is not None:
            self._hook.run({"event": event, "time": datetime.now(UTC).isoformat(), "text": text, **self.facts()})


def name_in_log(speaker: Speaker, plan: Path, tls: Path) -> None:
    """Add the party and its plan to every line of a log in JSON, as far as their files can be read."""
    with contextlib.suppress(SecaggError):  # which the command itself reports
        speaker.context["party"] = read_credentials(tls).name
    with contextlib.suppress(SecaggError):
        if plan.is_file():  # a pipe can be read once
            speaker.context["plan"] = read_plan(plan).digest.hex()


def _name_of(error: BaseException | None) -> str:
    """Return one word for how a party's command ended."""
    for kinds, name in _ENDS:
        if isinstance(error, kinds):
            return name
    return "done" if error is None else "failed"


def _read_last_end(state: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((state / LAST_END_FILE).read_bytes())
        return {"end": str(found["end"]), "seconds": float(found["seconds"]), "plan": str(found["plan"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


async def _end_task(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it has ended, whatever it raises."""
    task.cancel()
    await asyncio.wait({task})


def run_until_stopped(party: Coroutine[Any, Any, T], stopping: Callable[[], None] = lambda: None) -> T:
    """Run a party to its end. On SIGTERM call `stopping`, and stop at once with all kept: NotNow, exit code 75."""

    async def run() -> T:
        task, stopped = asyncio.ensure_future(party), asyncio.Event()

        def stop() -> None:
            stopped.set()
            stopping()
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        try:
            return await task
        except asyncio.CancelledError:
            if not stopped.is_set():
                raise
            raise NotNow("stopped by SIGTERM, with all that was done kept") from None

    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(run())
    finally:
        signal.signal(signal.SIGTERM, before)  # the loop's end has set the default, which kills
