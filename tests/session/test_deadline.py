"""Deadlines that outlive restarts: a step takes its time once, and who was itself away hears those who waited."""

import asyncio
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from secagg.errors import BadInput, SessionAborted
from secagg.protection.messages import Outcome
from secagg.session import AggregatorWork, deadline
from secagg.session.deadline import CLOSING_FILE, MOST_ADDED, Deadline
from secagg.transcript import Journal
from tests.worlds.crashes import Crash, Fuse, FusedJournal
from tests.worlds.session import SessionRun, make_session

STEP, SECONDS, SLACK = "UploadHeader", 60.0, 20.0


class Clock:
    """The two clocks of a machine; `monotonic` counts from when it was switched on."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        """The system's clock."""
        return 1e9 + self.now

    def monotonic(self) -> float:
        """The clock that nobody sets."""
        return 77.0 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves."""
    clock = Clock()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(time=clock.time))
    return clock


def looked_at(deadline_: Deadline, clock: Clock, seconds: float) -> float:
    """What is left after so many seconds in which it was looked at as often as it should be."""
    for _ in range(round(seconds)):
        clock.now += 1.0
        left = deadline_.left()
    return left


def test_step_has_its_time(tmp_path: Path, clock: Clock) -> None:
    """A deadline that is looked at all the time closes when its seconds are over."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert step.left() == SECONDS
    assert looked_at(step, clock, 59) == pytest.approx(1.0)
    assert looked_at(step, clock, 1) <= 1e-6


@pytest.mark.parametrize("restarts", [1, 2, 5])
def test_restart_does_not_begin_the_time_anew(tmp_path: Path, clock: Clock, restarts: int) -> None:
    """However often a party is restarted, its step closes when it would have."""
    for _ in range(restarts):
        step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
        looked_at(step, clock, 40 / restarts)
    again = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert again.left() == pytest.approx(20.0, abs=1e-3)
    assert not again.is_extended
    assert again.extend()


def test_restarts_without_end_do_not_hold_a_step_open(tmp_path: Path, clock: Clock) -> None:
    """A party that is restarted again and again closes after its step's time and the slack at last."""
    while Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic).left() > 0:
        clock.now += 5.0
        assert clock.now <= SECONDS + SLACK / 2 + 5.0


def test_party_that_was_away_hears_those_who_waited(tmp_path: Path, clock: Clock) -> None:
    """A party that is back after its step's time gives the others a while once, and not again at the next restart."""
    Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    clock.now += 1000.0
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert step.left() == pytest.approx(SLACK / 2)
    looked_at(step, clock, 9)
    assert Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic).left() == pytest.approx(1.0, abs=1e-3)
    clock.now += 1000.0
    assert Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic).left() <= 0


def test_party_that_was_stopped_hears_those_who_waited(tmp_path: Path, clock: Clock) -> None:
    """A process that was stopped over its step's end gives the others a while, once."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    clock.now += 90.0
    assert step.left() == pytest.approx(SLACK / 2)
    clock.now += 90.0
    assert step.left() <= 0


def test_stop_in_the_middle_of_a_step_changes_nothing(tmp_path: Path, clock: Clock) -> None:
    """A process that goes on well before its step's end does not put the end off."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    clock.now += 30.0
    assert step.left() == pytest.approx(30.0)


@pytest.mark.parametrize(("waited", "left"), [(0.0, 1.0), (3.0, 4.0), (1e9, 1.0 + SLACK / 2)])
def test_who_waited_for_a_place_has_time_on_top(tmp_path: Path, clock: Clock, waited: float, left: float) -> None:
    """Time in a queue is given back, up to half of the slack."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    looked_at(step, clock, 59)
    assert step.left(waited) == pytest.approx(left)


def test_next_step_has_its_own_time(tmp_path: Path, clock: Clock) -> None:
    """The time of one step says nothing of the next."""
    looked_at(Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic), clock, 50)
    assert Deadline(tmp_path, "Endorsement", SECONDS, SLACK, clock.monotonic).left() == SECONDS


def test_step_is_extended_once(tmp_path: Path, clock: Clock) -> None:
    """An extended step has its time once more from then on; asked for a second time, also after a restart, it ends."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert looked_at(step, clock, 60) <= 1e-6
    assert step.extend()
    assert step.left() == pytest.approx(SECONDS)
    looked_at(step, clock, 40)
    again = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert again.is_extended
    assert again.left() == pytest.approx(20.0, abs=1e-3)
    assert not again.extend()
    assert again.left() == pytest.approx(20.0, abs=1e-3)
    looked_at(again, clock, 19)
    assert not again.extend()
    assert looked_at(again, clock, 1) <= 1e-3


