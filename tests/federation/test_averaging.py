"""README's method of three rounds in a federation, and a method whose rounds leave each member a private state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from methods import METHODS
from methods.method import Parameters, SimpleMethod, SumSpec
from methods.round import Contribution, Local, OpenedTotal, Round, Step
from secagg.encoding import Block, Grid, Kind
from secagg.errors import BadInput, PlanRefused
from secagg.experiments.reference import pooled_result
from secagg.federation import session_folder
from secagg.heads import LinearHead
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Unit
from secagg.randomness import OperatingSystem
from secagg.session import conclude, contribution_of
from secagg.session.sealed_state import KEY_FILE, STATE_FILE, keep_state, recall_state
from secagg.verification.transcript_series import verify_transcript
from tests.methods.readme import readme_method
from tests.worlds.federation import Finished, SimulatedFederation, opened, run_federation
from tests.worlds.setups import make_setup, some_records

EXACT = {"epsilon": float("inf"), "delta": None, "adjacency": None}
EVERYONE = (1, 2, 3, 4)


@dataclass(frozen=True)
class Diary(SimpleMethod):
    """Three sums of one number: a member's index, plus ten times the bytes that its last round left it."""

    name: ClassVar[str] = "diary"
    number: int = 1

    @property
    def parameters(self) -> Parameters:
        """None."""
        return {}

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One entry, three times."""
        block = Block("diary", (1,), bound=1 << 20, kind=Kind.OTHER)
        return (SumSpec((block,), (), "equal", per=Unit.CLIENT, times=3, is_additive=False, refusal="it is a test"),)

    def contribute(self, local: Local) -> Contribution:
        """A page more is left each time."""
        entry = np.array([local.member + 10 * len(local.state)], dtype=np.int64)
        return Contribution({"diary": entry}, local.state + b"p" * local.member)

    def finalize(self, opened: OpenedTotal) -> Step:
        """A head of zeros after the third."""
        if self.number < 3:
            return Step(next_round=replace(self, number=self.number + 1))
        return Step(LinearHead(np.zeros((3, 4), dtype=np.float32), np.zeros(3, dtype=np.float32)))

    def broadcast(self) -> bytes:
        """The round's number."""
        return bytes([self.number])

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        """The next."""
        return replace(self, number=broadcast[0])

    def require_equal(self, told: Round) -> None:
        """It is."""


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    """Both methods are in the registry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "averaging", readme_method("averaging"))  # type: ignore[arg-type]
        patch.setitem(METHODS, "diary", Diary)  # type: ignore[arg-type]
        yield


def played(folder: Path, method: str, **choices: Any) -> Finished:
    """A plan of this method from beginning to end, without noise."""
    world = SimulatedFederation.of(folder, refine=0, method=method, parameters=(), **{**EXACT, **choices})
    return world, asyncio.run(run_federation(world))


@pytest.mark.parametrize("protection", ["masked", "shared", "encrypted"])
def test_averaging_ends_with_the_exact_head(tmp_path: Path, protection: str) -> None:
    """Three rounds over the real parties end with the head that the members' own updates give, bit for bit."""
    world, ended = played(tmp_path, "averaging", protection=protection)
    assert len(ended.stages) == 3
    reference = pooled_result(world.setup, world.records)
    for _, outcome in ended.clients.values():
        assert outcome.members == EVERYONE
        assert outcome.head_sha256 == reference.artifact_sha256


def test_averaging_is_refused_by_default_for_its_sums(tmp_path: Path) -> None:
    """At ε = ∞ the default policy counts three sums about the same records, whatever the method calls its rounds."""
    setup = make_setup(4, method="averaging", parameters=(), **EXACT)
    policy = replace(policy_accepting(setup.plan, "data"), refinement_without_noise=False)
    with pytest.raises(PlanRefused) as refusal:
        setup.facts.check(policy)
    assert [line.split(":")[0] for line in refusal.value.violations] == ["refinement_without_noise"]


def test_an_update_is_not_charged_per_record(tmp_path: Path) -> None:
    """The ring has room for one update of each client, however many records the plan allows it."""
    small, large = (
        make_setup(4, method="averaging", parameters=(), max_records=each, **EXACT) for each in (1, 1 << 16)
    )
    assert small.context.ring == large.context.ring
    assert small.sum.capacity.largest == large.sum.capacity.largest


