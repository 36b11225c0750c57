"""A server and its members inside one asyncio program, over gRPC with mutual TLS."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

import secagg
from secagg.errors import BadInput
from tests.cli.command import MEMBERS, SERVER, Command, command, found


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Path:
    """A consortium with keys, a plan, policies and records."""
    run: Command = command(monkeypatch, capsys)
    found(run, tmp_path / "home")
    return tmp_path / "home"


def member(home: Path, name: str, address: str, **changes: object) -> secagg.Client:
    """A client as the guide makes one."""
    own = home / name
    given = {"data": own / "records.npz", "policy": own / "policy.toml", "state": own / "state", "tls": own}
    return secagg.Client(home / "plan.json", server=address, **{**given, **changes})


async def test_server_and_clients_run_in_one_program(home: Path) -> None:
    """All end with the same sum and head, the head's card names who signed, and the head predicts."""
    said: list[str] = []
    plan, own = home / "plan.json", home / SERVER
    async with secagg.Server(plan, state=own / "state", tls=own, said=said.append) as server:
        clients = [member(home, name, server.address) for name in MEMBERS]
        result, *others = await asyncio.gather(server.run(), *(client.run() for client in clients))
    assert said[0] == f"listening on {server.address}"
    assert result.members == MEMBERS
    for other in others:
        assert (other.aggregate_sha256, other.head_sha256) == (result.aggregate_sha256, result.head_sha256)
        assert other.head.read_bytes() == result.head.read_bytes()
    for each in (result, others[0]):
        card = json.loads(each.head.with_name("model_card.json").read_text())
        assert set(card["signed_by"]) == {SERVER, *MEMBERS}
        assert (card["head_sha256"], card["simulated"], card["metrics"]) == (result.head_sha256, False, None)
    predictions = secagg.Predictor.open(result.head).predict(str(home / MEMBERS[0] / "records.npz"))
    assert predictions.probabilities.shape == (20, 2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tls": SERVER}, "is no client in the roster"),
        ({"aggregators": {"eve": "a:1"}}, "the plan's aggregators are none"),
        ({"data": "absent.npz"}, "cannot read absent.npz"),
    ],
)
def test_client_that_cannot_take_part_is_refused_when_it_is_made(home: Path, changes: dict, said: str) -> None:
    """Another role's keys, aggregators that the plan has not, no data: before anything connects."""
    placed = {name: home / value if name == "tls" else value for name, value in changes.items()}
    with pytest.raises(BadInput, match=said):
        member(home, MEMBERS[0], "127.0.0.1:1", **placed)


async def test_server_that_cannot_listen_is_refused(home: Path) -> None:
    """No address, and a member's keys."""
    own = home / SERVER
    with pytest.raises(BadInput, match="no address to listen on"):
        async with secagg.Server(home / "plan.json", state=own / "state", tls=own, listen="here"):
            pass
    with pytest.raises(BadInput, match="is no server in the roster"):
        secagg.Server(home / "plan.json", state=own / "state", tls=home / MEMBERS[0])


async def test_records_that_the_plan_refuses_are_refused_before_joining(home: Path) -> None:
    """A member whose data have NaN reads so with its row."""
    np.savez(home / "bad.npz", features=np.full((4, 3), np.nan), labels=np.arange(4) % 2)
    with pytest.raises(BadInput, match="NaN"):
        member(home, MEMBERS[0], "127.0.0.1:1", data=home / "bad.npz")
