"""A party that has no confirmation goes into no later round and has no model, after a draw and at the end too."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import SessionAborted, Unconfirmed
from secagg.federation import client as returning
from secagg.protection.messages import Confirmation
from secagg.session.outcome import HEAD_FILE, UNCONFIRMED_HEAD_FILE
from secagg.session.transcripts import round_of
from secagg.transcript import FILE_NAME, payload_of, peek, sign_frame
from secagg.wire import encode
from tests.worlds.federation import Ending, SimulatedFederation, Tamper, run_federation

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
