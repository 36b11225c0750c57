"""An operator ends, extends or cancels a wait: never below a threshold, and never behind anybody's back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from secagg.errors import BadInput, SessionAborted
from secagg.protection.messages import Abort
from secagg.session import AggregatorWork, deadline
from secagg.session.deadline import MOST_ADDED
from secagg.transcript import Journal, payload_of, peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from tests.session.test_decline import NEVER, Waiting
from tests.worlds.crashes import Fuse, FusedJournal
from tests.worlds.session import SessionRun, SimulatedSession, make_session

PATIENCE = 20.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Waiting]:
    """A server that waits, for an hour, for its four clients, one of which may be missing."""
    world = make_session(tmp_path, clients=4, dropouts=1, **NEVER)
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
        waiting = Waiting(world, SessionRun(world).new_server(journal))
        deciding = asyncio.ensure_future(waiting.session.decide())
        await until(lambda: waiting.session._deadline is not None)
        yield waiting
        deciding.cancel()
        await asyncio.wait([deciding])
        assert deciding.cancelled() or deciding.exception() is None or isinstance(deciding.exception(), SessionAborted)


async def until(condition: Callable[[], bool]) -> None:
    """Let others work until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("joined", [(), (1,), (1, 2)])
async def test_wait_goes_on_below_the_threshold(server: Waiting, joined: tuple[int, ...]) -> None:
    """The operator cannot go on while fewer have answered than a sum takes, and is told who has."""
    await server.joins(*joined)
    with pytest.raises(BadInput, match=f"too few .* {'client-1' if joined else 'nobody'}.*wait for more"):
        server.session.go_on()
    assert "client-4" in server.awaited
    assert "Directory" not in server.session._protocol.recipients


async def test_clients_that_declined_do_not_count_as_answers(server: Waiting) -> None:
    """A client that has joined and declined then is none of those that the threshold counts."""
    await server.joins(1, 2, 3)
    await server.session.submit(3, server.frame())
    with pytest.raises(BadInput, match="too few"):
        server.session.go_on()


