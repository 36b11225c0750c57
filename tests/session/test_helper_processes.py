"""Aggregators and a key holder as real processes over gRPC: clients that leave, and kill -9 of everyone else."""

from pathlib import Path

import numpy as np
import pytest

from secagg.ledger import Ledger
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.folders import open_to_others
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

TOGETHER = {"shared": ("north", "south"), "encrypted": ("holder",)}
POINTS = [
    ("shared", "north", "sent", "SessionKeys"),
    ("shared", "south", "received", "ShareManifest"),
    ("shared", "north", "sent", "ShareReceipt"),
    ("shared", "south", "sent", "SetPledges"),
    ("shared", "north", "received", "SetPledges"),
    ("shared", "south", "sent", "SetLists"),
    ("shared", "north", "sent", "SumPledges"),
    ("shared", "south", "received", "SumPledges"),
    ("shared", "north", "sent", "SumShare"),
    ("shared", SERVER, "closed", "SessionKeys"),
    ("shared", SERVER, "received", "SetPledges"),
    ("shared", SERVER, "sent", "SetLists"),
    ("shared", SERVER, "received", "SumShare"),
    ("shared", SERVER, "sent", "Outcome"),
    ("encrypted", "holder", "sent", "PublishedKey"),
    ("encrypted", "holder", "received", "SumRequest"),
    ("encrypted", "holder", "sent", "OpenedSum"),
    ("encrypted", SERVER, "received", "PublishedKey"),
    ("encrypted", SERVER, "received", "EncryptedUpload"),
    ("encrypted", SERVER, "closed", "EncryptedUpload"),
    ("encrypted", SERVER, "sent", "SumRequest"),
    ("encrypted", SERVER, "received", "OpenedSum"),
    ("encrypted", SERVER, "sent", "Outcome"),
]


def check(federation: Processes, seconds: tuple[str, ...]) -> None:
    """Everyone ended well with the exact sum, clients with one release each, and transcripts that verify."""
    federation.finish()
    assert np.array_equal(federation.opened(), federation.expected())
    found = verify_transcript(federation.transcript(SERVER))
    assert found["members"] == list(federation.names)
    assert {path for name in federation.running for path in open_to_others(federation.folder / name / "state")} == set()
    for name in (*federation.names, *seconds):
        own = verify_transcript(federation.transcript(name))
        assert own["aggregate_sha256"] == found["aggregate_sha256"]
        assert not list(federation.session(name).glob("session*"))
    for name in federation.names:
        assert len(Ledger(federation.folder / name / "state", create=False).entries()) == 1


def begin(federation: Processes, seconds: tuple[str, ...]) -> None:
    """Start everyone but the clients."""
    for name in (SERVER, *seconds):
        federation.start(name)


def upload(federation: Processes, *names: str) -> None:
    """Clients upload one after the other: each is gone before the next one starts."""
    for name in names:
        federation.start(name)
        assert federation.running[name].wait(60) == 0, federation.said()
        assert "has not fetched the outcome" in verify_transcript(federation.transcript(name))["session"]


@pytest.mark.parametrize("protection", TOGETHER)
def test_clients_are_gone_before_the_last_one_starts(tmp_path: Path, protection: str) -> None:
    """Clients upload and exit one by one, but for the last; the others come back for the outcome of the exact sum."""
    seconds = TOGETHER[protection]
    with processes(tmp_path, protection=protection) as federation:
        begin(federation, seconds)
        *first, last = federation.names
        upload(federation, *first)
        federation.start(last, "--stay")
        federation.until_has(SERVER, "sent", "Outcome")
        for name in first:
            federation.start(name)
        check(federation, seconds)


@pytest.mark.long
@pytest.mark.parametrize(("protection", "victim", "kind", "step"), POINTS)
def test_killed_party_goes_on(tmp_path: Path, protection: str, victim: str, kind: str, step: str) -> None:
    """A helper or the server, killed at a record of its transcript and started again, goes on to the sum."""
    seconds = TOGETHER[protection]
    with processes(tmp_path, protection=protection) as federation:
        begin(federation, seconds)
        for name in federation.names:
            federation.start(name)
        federation.until_has(victim, kind, step)
        federation.kill(victim)
        federation.start(victim)
        for name in federation.names:
            assert federation.running[name].wait(60) == 0, federation.said()
        federation.until_has(SERVER, "sent", "Outcome")
        for name in federation.names:
            if "aggregate_sha256" not in verify_transcript(federation.transcript(name)):
                federation.start(name)
        check(federation, seconds)
