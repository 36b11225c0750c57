"""Trainings with private states as real processes over gRPC, killed by SIGKILL: a member keeps what it had, once."""

import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from secagg.ledger import Ledger
from secagg.plan_facts.planning import PublicData
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.protection.messages import UploadHeader
from secagg.session.sealed_state import STATE_FILE
from secagg.transcript import FILE_NAME, payload_of, peek, read_transcript
from secagg.verification.transcript_series import verify_together
from secagg.verification.verification import Trust, Verified
from tests.federation import test_adapters, test_fraug
from tests.federation.killed import run_killing, sessions
from tests.worlds.encoders import SIDE, save_encoder, save_triplets
from tests.worlds.processes import Processes, processes
from tests.worlds.rosters import SERVER

NAMES = ("a", "b", "c")
ROUNDS = 3
ENDS = {"fraug": {"own"}, "feddat": {"shared", "personal"}}
"""Kinds of models that members of a method end with."""


@pytest.fixture(params=ENDS)
def federation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Processes]:
    """Three members and a server, with a plan of three rounds without noise; nobody runs yet."""
    given: dict[str, Any] = {"method": request.param, "epsilon": inf, "radius": None, "result": "members"}
    given |= dict.fromkeys(("join_seconds", "step_seconds", "round_seconds"), 120)
    if request.param == "fraug":
        given |= {"parameters": tuple((test_fraug.PARAMETERS | {"rounds": ROUNDS}).items())}
    else:
        backbone = f"transformers:{save_encoder(tmp_path / 'vilt')}"
        data = PublicData("triplets", (3 * SIDE**2 + 256,), ("0", "1", "2"), None, None)
        given |= {"parameters": tuple((test_adapters.PARAMETERS | {"rounds": ROUNDS}).items())}
        given |= {"backbone": backbone, "data": data, "radius": 1.01}
    with processes(tmp_path, 8, names=NAMES, **given) as found:
        for name in NAMES:
            policy = replace(policy_accepting(found.plan, name), refinement_without_noise=True)
            (tmp_path / name / "policy.toml").write_text(policy.to_toml())
        yield found


def start(federation: Processes, name: str) -> None:
    """Start a party, or start it again; members of adapters have triplets and the encoder."""
    if name == SERVER or federation.plan.method != "feddat":
        return federation.start(name)
    source = federation.folder / f"{name}.triplets"
    if not source.exists():
        save_triplets(source, 8 + len(list(federation.folder.glob("*.triplets"))), ("colours",), seed=ord(name))
    backbone = f"transformers:{federation.folder / 'vilt'}"
    return federation.start(name, "--data", str(source), "--backbone", backbone)


def said_once(transcript: Path) -> bool:
    """Whether a member has announced exactly one vector."""
    bodies = [peek(each.content) for each in read_transcript(transcript) if each.kind == "sent"]
    return len({payload_of(each, UploadHeader) for each in bodies if each.step == UploadHeader.__name__}) == 1


@pytest.mark.long
@pytest.mark.parametrize("mortal", [SERVER, "b"])
def test_killed_in_the_second_round(federation: Processes, mortal: str) -> None:
    """Whoever dies with a vector under way goes on: a vector each round, a private state each, models of one's own."""
    run_killing(federation, mortal, start=start)
    heads = set()
    for name in NAMES:
        state = federation.folder / name / "state"
        paths = [each / FILE_NAME for each in sessions(federation, name)]
        found = verify_together(paths, Trust.in_files((), (), (federation.folder / name,)))
        assert [each.verdict if isinstance(each, Verified) else str(each) for each in found] == ["verifies"] * ROUNDS
        assert all(map(said_once, paths))
        assert [path.parent for path in state.glob(f"*/{STATE_FILE}")] == [paths[-1].parent]
        own = {path.stem.removeprefix("personal-") for path in paths[-1].parent.glob("personal-*.safetensors")}
        assert own == ENDS[federation.plan.method]
        heads.add((paths[-1].parent / "head.safetensors").read_bytes())
        assert len(Ledger(state, create=False).entries()) == 1
        assert len(Ledger(state, create=False).uploads()) == ROUNDS
    assert len(heads) == 1
    result = json.loads(next((federation.folder / SERVER / "state").glob("*/result.json")).read_text())
    assert result["rounds"] == ROUNDS
    assert result["members"] == list(NAMES)
