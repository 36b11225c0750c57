"""The benchmark of a session charges each party its own CPU, waits for no deadline, and checks both."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from secagg.protection.masking.messages import Opening
from secagg.session import member_session, server_session
from secagg.session.outcome import open_sum
from secagg.session.server_protocol import ServerProtocol
from tests.benchmarks import session
from tests.benchmarks.metering import Balance, Meter
from tests.benchmarks.scenario import STEP_SECONDS
from tests.benchmarks.session import measure_session, measure_sessions

CLIENTS, DROPOUTS = 5, 1
SURVIVORS = CLIENTS - DROPOUTS
VECTOR, TAKE, CHECK, OPEN = 100.0, 7.0, 3.0, 50.0


class Processor:
    """The CPU clock of each thread, on which only what the test plants takes time."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def thread_time(self) -> float:
        """CPU seconds of the present thread."""
        return getattr(self._thread, "seconds", 0.0)

    def costing(self, seconds: float, work: Callable[..., Any], when: Callable[..., bool] = lambda *_: True) -> Any:
        """The same work, with so many seconds of CPU each time."""

        def worked(*args: Any) -> Any:
            if when(*args):
                self._thread.seconds = self.thread_time() + seconds
            return work(*args)

        return worked


@pytest.fixture(autouse=True)
def disk_that_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    """A clock on which vectors, openings, checks of the outcome and the sum take a known time."""
    processor, begun = Processor(), session.client_session
    costing = processor.costing
    monkeypatch.setattr(
        ServerProtocol, "take", costing(TAKE, ServerProtocol.take, lambda *args: args[-1].step == Opening.__name__)
    )
    monkeypatch.setattr(member_session, "check_outcome", costing(CHECK, member_session.check_outcome))
    monkeypatch.setattr(server_session, "open_sum", costing(OPEN, open_sum))
    monkeypatch.setattr(session, "client_session", lambda *args: begun(*args[:-1], costing(VECTOR, args[-1])))
    return processor


def test_every_party_is_charged_its_own_cpu_alone(processor: Processor) -> None:
    """Work in tasks and threads of all parties at once is charged to the party and the step that it is done for."""
    costs = measure_session(CLIENTS, DROPOUTS, Meter(processor.thread_time))
    assert {step: seconds for step, seconds in costs.client_cpu.items() if seconds} == {
        "UploadHeader": VECTOR,
        "Acknowledgement": CHECK,
    }
    assert costs.share_checks == SURVIVORS * TAKE
    assert costs.after_last_opening == OPEN
    planted = CLIENTS * VECTOR + SURVIVORS * (TAKE + CHECK) + OPEN
    assert costs.balance.charged == planted


def test_session_waits_for_nobody() -> None:
    """The wait for those who left is left out, once; the sum is right and the costs add up.

    A deadline that has another clock than the event loop fails this at once: the benchmark leaves out no more waits.
    """
    (costs,) = measure_sessions(1, CLIENTS, DROPOUTS)
    assert 0 < costs.left_out <= STEP_SECONDS


def test_costs_that_add_up_pass() -> None:
    """What the event loop itself uses, and a disk that is waited for, are within the tolerance."""
    Balance(charged=9.6, process=10.0, wall=16.0, disk=4.0, queue=1.0).require()


@pytest.mark.parametrize("charged", [5.0, 9.2, 10.8, 680.0])
def test_cpu_that_does_not_add_up_is_refused(charged: float) -> None:
    """Parties that are charged for each other's work, or not for their own, are no measurement."""
    with pytest.raises(ValueError, match=r"the process used 10\.00 s"):
        Balance(charged=charged, process=10.0).require()


def test_time_that_nobody_used_is_refused() -> None:
    """A session that sits out a deadline is no measurement."""
    with pytest.raises(ValueError, match="a party waited"):
        Balance(charged=10.0, process=10.0, wall=600.0, disk=5.0).require()
