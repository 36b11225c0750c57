"""`secagg control`: end, extend or cancel the present wait of a server or aggregator that runs on this machine.

The running process listens on a Unix socket in its state folder, which its owner alone may use (mode 0600): the file's
permissions are the authorisation. A request and its answer are each one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from secagg.cli.console import Speaker
from secagg.cli.home import at_home
from secagg.cli.options import StateOption
from secagg.errors import BadInput, describe_error
from secagg.system.reading import each_field_once, parse_json

SOCKET_FILE = "control.sock"
_MOST_BYTES = 4096
_SECONDS = 10.0

app = typer.Typer(help="End, extend or cancel the present wait of a server or aggregator that runs on this machine.")


class Waiting(Protocol):
    """The interface of what an operator controls: the present wait of a server's or an aggregator's session."""

    def go_on(self) -> str:
        """End the wait, if the thresholds allow it; return the effect in words. Raises BadInput if they do not."""

    def extend(self, seconds: int) -> str:
        """Add seconds to the wait; return the effect in words. Raises BadInput for a number out of range."""

    async def cancel(self) -> str:
        """End the session for good; return the reason that all are sent. Raises BadInput where it is too late."""


@asynccontextmanager
async def listening(state: Path, current: Callable[[], Waiting], said: Callable[[str], None]) -> AsyncIterator[None]:
    """Listen for `secagg control` in this context; `current` returns the present wait, or raises BadInput.

    Without a socket (such as for too long a path) the party runs all the same, and `said` gets a warning.
    """
    path = state / SOCKET_FILE
    try:
        path.unlink(missing_ok=True)  # of a process that was killed: the state folder's lock lets no second one run
        server = await asyncio.start_unix_server(partial(_answer, path, current), path, limit=_MOST_BYTES)
        path.chmod(0o600)  # the umask has kept it from others before
    except OSError as error:
        said(f"warning: no socket {path} ({describe_error(error)}): secagg control cannot reach this process")
        yield
        return
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def _answer(
    path: Path, current: Callable[[], Waiting], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(_SECONDS):
            line = await reader.readline()  # first, as a socket closed before it is read loses the answer
        if path.stat().st_mode & 0o077:  # noqa: ASYNC240 (takes microseconds)
            raise BadInput(f"others than its owner may use {path}", remedy=f"chmod 600 {path}")
        content = parse_json(line.decode(), object_pairs_hook=each_field_once)
        answer = {"done": True, "said": await _carry_out(current(), content)}
    except asyncio.CancelledError:  # the party ends; asyncio would log the task of a silent connection as a failure
        writer.close()
        return
    except BadInput as error:
        answer = {"done": False, "said": str(error)}
    except (OSError, ValueError, TimeoutError):
        answer = {"done": False, "said": "the request cannot be read; use secagg control of the same version"}
    writer.write(json.dumps(answer).encode() + b"\n")
    writer.close()


async def _carry_out(waiting: Waiting, content: Any) -> str:
    match content:
        case {"command": "go-on"} if len(content) == 1:
            return waiting.go_on()
        case {"command": "extend", "seconds": int(seconds)} if len(content) == 2 and not isinstance(seconds, bool):
            return waiting.extend(seconds)
        case {"command": "cancel"} if len(content) == 1:
            return await waiting.cancel()
    raise ValueError("no command")


def ask(state: Path, **request: Any) -> str:
    """Send a request to the process that runs with this state folder; return its answer. Raises BadInput."""
    path = state / SOCKET_FILE
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            done, said = _read_answer(connection.makefile("rb").readline(_MOST_BYTES))
    except PermissionError:
        problem = f"{path} belongs to another user"
        raise BadInput(problem, remedy="run this as the user that runs the server") from None
    except (OSError, ValueError) as error:
        problem = f"no server or aggregator answers at {path} ({describe_error(error)})"
        raise BadInput(problem, remedy="give the --state folder of one that runs on this machine") from None
    if not done:
        raise BadInput(f"refused: {said}")
    return said


def _read_answer(line: bytes) -> tuple[bool, str]:
    match parse_json(line, object_pairs_hook=each_field_once):
        case {"done": bool(done), "said": str(said)}:
            return done, said
        case _:
            raise ValueError("no answer of secagg")


@app.command("go-on")
@at_home("state")
def go_on(speaker: Speaker, state: StateOption) -> None:
    """End the present wait now, without those who are missing; refused while too few have answered for a sum."""
    _tell(speaker, ask(state, command="go-on"))


@app.command()
@at_home("state")
def extend(
    speaker: Speaker,
    seconds: Annotated[int, typer.Argument(help="Seconds to add to this wait, a week at most in all.")],
    state: StateOption,
) -> None:
    """Add seconds to the present wait."""
    _tell(speaker, ask(state, command="extend", seconds=seconds))


@app.command()
@at_home("state")
def cancel(speaker: Speaker, state: StateOption) -> None:
    """End the session for good, by the server's signed abort to everybody; refused once a sum is being opened."""
    _tell(speaker, ask(state, command="cancel"))


def _tell(speaker: Speaker, said: str) -> None:
    speaker.result({"said": said}, said)
