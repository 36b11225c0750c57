"""A party that has no confirmation goes into no later round and has no model, after a draw and at the end too."""

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import BadInput, NotConfirmed, SessionAborted, Unconfirmed
from secagg.federation import client as returning
from secagg.protection.messages import Acknowledgement, Confirmation
from secagg.session.confirming import confirm_from
from secagg.session.deadline import CLOSING_FILE
from secagg.session.outcome import HEAD_FILE, UNCONFIRMED_HEAD_FILE
from secagg.session.status import status_of
from secagg.session.transcripts import round_of
from secagg.transcript import FILE_NAME, payload_of, peek, read_transcript, sign_frame
from secagg.verification.transcript_series import verify_transcript
from secagg.wire import encode
from tests.worlds.federation import Ending, FederationRun, SimulatedFederation, Tamper, run_federation
from tests.worlds.hosts import Left

ROUNDS = 2
EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None, "method": "fedavg"}


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Who is not drawn asks often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(returning, "KNOCK_SECONDS", 0.02)
        yield


def world_of(folder: Path, **choices: Any) -> SimulatedFederation:
    """Five members that train for two rounds; one may vanish."""
    fixed = {"parameters": (("rounds", ROUNDS), ("rate", 0.5), ("clip", 5.0)), "dropouts": 1, "colluders": 0, **EXACT}
    return SimulatedFederation.of(folder, 5, 0, **{**fixed, **choices})


def numbers(world: SimulatedFederation, member: int) -> set[int]:
    """The rounds of which a member has a transcript."""
    return {round_of(path) for path in world.state(member).glob(f"*/{FILE_NAME}")}


def has_model(world: SimulatedFederation, member: int) -> bool:
    """Whether a member holds the model under the name of a result."""
    return any(world.state(member).glob(f"*/{HEAD_FILE}"))


async def deceive(world: SimulatedFederation, session: int, victim: int, lie: Callable[[bytes], bytes]) -> Ending:
    """Run the plan; in its session of this place the victim is shown the lie in place of the confirmation."""
    seen: list[bytes] = []

    def tamper(member: int, step: str, frame: bytes) -> bytes:
        if step != Confirmation.__name__ or not frame:
            return frame
        body = peek(frame)
        if body.round_digest not in seen:
            seen.append(body.round_digest)
        at = seen.index(body.round_digest)
        return lie(frame) if (member, body.step, at) == (victim, Confirmation.__name__, session) else frame

    told: Tamper = tamper
    return await run_federation(world, tamper=told)


def keep_back(frame: bytes) -> bytes:
    """Nothing comes."""
    return b""


def one_too_few(world: SimulatedFederation) -> Callable[[bytes], bytes]:
    """The server signs a confirmation that lacks one acknowledgement."""

    def lie(frame: bytes) -> bytes:
        body = peek(frame)
        shown = Confirmation(payload_of(body, Confirmation).acknowledgements[1:])
        told = {field: getattr(body, field) for field in body.__dataclass_fields__} | {"payload": encode(shown)}
        return sign_frame(world.keys[SERVER_INDEX], type(body)(**told))

    return lie


@pytest.mark.parametrize("protection", ["masked", "shared"])
@pytest.mark.parametrize("is_shown", [False, True], ids=["kept back", "one too few"])
async def test_no_next_round_without_a_confirmation(tmp_path: Path, protection: str, is_shown: bool) -> None:
    """Whose first round is unconfirmed does not begin the second one; the others end with one model."""
    world = world_of(tmp_path, protection=protection)
    ended = await deceive(world, 0, 2, one_too_few(world) if is_shown else keep_back)
    assert isinstance(ended.clients[2], SessionAborted if is_shown else Unconfirmed)
    assert numbers(world, 2) == {1}
    assert not has_model(world, 2)
    others = [ended.clients[each] for each in (1, 3, 4, 5)]
    assert len({outcome.head for _, outcome in others}) == 1
    assert all(has_model(world, each) for each in (1, 3, 4, 5))


