"""At run time nothing reaches the network but what a command was told to connect to."""

import socket
from typing import Any

import pytest

from tests.cli.command import Command


class Reached(AssertionError):
    """An address that is not of this machine was asked for."""


@pytest.fixture
def _loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are not resolved, and connections leave this machine to nobody: either fails the test."""

    def resolve(host: Any, *_: object, **__: object) -> None:
        raise Reached(host)

    class Loopback(socket.socket):
        def connect(self, address: Any) -> None:
            if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "::1"):
                raise Reached(address)
            super().connect(address)

        connect_ex = connect  # type: ignore[assignment]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "socket", Loopback)


@pytest.mark.usefixtures("_loopback_alone")
def test_simulation_reaches_nobody(secagg: Command) -> None:
    """A whole simulation on a packaged data set resolves no name and connects to no other machine."""
    said = secagg("simulate", "--dataset", "breast-cancer", "--clients", "3", "--json", "-", "--quiet")
    assert said.code == 0, said.err


@pytest.mark.usefixtures("_loopback_alone")
def test_a_connection_to_elsewhere_would_be_found() -> None:
    """The fixture fails what would leave this machine: a name, and an address of documentation."""
    with pytest.raises(Reached):
        socket.create_connection(("example.org", 443))
    with pytest.raises(Reached), socket.socket() as reaching:
        reaching.connect(("192.0.2.1", 443))
