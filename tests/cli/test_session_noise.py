"""`secagg audit` of recorded sessions whose members drew the planned noise, or less of it."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.encoding import Normalisation
from secagg.plan_facts.records import read_records
from secagg.privacy import discrete_gaussian
from secagg.session import round_setup as contribution
from tests.cli.command import Command, Said
from tests.worlds.federation import SimulatedFederation, run_federation

pytestmark = pytest.mark.usefixtures("repeatable_chance")

MEMBERS, EACH, DIMENSION = 4, 400, 64


def population(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records of three classes that overlap."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(3, count, p=(0.5, 0.3, 0.2))
    return generator.normal(size=(count, DIMENSION)) + 0.5 * np.eye(3)[labels] @ np.ones((3, DIMENSION)), labels


def save(path: Path, features: np.ndarray, labels: np.ndarray) -> Path:
    """A table of records."""
    np.savez(path, features=features, labels=labels)
    return path


class Lab:
    """One recorded session at ε = 2 whose members' σ is `factor` times what the plan says, and everybody's records."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, factor: float, normalisation: Normalisation) -> None:
        def short(segments: Any, randomness: Any) -> Any:
            return np.rint(factor * discrete_gaussian(segments, randomness)).astype(np.int64)

        patch.setattr(contribution, "discrete_gaussian", short)
        world = SimulatedFederation.of(
            folder, MEMBERS, 0, dimension=DIMENSION, epsilon=2.0, max_records=512, normalise=normalisation
        )
        whole = population(MEMBERS * EACH, seed=3)
        parts = [tuple(each[place::MEMBERS] for each in whole) for place in range(MEMBERS)]
        self.files = {
            "all": save(folder / "all.npz", *whole),
            "one": save(folder / "one.npz", *parts[0]),
            "strangers": save(folder / "strangers.npz", *population(800, seed=4)),
            "public": save(folder / "public.npz", *population(1600, seed=5)),
        }
        for member, part in zip(world.setup.roster.clients, parts, strict=True):
            path = save(folder / f"member-{member}.npz", *part)
            world.records[member] = read_records(world.setup.plan, str(path))
        self.transcript = world.transcripts(0, asyncio.run(run_federation(world)).stages)[0]

    def audit(self, secagg: Command, known: str) -> Said:
        """The audit of the server's transcript by somebody who has these records."""
        asked = ("audit", self.transcript, "--threat-model", "curious_server", "--json", "-")
        return secagg(*asked, "--known", self.files[known], "--public", self.files["public"])


@pytest.mark.long
@pytest.mark.parametrize("factor", [1.0, 0.0, 0.7, 0.8])
def test_exit_code_follows_the_noise_of_the_session(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """Too little noise never ends with 0, nor green; the planned noise ends with 0 where all records are known."""
    lab = Lab(tmp_path, monkeypatch, factor, Normalisation.CENTRED_UNIT)
    codes, states = {}, {}
    for known in ("all", "one", "strangers"):
        said = lab.audit(secagg, known)
        codes[known], states[known] = said.code, said.json["state"]
        assert "would have shown it" not in said.json["promise"]["measured"]["sentence"]
        assert "says nothing about the noise that this session drew" in said.json["promise"]["measured"]["sentence"]
    if factor == 1.0:
        assert codes["all"] == 0
        assert 1 not in codes.values()
    else:
        assert codes["all"] == 1
        assert 0 not in codes.values()
        assert not {"withstood", "allowed by the gate"} & set(states.values())
    if factor == 0.0:
        assert set(codes.values()) == {1}


def test_session_of_which_nothing_is_known_ends_alike(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no sum is zero without noise a session with and one without enough get the same words and code 4."""
    said = []
    for factor in (1.0, 0.7):
        (folder := tmp_path / str(factor)).mkdir()
        found = Lab(folder, monkeypatch, factor, Normalisation.UNIT).audit(secagg, "strangers")
        assert (found.code, found.json["state"]) == (4, "could not tell")
        assert found.json["promise"]["measured"]["power"] == ""
        assert "The noise of this session is not known." in found.json["headline"]
        said.append([line for line in found.json["gate"]["lines"] if line["attack"] == "noise"])
    assert said[0] == said[1]
    assert [line["outcome"] for line in said[0]] == ["inconclusive"]