def test_state_is_private_and_carried(tmp_path: Path) -> None:
    """Each round's sum is made with what the round before left each member, in no frame; the newest alone is kept."""
    world, ended = played(tmp_path, "diary", radius=100.0)
    totals = [int(opened(world, stage)[0]) for stage in ended.stages]
    assert totals == [sum(member * (1 + 10 * turn) for member in EVERYONE) for turn in range(3)]
    for member in EVERYONE:
        last = ended.stages[-1]
        folder = session_folder(world.state(member), last)
        assert recall_state(folder, last.context.round_digest) == b"p" * member * 3
        assert (folder / STATE_FILE).stat().st_mode & 0o777 == 0o600
        assert sorted(world.state(member).rglob("private.*")) == [folder / KEY_FILE, folder / STATE_FILE]
    assert not list(world.state(0).rglob(STATE_FILE))
    for transcript in world.transcripts(1, ended.stages):
        verify_transcript(transcript)
        assert b"pppp" not in transcript.read_bytes()


@pytest.mark.parametrize("damage", ["state", "other key", "other round"])
def test_damaged_state_is_refused(tmp_path: Path, damage: str) -> None:
    """A state that was changed, has another key, or that another round left, is refused with a remedy."""
    keep_state(tmp_path, b"secret", b"round", OperatingSystem())
    assert b"secret" not in (tmp_path / STATE_FILE).read_bytes()
    if damage == "state":
        content = bytearray((tmp_path / STATE_FILE).read_bytes())
        content[0] ^= 1
        (tmp_path / STATE_FILE).write_bytes(content)
    if damage == "other key":
        (tmp_path / KEY_FILE).write_bytes(bytes(31) + b"k")
    with pytest.raises(BadInput, match="damaged, or of another round"):
        recall_state(tmp_path, b"another" if damage == "other round" else b"round")


def test_a_state_that_is_lost_begins_anew(tmp_path: Path) -> None:
    """Where the file is gone the next round gets what the first one gets: nothing."""
    keep_state(tmp_path, b"secret", b"round", OperatingSystem())
    (tmp_path / STATE_FILE).unlink()
    assert recall_state(tmp_path, b"round") == b""


@pytest.mark.parametrize("left", [None, b"", bytes(32)])
def test_a_crash_while_erasing_leaves_nothing(tmp_path: Path, left: bytes | None) -> None:
    """A state whose key is gone, or is being overwritten, is one that was no longer wanted: nobody is locked out."""
    keep_state(tmp_path, b"secret", b"round", OperatingSystem())
    if left is None:
        (tmp_path / KEY_FILE).unlink()
    else:
        (tmp_path / KEY_FILE).write_bytes(left)
    assert recall_state(tmp_path, b"round") == b""


def test_a_round_that_leaves_nothing_leaves_no_file(tmp_path: Path) -> None:
    """Methods without private state write none, and find none."""
    keep_state(tmp_path, b"", b"round", OperatingSystem())
    assert list(tmp_path.iterdir()) == []
    assert recall_state(tmp_path, b"round") == b""


def test_an_earlier_try_leaves_nothing_to_a_later_one(tmp_path: Path) -> None:
    """A round that was tried before, and now leaves nothing, hands no state of the vector that never left on."""
    keep_state(tmp_path, b"of the first try", b"round", OperatingSystem())
    keep_state(tmp_path, b"", b"round", OperatingSystem())
    assert recall_state(tmp_path, b"round") == b""
    assert list(tmp_path.iterdir()) == []


def test_reference_is_of_all_clients(tmp_path: Path) -> None:
    """A client without records changes no sum, but the mean: the head of a plan that it left is no reference."""
    setup = make_setup(4, method="averaging", parameters=(("rounds", 1),), **EXACT)
    records = some_records(setup, 30)
    parts = {member: records.take(np.flatnonzero(np.arange(30) % 3 == member - 1)) for member in (1, 2, 3, 4)}
    vector = np.sum([contribution_of(setup, parts[member], OperatingSystem())[0] for member in (1, 2, 3)], axis=0)
    opened = conclude(setup, (1, 2, 3), vector)
    assert pooled_result(setup, parts, opened).artifact_sha256 == pooled_result(setup, parts).artifact_sha256