@pytest.mark.parametrize("is_shown", [False, True], ids=["kept back", "one too few"])
async def test_no_model_without_a_confirmation_of_the_last_round(tmp_path: Path, is_shown: bool) -> None:
    """The model of the last round stays under another name at the one member whose confirmation does not come."""
    world = world_of(tmp_path)
    ended = await deceive(world, ROUNDS - 1, 2, one_too_few(world) if is_shown else keep_back)
    assert isinstance(ended.clients[2], SessionAborted if is_shown else Unconfirmed)
    assert not has_model(world, 2)
    assert len(list(world.state(2).glob(f"*/{UNCONFIRMED_HEAD_FILE}"))) == 1
    assert all(has_model(world, each) for each in (1, 3, 4, 5))


COHORTS: dict[str, Any] = {"cohort": 4, "join_seconds": 10, "step_seconds": 10, "round_seconds": 10}


@pytest.mark.parametrize("is_shown", [False, True], ids=["kept back", "one too few"])
async def test_no_round_without_a_confirmed_draw(tmp_path: Path, is_shown: bool) -> None:
    """Who has not seen that others hold the same draw takes part in no round that it was drawn for."""
    world = world_of(tmp_path, **COHORTS)
    ended = await deceive(world, 0, 2, one_too_few(world) if is_shown else keep_back)
    assert isinstance(ended.clients[2], SessionAborted if is_shown else Unconfirmed)
    assert len(list(world.state(2).glob(f"*/{FILE_NAME}"))) == 1
    assert not has_model(world, 2)


async def test_no_model_without_a_confirmation_in_the_last_cohort(tmp_path: Path) -> None:
    """A member of the last cohort needs the others' acknowledgements as much as the member outside of it."""
    world = world_of(tmp_path, **COHORTS)
    last: list[bytes] = []

    def tamper(member: int, step: str, frame: bytes) -> bytes:
        if step != Confirmation.__name__ or not frame:
            return frame
        body = peek(frame)
        if body.round_digest not in last:
            last.append(body.round_digest)
        return b"" if len(last) == 1 + ROUNDS and body.round_digest == last[-1] else frame

    ended = await run_federation(world, tamper=tamper)
    cohort = ended.stages[-1].context.clients
    assert {type(ended.clients[each]) for each in cohort} == {Unconfirmed}
    assert not any(has_model(world, each) for each in cohort)
    (outside,) = set(world.setup.roster.clients) - set(cohort)
    setup, _ = ended.clients[outside]
    assert setup.is_end
    assert has_model(world, outside)