def test_extended_step_has_its_time_from_now_on(tmp_path: Path, clock: Clock) -> None:
    """Time that somebody waited for a place after the step was to close is not taken from the extension."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    looked_at(step, clock, 65)
    assert step.extend()
    assert step.left() == pytest.approx(SECONDS)


def test_extension_of_one_step_is_none_of_the_next(tmp_path: Path, clock: Clock) -> None:
    """Every step may be extended."""
    Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic).extend()
    assert not Deadline(tmp_path, "Endorsement", SECONDS, SLACK, clock.monotonic).is_extended


def test_operator_extends_by_a_week_in_all(tmp_path: Path, clock: Clock) -> None:
    """Extensions outlive a restart, and are refused once they come to more than a week together."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert step.add(MOST_ADDED - 5) == pytest.approx(SECONDS + MOST_ADDED - 5)
    again = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert again.left() == pytest.approx(SECONDS + MOST_ADDED - 5, abs=1e-3)
    with pytest.raises(BadInput, match=r"at most 5 \(got 6\); 5 of 604800 s for a wait are left; else go on"):
        again.add(6)
    assert again.left() == pytest.approx(SECONDS + MOST_ADDED - 5, abs=1e-3)
    assert again.add(5) == pytest.approx(SECONDS + MOST_ADDED, abs=1e-3)


def test_file_of_an_older_version_keeps_its_time(tmp_path: Path, clock: Clock) -> None:
    """A file without the word on an extension says when its step closes, and that it was not extended."""
    (tmp_path / CLOSING_FILE).write_text(f"{STEP} {clock.time() + 20.0} 0")
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    assert step.left() == pytest.approx(20.0)
    assert not step.is_extended


ADDED_OF_NO_USE = (b"UploadHeader 1e300 0 0 100000000000", b"UploadHeader nan 0 0 0", b"UploadHeader 1e9 0 0 -5")


@pytest.mark.parametrize(
    "content", [b"", b"UploadHeader", b"UploadHeader soon 0", b"\xff\xff", b"1 2 3 4", *ADDED_OF_NO_USE]
)
def test_damaged_file_begins_the_time(tmp_path: Path, clock: Clock, content: bytes) -> None:
    """A file that says nothing costs at most the step's time again, never the session."""
    (tmp_path / CLOSING_FILE).write_bytes(content)
    assert Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic).left() == SECONDS


def test_clock_that_was_set_back_gives_no_more_than_the_whole_time(tmp_path: Path, clock: Clock) -> None:
    """Whoever sets the system's clock back wins nothing beyond the step's time."""
    (tmp_path / CLOSING_FILE).write_text(f"{STEP} {clock.time() + 10**6} 0")
    assert Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic).left() == SECONDS


def test_disk_that_refuses_is_said(tmp_path: Path) -> None:
    """Without a place to keep it there is no deadline."""
    with pytest.raises(BadInput, match="free the disk"):
        Deadline(tmp_path / "absent", STEP, SECONDS, SLACK)


def test_extension_that_is_not_on_the_disk_is_none(tmp_path: Path, clock: Clock) -> None:
    """An operator who is told that the disk refuses has extended nothing, and used up nothing of the week."""
    step = Deadline(tmp_path, STEP, SECONDS, SLACK, clock.monotonic)
    (tmp_path / CLOSING_FILE).unlink()
    tmp_path.rmdir()
    with pytest.raises(BadInput, match="free the disk"):
        step.add(1000)
    assert step.left() == SECONDS
    tmp_path.mkdir()
    assert step.add(MOST_ADDED) == pytest.approx(SECONDS + MOST_ADDED)


def expired(home: Path) -> None:
    """Move the end of a party's present step into the past."""
    step, *_ = (home / CLOSING_FILE).read_text().split()
    (home / CLOSING_FILE).write_text(f"{step} {time.time() - 1.0} 1 1 0")


async def test_restarted_server_does_not_join_anew(tmp_path: Path) -> None:
    """A server that was restarted closes the joining when its first life would have."""
    world = make_session(tmp_path, join_seconds=3600)
    for is_first in (True, False):
        with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
            deciding = asyncio.ensure_future(SessionRun(world).new_server(journal).decide())
            if is_first:
                await asyncio.sleep(0.02)
                deciding.cancel()
                await asyncio.wait([deciding])
                expired(world.home(0))
                continue
            async with asyncio.timeout(5.0):
                with pytest.raises(SessionAborted, match="only 0 of 3 clients joined"):
                    await deciding


class KilledWhenAllAreThere(SessionRun):
    """A federation whose aggregators are killed when all clients but the absent one have uploaded, their time over."""

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """An aggregator that looks who is there."""
        work = super().new_work(member, journal)
        look = work._look

        def killing() -> None:
            look()
            if len(work._receipts) == 3 and not self.is_expired(member):
                expired(self.world.home(member))
                raise Crash("the time is over")

        work._look = killing  # type: ignore[method-assign]
        return work

    def is_expired(self, member: int) -> bool:
        """Whether the aggregator was killed already."""
        return (self.world.home(member) / CLOSING_FILE).read_text().endswith(" 1 1 0")


async def test_restarted_aggregator_does_not_collect_anew(tmp_path: Path) -> None:
    """An aggregator that was restarted closes its collection when its first life would have."""
    world = make_session(tmp_path, clients=4, protection="shared", dropouts=1, join_seconds=3600)
    federation = KilledWhenAllAreThere(world)
    async with asyncio.timeout(20.0):
        ending = await federation.run(absent=(2,))
    assert all(map(federation.is_expired, world.setup.context.helpers))
    assert isinstance(ending.server, Outcome)
    assert ending.server.members == (1, 3, 4)
