"""A server and its members inside one asyncio program, over gRPC with mutual TLS."""

import asyncio
import errno
import json
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg
from secagg.agreement.plan import read_plan
from secagg.data.arrays import dataset_of
from secagg.errors import BadInput, PlanRefused, SecaggError
from secagg.federation import endpoints
from secagg.transport import Link, read_credentials, serve
from secagg.transport.enrolment import renew_authority
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


async def test_answers_under_way_go_out_before_the_server_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has ended well still sends the answer of a call that it has taken, though that takes a while."""
    monkeypatch.setattr(endpoints, "ANSWERS_A_SECOND", 1)  # as slow as a server of a thousand clients
    own, asked = home / SERVER, asyncio.Event()

    async def late(*_: object) -> bytes:
        asked.set()
        await asyncio.sleep(1.5)
        return b"answer"

    async with secagg.Server(home / "plan.json", state=own / "state", tls=own) as server:
        monkeypatch.setattr(server.federation, "fetch", late)
        link = Link(read_credentials(home / MEMBERS[0]), server.address, 0.0)
        asking = asyncio.create_task(link.fetch(bytes(32), "Confirmation", 5.0))
        await asked.wait()
    async with link:
        assert await asking == b"answer"


async def test_waiting_calls_do_not_hold_up_the_end(home: Path) -> None:
    """A call that waits for a message is answered with none as the server ends, whatever time it has left."""
    own = home / SERVER
    async with secagg.Server(home / "plan.json", state=own / "state", tls=own) as server:
        digest = server.federation.stages[0].setup.context.round_digest
        waiting = asyncio.create_task(server.federation.fetch(1, digest, "Directory", 600.0))
        await asyncio.sleep(0)
    assert await asyncio.wait_for(waiting, 10) is None


async def test_the_log_says_whom_the_server_waits_for(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start of a step all who owe its message and the time left; after each message those who are left."""
    caplog.set_level("INFO", "secagg.server")
    own = home / SERVER
    async with secagg.Server(home / "plan.json", state=own / "state", tls=own) as server:
        await asyncio.gather(server.run(), *(member(home, name, server.address).run() for name in MEMBERS))
    lines = [said.partition(": ")[2] for said in caplog.messages]  # plan, round and step stand before it
    begun = re.fullmatch(r"waiting for the (\w+) of (.*): \d+ s left", lines[0])
    assert begun is not None
    assert begun[2] == ", ".join(MEMBERS)
    joined = [said for said in lines if said.startswith(f"{begun[1]} from ")]
    assert [said.count(",") for said in joined] == [1, 0, 0]
    assert ["waiting for" in said for said in joined] == [True, True, False]


async def test_a_renewed_authority_and_the_one_before_meet(home: Path) -> None:
    """Members that have its next certificate, and those that do not yet, are in one session with one sum."""
    renew_authority(home / "ca")
    shutil.copy(home / "ca" / "ca.pem", home / MEMBERS[0])
    assert (home / MEMBERS[0] / "ca.pem").read_bytes() != (home / SERVER / "ca.pem").read_bytes()
    own = home / SERVER
    async with secagg.Server(home / "plan.json", state=own / "state", tls=own) as server:
        clients = [member(home, name, server.address) for name in MEMBERS]
        result, *_ = await asyncio.gather(server.run(), *(client.run() for client in clients))
    assert result.members == MEMBERS


async def test_members_give_arrays_or_data_sets(home: Path) -> None:
    """Arrays, with labels by number or by name, and an opened data set give the sum that their files give."""
    plan, own = home / "plan.json", home / SERVER
    loaded = [np.load(home / name / "records.npz") for name in MEMBERS]
    names = np.array(read_plan(plan).classes)
    given: list[object] = [(each["features"], each["labels"]) for each in loaded]
    given[1] = (loaded[1]["features"].tolist(), names[loaded[1]["labels"]])
    given[2] = secagg.open_dataset(str(home / MEMBERS[2] / "records.npz"), split=False)
    async with secagg.Server(plan, state=own / "state", tls=own) as server:
        clients = [member(home, name, server.address, data=data) for name, data in zip(MEMBERS, given, strict=False)]
        result, *_ = await asyncio.gather(server.run(), *(client.run() for client in clients))
    async with secagg.Server(plan, state=home / "again", tls=own) as server:
        clients = [member(home, name, server.address, state=home / name / "again") for name in MEMBERS]
        from_files, *_ = await asyncio.gather(server.run(), *(client.run() for client in clients))
    assert result.aggregate_sha256 == from_files.aggregate_sha256


FEATURES = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((FEATURES, [0, 7]), "the label is none of the 2 classes"),
        ((FEATURES[:, :2], [0, 1]), r"arrays holds features of shape \(2,\)"),
        ((np.full((2, 3), np.nan), [0, 1]), "a feature is NaN or infinite"),
        ((FEATURES, [0]), "features holds 2 records, labels 1"),
        (dataset_of(FEATURES, [0, 1], FEATURES, [0, 1]), "arrays holds 2 records back for tests"),
    ],
)
def test_arrays_that_the_plan_does_not_take_are_refused(home: Path, data: object, said: str) -> None:
    """As files are: by label, shape, value and length, before anything connects."""
    with pytest.raises(SecaggError, match=said):
        member(home, MEMBERS[0], "127.0.0.1:1", data=data)


def test_a_policy_refuses_before_records_are_read(home: Path) -> None:
    """What the policy, or its budget, does not accept is refused without a look at the data: there need be none."""
    policy = home / MEMBERS[0] / "policy.toml"
    policy.write_text(re.sub("max_epsilon_total = .*", "max_epsilon_total = 1.0", policy.read_text()))
    with pytest.raises(PlanRefused, match="max_epsilon_total"):
        member(home, MEMBERS[0], "127.0.0.1:1", data="absent.npz")


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


async def test_server_that_cannot_write_its_address_stops_listening(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose state folder refuses its address ends with that error, and its port is free again."""
    own = home / SERVER
    seen: list[str] = []

    async def noted(*arguments: Any) -> Any:
        seen.append((found := await serve(*arguments))[1])
        return found

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(endpoints, "serve", noted)
    monkeypatch.setattr(endpoints, "write_synced", full)
    with pytest.raises(OSError, match="No space"):
        async with secagg.Server(home / "plan.json", state=own / "state", tls=own):
            pass
    host, port = seen[0].rsplit(":", 1)
    with socket.socket() as again:
        again.bind((host, int(port)))


async def test_records_that_the_plan_refuses_are_refused_before_joining(home: Path) -> None:
    """A member whose data have NaN reads so with its row."""
    np.savez(home / "bad.npz", features=np.full((4, 3), np.nan), labels=np.arange(4) % 2)
    with pytest.raises(BadInput, match="NaN"):
        member(home, MEMBERS[0], "127.0.0.1:1", data=home / "bad.npz")