@dataclass
class Silent(FederationRun):
    """A plan in whose session of this place (`at`, from 1) the `silent` parties are gone before they acknowledge."""

    silent: tuple[int, ...] = ()
    at: int = 1
    known: list[bytes] = field(default_factory=list)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Leave in place of the acknowledgement."""
        if plan not in self.known:
            self.known.append(plan)
        if member in self.silent and step == Acknowledgement.__name__ and self.known.index(plan) + 1 == self.at:
            raise Left


def has_begun(world: SimulatedFederation, ended: Ending, place: int) -> bool:
    """Whether the server has done or heard anything in the session of this place, beyond its preparation."""
    (path,) = world.transcripts(SERVER_INDEX, (ended.stages[place],))
    kinds = {record.kind for record in read_transcript(path)}
    return bool(kinds & {"received", "sent", "closed", "aborted"}) or (path.parent / CLOSING_FILE).exists()


TOO_FEW: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "masked": ((3, 4, 5), {}),
    "shared": ((7,), {"protection": "shared"}),
    "encrypted": ((6,), {"protection": "encrypted"}),
    "draw": ((3, 4, 5), {"cohort": 4, "join_seconds": 2, "step_seconds": 2, "round_seconds": 2}),
}


@pytest.mark.parametrize("is_killed", [False, True], ids=["one life", "killed"])
@pytest.mark.parametrize("what", TOO_FEW)
async def test_server_ends_with_the_round_that_too_few_confirm(tmp_path: Path, what: str, is_killed: bool) -> None:
    """It names who did not acknowledge, exits with 5, and begins no next round; started again it goes on to the end."""
    silent, choices = TOO_FEW[what]
    world = world_of(tmp_path, **choices)
    kill = [(1, "sent", "Outcome"), (1, "received", Acknowledgement.__name__)] if is_killed else []
    ended = await Silent(world, silent=silent, kill=kill).run()
    assert ended.restarts == 2 * is_killed
    assert isinstance(ended.server, NotConfirmed)
    assert ended.server.missing == tuple(map(world.setup.roster.name, silent))
    assert ended.server.exit_code == 5
    assert "not confirmed: " in str(ended.server)
    assert "ledgers stay charged" in str(ended.server)
    others = {type(ended.clients[each]) for each in ended.clients if each not in silent}
    assert others == {Unconfirmed}
    assert all(len(list(world.state(each).glob(f"*/{FILE_NAME}"))) == 1 for each in ended.clients)
    assert len(ended.stages) == 2
    assert not has_begun(world, ended, 1)
    charged = 0 if what == "draw" else 1
    assert [len(world.ledger(each).entries()) for each in ended.clients] == [charged] * 5
    again = await run_federation(world)
    assert len({outcome.head for _, outcome in again.clients.values()}) == 1
    assert all(has_model(world, each) for each in again.clients)


@pytest.mark.parametrize("what", ["masked", "shared", "draw"])
async def test_gathered_confirmation_leads_into_the_next_round(tmp_path: Path, what: str) -> None:
    """A client that has it from others' files is in the next round before the server has heard of enough."""
    silent, choices = TOO_FEW[what]
    world = world_of(tmp_path, **choices)
    ended = await Silent(world, silent=silent).run()
    assert isinstance(ended.clients[1], Unconfirmed)
    others = [world.transcripts(each, ended.stages[:1])[0] for each in ((6, 7) if what == "shared" else (2, 3))]
    with pytest.raises(BadInput, match=r"of the \d acknowledgements"):
        confirm_from(others[:1], world.state(1))
    own, _ = confirm_from(others, world.state(1))
    again = await run_federation(world)
    assert len({outcome.head for _, outcome in again.clients.values()}) == 1
    assert has_model(world, 1)
    findings = verify_transcript(own)
    assert findings["confirmed"]
    assert findings["countersigned_by_server"]


async def test_last_round_that_too_few_confirm_ends_the_same_way(tmp_path: Path) -> None:
    """After a round that went well the last one lacks acknowledgements: the same error, with its own names."""
    world = world_of(tmp_path)
    ended = await Silent(world, silent=(1, 2, 4), at=ROUNDS).run()
    assert isinstance(ended.server, NotConfirmed)
    assert ended.server.missing == ("client-1", "client-2", "client-4")


@dataclass
class Late(FederationRun):
    """A plan in which one client acknowledges the first round once the server is in the next one's first step."""

    late: int = 2
    met: list[bool] = field(default_factory=list)

    async def pause(self, member: int, plan: bytes, step: str) -> None:
        """Wait for the server to begin the next step, long before the time of this one is over."""
        if member != self.late or step != Acknowledgement.__name__ or self.number_of(plan) != 1:
            return
        for _ in range(400):
            stages = self.hosts[SERVER_INDEX].session.stages
            if len(stages) > 1 and (stages[1].folder / CLOSING_FILE).exists():
                self.met.append(True)
                return
            await asyncio.sleep(0.01)


async def test_next_round_waits_for_enough_and_not_for_all(tmp_path: Path) -> None:
    """A client that is slow to acknowledge holds nobody up, and is in the next round all the same."""
    world = world_of(tmp_path, join_seconds=30, step_seconds=30, round_seconds=30)
    run = Late(world)
    ended = await run.run()
    assert run.met == [True]
    assert {outcome.members for _, outcome in ended.clients.values()} == {(1, 2, 3, 4, 5)}
    assert all(has_model(world, each) for each in ended.clients)


async def test_next_round_does_not_wait_for_one_that_is_gone(tmp_path: Path) -> None:
    """One acknowledgement less than all is enough: the plan ends without the client that vanished."""
    world = world_of(tmp_path)
    ended = await Silent(world, silent=(5,)).run()
    assert {outcome.members for _, outcome in (ended.clients[each] for each in (1, 2, 3, 4))} == {(1, 2, 3, 4)}
    (first,) = world.transcripts(SERVER_INDEX, ended.stages[:1])
    assert status_of(first.parent).closes is None
