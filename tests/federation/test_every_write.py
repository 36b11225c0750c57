"""A party killed by SIGKILL after every single write: the same model, the same bytes on the wire, and all verifies.

Three rounds of federated averaging by members' gradients, which are exact integers: whatever is killed, the states must
be those that the members' records give. What `long` does for every write the short test does for a few.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.ledger import Ledger
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.session.transcripts import outcome_of, round_of
from secagg.transcript import FILE_NAME, read_transcript
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import Trust, Verified
from tests.federation.deaths import Deaths, expected_results, said_twice, writes_of
from tests.worlds.processes import Processes, make_processes
from tests.worlds.rosters import SERVER

NAMES = ("a", "b", "c")
TRAINING = (("rounds", 3), ("rate", 0.5), ("clip", 5.0), ("gradients", 1), ("server", "momentum"))
EVERY_PARTY = [
    ("masked", SERVER),
    ("masked", "b"),
    ("shared", SERVER),
    ("shared", "north"),
    ("shared", "b"),
    ("encrypted", SERVER),
    ("encrypted", "holder"),
    ("encrypted", "b"),
]


def federation_of(folder: Path, protection: str) -> Processes:
    """Three members of a plan of three exact rounds, with time enough for whoever is started again and again."""
    plan = {"method": "fedavg", "parameters": TRAINING, "radius": None, "epsilon": math.inf, "result": "members"}
    waits = dict.fromkeys(("join_seconds", "step_seconds", "round_seconds"), 300)
    federation = make_processes(folder, NAMES, 6, protection, **plan, **waits)
    for name in NAMES:
        policy = replace(policy_accepting(federation.plan, name), refinement_without_noise=True)
        (folder / name / "policy.toml").write_text(policy.to_toml())
    return federation


def check(federation: Processes) -> None:
    """Everybody ended with the sums and the model of the records; nobody ever said two things; all verifies."""
    results = expected_results(federation)
    assert not said_twice(federation)
    for member in federation.roster.members:
        state = federation.folder / member.name / "state"
        paths = sorted(state.glob(f"*/{FILE_NAME}"), key=round_of)
        told = [outcome_of(read_transcript(path)) for path in paths]
        assert [each and each.aggregate_sha256 for each in told] == [each.aggregate_sha256 for each in results]
        assert [each and each.opens for each in told] == [each.opens for each in results]
        assert told[-1] is not None
        assert told[-1].head_sha256 == results[-1].artifact_sha256
        found = verify_together(paths, Trust.in_files((), (), (federation.folder / member.name,)))
        assert [each.verdict if isinstance(each, Verified) else str(each) for each in found] == ["verifies"] * 3
        if member.role == "client":
            assert len(Ledger(state, create=False).entries()) == 1
            assert len(Ledger(state, create=False).uploads()) == 3


@pytest.mark.long
@pytest.mark.parametrize(("protection", "mortal"), EVERY_PARTY)
def test_killed_after_every_write(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], protection: str, mortal: str
) -> None:
    """Whichever write a party has just made when it is killed, it goes on from there, and nothing else changes."""
    federation = federation_of(tmp_path, protection)
    deaths = Deaths(federation, mortal)
    deaths.run()
    check(federation)
    writes = writes_of(federation, mortal)
    with capfd.disabled():
        print(f"\n{protection}, {mortal}: killed {len(writes)} times")
    assert deaths.lives[mortal] == len(writes) + 1
    assert len(writes) > 60
    assert sum("sum.bin" in write for write in writes) >= 3 * 2


@pytest.mark.parametrize(
    ("mortal", "of"),
    [
        ("b", ("ledger", "sum.bin", "opening.bin")),
        (SERVER, ("uploads/1.bin", "sum.bin", "opening.bin")),
    ],
    ids=["client", "server"],
)
def test_killed_after_some_writes(tmp_path: Path, mortal: str, of: tuple[str, ...]) -> None:
    """Killed around sums, states, uploads and the ledger's rows: the same model, bytes and verdicts."""
    federation = federation_of(tmp_path, "masked")
    deaths = Deaths(federation, mortal, of)
    deaths.run()
    check(federation)
    assert deaths.lives[mortal] == len(writes_of(federation, mortal)) + 1 > 10