async def test_operator_goes_on_with_enough(server: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """With enough answers the operator ends the wait; the log names who is missing, with plan, round and step."""
    await server.joins(1, 2, 3)
    with caplog.at_level(logging.INFO, "secagg.server"):
        assert server.session.go_on() == "goes on without client-4"
        await until(lambda: "Directory" in server.session._protocol.recipients)
    named = f"plan {server.world.setup.plan.digest.hex()[:8]}, round 1 of 1, step 1 of 5: "
    (line,) = (each for each in caplog.records if each.getMessage() == f"{named}the operator goes on without client-4")
    assert (vars(line)["round"], vars(line)["step"]) == (1, "KeyAdvertisement")
    assert server.session._protocol.recipients["Directory"] == {1, 2, 3}


@pytest.mark.parametrize("seconds", [0, -5, MOST_ADDED + 1])
async def test_wait_is_not_extended_for_ever(server: Waiting, seconds: int) -> None:
    """An extension of no second, or of more than a week, is refused."""
    with pytest.raises(BadInput, match="seconds must be at least 1"):
        server.session.extend(seconds)


async def test_operator_extends_a_wait(server: Waiting) -> None:
    """An extension adds to what is left of the step's time."""
    before = server.session._waiting().left()
    assert server.session.extend(600).endswith(" s left")
    assert server.session._waiting().left() == pytest.approx(before + 600, abs=60)


async def test_nothing_is_taken_after_a_cancellation(server: Waiting) -> None:
    """A message that comes behind the operator's cancel is not recorded, so that `verify` finds the reason true."""
    await server.joins(1, 2)
    await server.session.cancel()
    await server.joins(3)
    await until(lambda: any(each.kind == "aborted" for each in read_transcript(server.world.transcript(0))))
    kinds = [each.kind for each in read_transcript(server.world.transcript(0))]
    assert kinds.count("received") == 2
    assert "cancelled" in verify_transcript(server.world.transcript(0))["session"]


async def test_cancelled_session_ends_for_everybody(server: Waiting) -> None:
    """A cancelled session ends by the server's signed abort, which clients fetch and transcripts show."""
    await server.joins(1, 2)
    reason = await server.session.cancel()
    frame: list[bytes | None] = []

    async def fetched() -> None:
        frame.append(await server.session.fetch(1, server.world.setup.context.round_digest, "Directory", PATIENCE))

    await fetched()
    body = peek(frame[0] or b"")
    assert payload_of(body, Abort).reason == reason == "the server's operator has cancelled the session"
    assert reason in verify_transcript(server.world.transcript(0))["session"]
    with pytest.raises(BadInput, match="cannot be cancelled"):
        await server.session.cancel()


async def test_nothing_is_controlled_where_nobody_waits(tmp_path: Path) -> None:
    """Before a step begins, and once the outcome is there, there is no wait to end or extend, and nothing to cancel."""
    world = make_session(tmp_path)
    run = SessionRun(world)
    await run.run()
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal:
        over = SessionRun(world).new_server(journal)
        for control in (over.go_on, lambda: over.extend(5)):
            with pytest.raises(BadInput, match="waits for nobody"):
                control()
        with pytest.raises(BadInput, match="cannot be cancelled"):
            await over.cancel()


class OneIsMissing(SessionRun):
    """A shared session in which client 4 never comes; a test controls its aggregators once the others have uploaded."""

    def __init__(self, world: SimulatedSession, control: Callable[[SessionRun, list[AggregatorWork]], Any]) -> None:
        super().__init__(world)
        self.works: list[AggregatorWork] = []
        self._control = control

    def new_work(self, member: int, journal: Journal) -> AggregatorWork:
        """Keep hold of the aggregators."""
        self.works.append(super().new_work(member, journal))
        return self.works[-1]

    async def serve(self) -> Any:
        """The server, while the operator waits for three uploads at each aggregator."""

        async def operate() -> None:
            await until(lambda: len(self.works) == 2 and all(len(work._receipts) == 3 for work in self.works))
            await self._control(self, self.works)

        operating = asyncio.ensure_future(operate())
        try:
            return await super().serve()
        finally:
            await operating


async def controlled(folder: Path, dropouts: int, control: Any) -> Any:
    """How a shared session ends whose aggregators are controlled."""
    world = make_session(folder, clients=4, protection="shared", dropouts=dropouts, **NEVER)
    return await OneIsMissing(world, control).run(absent=(4,))


async def test_operators_of_aggregators_go_on(tmp_path: Path) -> None:
    """Each aggregator's operator ends its collection once enough have uploaded."""

    async def go_on(run: SessionRun, works: list[AggregatorWork]) -> None:
        assert [work.go_on() for work in works] == ["goes on without client-4"] * 2

    ending = await controlled(tmp_path, 1, go_on)
    assert ending.server.members == (1, 2, 3)


async def test_aggregator_collects_on_below_the_threshold(tmp_path: Path) -> None:
    """An aggregator's operator cannot go on with too few uploads, nor cancel; a cancellation at the server ends all."""

    async def try_all(run: SessionRun, works: list[AggregatorWork]) -> None:
        for work in works:
            with pytest.raises(BadInput, match="3 clients have uploaded; at least 4"):
                work.go_on()
            with pytest.raises(BadInput, match="at the server"):
                await work.cancel()
            assert work.extend(60).endswith(" s left")
        assert run.server is not None
        with pytest.raises(BadInput, match="too few"):
            run.server.go_on()
        await run.server.cancel()

    ending = await controlled(tmp_path, 0, try_all)
    for end in (ending.server, *ending.clients.values(), *ending.helpers.values()):
        assert isinstance(end, SessionAborted)
        assert "operator has cancelled" in end.reason


async def test_restarted_server_does_not_forget_that_it_was_to_go_on(server: Waiting) -> None:
    """A wait that the operator has ended is over in the server's next life, too."""
    await server.joins(1, 2, 3)
    server.session._until_complete = lambda: asyncio.sleep(PATIENCE)  # type: ignore[method-assign]
    server.session.go_on()
    kept = deadline.read_closing(server.world.home(0), "KeyAdvertisement")
    assert kept is not None
    assert kept.at <= deadline.time.time()


def minute(messages: list[str]) -> list[str]:
    """The lines that say who is awaited."""
    return [each for each in messages if "waiting for the" in each]


async def test_server_says_each_minute_who_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting server's log names again and again who is missing, and how long it waits."""
    monkeypatch.setattr("secagg.session.server_session.REMIND_SECONDS", 0.0)
    monkeypatch.setattr("secagg.session.server_session.LOOK_SECONDS", 0.005)
    world = make_session(tmp_path, clients=4, dropouts=1, **NEVER)
    with closing(FusedJournal(world.transcript(0), Fuse())) as journal, caplog.at_level(logging.INFO, "secagg.server"):
        session = SessionRun(world).new_server(journal)
        deciding = asyncio.ensure_future(session.decide())
        await until(lambda: len(minute(caplog.messages)) > 2)
        deciding.cancel()
        await asyncio.wait([deciding])
    last, everybody = minute(caplog.messages)[-1], "client-1, client-2, client-3, client-4"
    assert last.endswith(f"round 1 of 1, step 1 of 5: waiting for the KeyAdvertisement of {everybody}: 3600 s left")


async def test_client_says_each_minute_how_long_it_may_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting client tells its operator again and again what it waits for, and for how long at most by the plan."""
    monkeypatch.setattr("secagg.session.member_session.REMIND_SECONDS", 0.01)
    said: list[str] = []
    world = make_session(tmp_path, clients=4, dropouts=1, **NEVER)

    class Telling(SessionRun):
        def _session(self, member: int, journal: Journal, own: Any = None, **work: Any) -> Any:
            session = super()._session(member, journal, own, **work)
            session._progress = said.append
            return session

    run = Telling(world)
    parties = [asyncio.ensure_future(party) for party in (run.serve(), run.client(1))]
    await until(lambda: len([each for each in said if "Directory" in each]) > 2)
    run.close()
    for party in parties:
        party.cancel()
    await asyncio.wait(parties)
    label = f"plan {world.setup.plan.digest.hex()[:8]}, round 1 of 1"
    assert f"waiting for the server's Directory ({label}): up to 7200 s by the plan" in said
    assert read_transcript(world.transcript(1))
