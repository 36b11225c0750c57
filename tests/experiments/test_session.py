"""One session in memory, under every protection: who leaves when, what it costs, and what a further one needs."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import secagg
from secagg.errors import SessionAborted
from secagg.experiments.session import _Uploads, run_session
from secagg.protection import PROTECTIONS, Protection
from tests.experiments.test_protections import EXACT, identities
from tests.worlds.setups import make_setup

STEPS = [(name, step) for name, protection in PROTECTIONS.items() for step in protection.leaving]
LEAVER = 2


def announced(protection: Protection) -> int:
    """The place among its steps of the one at which a client uploads."""
    return protection.steps.index(protection.client.announcement)


def session(name: str, leaves: dict[int, str]) -> Any:
    """A session of five clients, each of whose entries is a power of ten."""
    setup = make_setup(protection=name, **EXACT, dropouts=1)
    vectors = {member: np.full(setup.sum.layout.length, 10 ** (member - 1)) for member in setup.context.clients}
    return run_session(setup, identities(setup), vectors.__getitem__, leaves)


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_a_client_may_leave_at_every_step(name: str, step: str) -> None:
    """The sum is that of the others, and of who left once its whole upload had arrived; its bytes are no more."""
    protection = PROTECTIONS[name]
    opened, whole = session(name, {LEAVER: step}), session(name, {})
    has_uploaded = name == "masked" and protection.leaving.index(step) > announced(protection)
    assert opened.members == ((1, 2, 3, 4, 5) if has_uploaded else (1, 3, 4, 5))
    assert set(opened.total.tolist()) == {sum(10 ** (member - 1) for member in opened.members)}
    sent = [result.measured.client_bytes.get(LEAVER, 0) for result in (opened, whole)]
    assert sent[0] < sent[1]
    assert opened.measured.client_cpu.keys() == whole.measured.client_cpu.keys() == {1, 2, 3, 4, 5}


def test_further_protection_is_its_entry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is registered with three helpers is simulated with three, and its clients leave at its steps."""
    three = replace(PROTECTIONS["shared"], fewest_helpers=3, steps=PROTECTIONS["shared"].steps[1:])
    monkeypatch.setitem(PROTECTIONS, "three", three)
    records = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    run = secagg.simulate(*records, protection="three", clients=6, dropouts=2)
    assert len(run.federated.setup.context.helpers) == 3
    assert len(run.federated.result.members) == 4
    plain = secagg.simulate(*records, protection="none", clients=6, dropouts=2)
    assert run.federated.result.aggregate_sha256 == plain.federated.result.aggregate_sha256


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_too_few_at_any_step_open_nothing(name: str, step: str) -> None:
    """When one client of five is left at any step, the session ends without a sum."""
    with pytest.raises(SessionAborted):
        session(name, dict.fromkeys((1, 2, 3, 4), step))


def test_uploads_beyond_what_is_held_wait_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is held in memory, each party's latest bytes are given back, and no file is left."""
    monkeypatch.setattr("secagg.experiments.session.MOST_HELD", 10)
    with ExitStack() as closing:
        uploads = _Uploads(closing)
        kept = {1: b"12345678", 2: b"much too long", 3: b"12"}
        for index, content in kept.items():
            uploads[index] = content
        folder = uploads._folder
        assert [path.name for path in folder.iterdir()] == ["2"]
        assert {index: uploads[index] for index in kept} == kept
        uploads[2], uploads[1] = b"", b"as long as this"
        assert (uploads[2], uploads[1], uploads[3]) == (b"", b"as long as this", b"12")
    assert not folder.exists()
