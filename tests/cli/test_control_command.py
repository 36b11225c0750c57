"""`secagg control`: a local socket for the owner alone, and one line for whatever cannot be done."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from secagg.cli.control import SOCKET_FILE, ask, listening
from secagg.errors import BadInput
from tests.cli.command import Command


class Operated:
    """A wait that writes down what its operator wants."""

    def __init__(self) -> None:
        self.wanted: list[object] = []

    def go_on(self) -> str:
        """Refuse, as a wait does that too few have answered."""
        raise BadInput("too few have answered: alice", remedy="wait")

    def extend(self, seconds: int) -> str:
        """Take the seconds."""
        self.wanted.append(seconds)
        return f"{seconds} s left"

    async def cancel(self) -> str:
        """Take the end."""
        self.wanted.append("end")
        return "cancelled"


@pytest.fixture
async def operated(tmp_path: Path) -> AsyncIterator[Operated]:
    """A party that listens in a folder."""
    found = Operated()
    async with listening(tmp_path, lambda: found, print):
        yield found


async def test_socket_is_its_owners_alone(operated: Operated, tmp_path: Path) -> None:
    """The socket is read and written by its owner alone, while the party runs."""
    assert (tmp_path / SOCKET_FILE).stat().st_mode & 0o777 == 0o600


async def test_requests_are_carried_out(operated: Operated, tmp_path: Path) -> None:
    """A request reaches the wait, and its answer comes back; a refusal comes back with its reason and remedy."""
    assert await asyncio.to_thread(ask, tmp_path, command="extend", seconds=90) == "90 s left"
    assert await asyncio.to_thread(ask, tmp_path, command="cancel") == "cancelled"
    with pytest.raises(BadInput, match="refused: too few have answered: alice; wait"):
        await asyncio.to_thread(ask, tmp_path, command="go-on")
    assert operated.wanted == [90, "end"]


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o620, 0o777])
async def test_socket_that_others_may_use_obeys_nobody(operated: Operated, tmp_path: Path, mode: int) -> None:
    """Once others may use the socket, no request is carried out."""
    (tmp_path / SOCKET_FILE).chmod(mode)
    with pytest.raises(BadInput, match=r"others than its owner may use .*chmod 600"):
        await asyncio.to_thread(ask, tmp_path, command="cancel")
    assert operated.wanted == []


@pytest.mark.parametrize(
    "request_line",
    [
        b"",
        b"\n",
        b"cancel\n",
        b"[]\n",
        b'{"command": "stop"}\n',
        b'{"command": "cancel", "seconds": 5}\n',
        b'{"command": "cancel", "command": "cancel"}\n',
        b'{"command": "extend", "seconds": "5"}\n',
        b'{"command": "extend", "seconds": true}\n',
        b'{"command": "extend"}\n',
        b'{"command": "cance',
        b"\xff\n",
        b'{"command": "' + b"x" * 10_000 + b'"}\n',
    ],
)
async def test_other_requests_are_refused(operated: Operated, tmp_path: Path, request_line: bytes) -> None:
    """A request that is none is refused with a sentence, and changes nothing."""

    def send() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(10)
            connection.connect(str(tmp_path / SOCKET_FILE))
            connection.sendall(request_line)
            connection.shutdown(socket.SHUT_WR)
            return connection.makefile("rb").read()

    answer = json.loads(await asyncio.to_thread(send))
    assert answer["done"] is False
    assert "cannot be read" in answer["said"]
    assert operated.wanted == []


async def test_socket_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    """A socket that a killed process has left does not keep the next one from listening; at the end it is gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(tmp_path / SOCKET_FILE))
    found = Operated()
    async with listening(tmp_path, lambda: found, print):
        assert await asyncio.to_thread(ask, tmp_path, command="cancel") == "cancelled"
    assert not (tmp_path / SOCKET_FILE).exists()


def test_silent_connection_ends_quietly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A connection over which nothing was asked is closed with the party, and nothing of it is logged."""

    async def party() -> None:
        async with listening(tmp_path, Operated, print):
            _, writer = await asyncio.open_unix_connection(tmp_path / SOCKET_FILE)
            await asyncio.sleep(0.05)
        writer.close()

    asyncio.run(party())
    assert caplog.messages == []


async def test_party_runs_without_a_socket(tmp_path: Path) -> None:
    """Where no socket can be made, such as in a path that is too long, the party says so and runs all the same."""
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    said: list[str] = []
    async with listening(deep, Operated, said.append):
        pass
    assert len(said) == 1
    assert "secagg control cannot reach this process" in said[0]


async def test_party_runs_with_a_folder_in_the_sockets_place(tmp_path: Path) -> None:
    """A folder of the socket's name is left alone, and the party says that it has no socket."""
    (tmp_path / SOCKET_FILE).mkdir()
    said: list[str] = []
    async with listening(tmp_path, Operated, said.append):
        assert "secagg control cannot reach this process" in said[0]


@pytest.mark.parametrize(
    "answer", [b"null\n", b"{}\n", b"[1]\n", b'{"done": true}\n', b'{"done": 1, "said": "x"}\n', b""]
)
async def test_strange_answers_are_refused(tmp_path: Path, answer: bytes) -> None:
    """Another program's answer at the socket is refused in a sentence."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(speak, tmp_path / SOCKET_FILE):
        with pytest.raises(BadInput, match="no server or aggregator answers"):
            await asyncio.to_thread(ask, tmp_path, command="go-on")


@pytest.mark.parametrize("words", [["go-on"], ["extend", "60"], ["cancel"]])
def test_nobody_there_is_one_line(secagg: Command, tmp_path: Path, words: list[str]) -> None:
    """Without a running party the command exits with 2 and one line with a remedy."""
    said = secagg("control", *words, "--state", tmp_path)
    assert said.code == 2
    assert "no server or aggregator answers" in said.complaint
    assert "--state" in said.complaint


def test_extension_is_a_number(secagg: Command, tmp_path: Path) -> None:
    """Seconds that are no number are refused with the command's own words."""
    said = secagg("control", "extend", "soon", "--state", tmp_path)
    assert said.code == 2
    assert "whole number" in said.complaint
