"""What runs without noise give is computed once for all runs that it is the reference of, and can be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from secagg.experiments import simulation
from secagg.experiments.features import Clock, Features
from secagg.experiments.reference import References
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset, simulate_features
from tests.experiments.test_sweep import dataset

NOISY = SimulationSettings(clients=3, epsilon=4.0, delta=1e-5, adjacency="add-remove", normalise="centred-unit")


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The references that are computed from now on."""
    made, compute = [], simulation.pooled_result

    def counted(*given: Any) -> Any:
        made.append(given)
        return compute(*given)

    monkeypatch.setattr(simulation, "pooled_result", counted)
    return made


def reference(settings: SimulationSettings, references: References | None) -> object:
    """The accuracy of a run's reference."""
    features = Features.of(dataset(), settings)
    return simulate_features(features, settings, Clock(), references=references).to_json()["accuracy_reference"]


@pytest.mark.parametrize("shared", [True, False])
def test_computed_once(computed: list[object], tmp_path: Path, shared: bool) -> None:
    """Runs that differ in ε, clients, partition, protection or seed have one reference, others have their own."""
    references = References(str(tmp_path), tmp_path if shared else None)
    same = [{"epsilon": 1.0}, {"clients": 5}, {"partition": "dirichlet:0.5"}, {"protection": "none"}, {"seed": 3}]
    found = {reference(replace(NOISY, **changed), references) for changed in ({}, *same)}
    assert (len(found), len(computed)) == (1, 1)
    for changed in ({"covariance": "total"}, {"method": "prototypes"}, {"expand": 16}, {"levels": 2048}):
        reference(replace(NOISY, **changed), references)
    assert len(computed) == 5


def test_same_as_alone(tmp_path: Path) -> None:
    """Taken over from another run or computed for itself alone, the number is one."""
    references = References(str(tmp_path), tmp_path)
    reference(replace(NOISY, seed=1), references)
    assert reference(NOISY, references) == reference(NOISY, None)


def test_shared_between_processes(computed: list[object], tmp_path: Path) -> None:
    """What one process has computed another one reads: here the second knows nothing but the folder."""
    for process in ("one", "other"):
        reference(NOISY, References(process, tmp_path))
    assert len(computed) == 1


def test_exact_run_is_its_own_reference(computed: list[object]) -> None:
    """Without noise, and with every client in the sum, nothing is computed again; with one missing it is."""
    exact = SimulationSettings(clients=4, radius=8.0)
    content = simulate_dataset(dataset(), exact).to_json()
    assert content["accuracy_reference"] == content["accuracy"]
    assert computed == []
    simulate_dataset(dataset(), replace(exact, dropouts=1))
    assert len(computed) == 1


def test_left_out(computed: list[object]) -> None:
    """Without a reference nothing of it is computed, and the run's own bits stay."""
    with_one, without = (
        simulate_dataset(dataset(), replace(NOISY, noise_seed=3, reference=each)).to_json() for each in (True, False)
    )
    assert (without["accuracy_reference"], len(computed)) == (None, 1)
    assert without["head_sha256"] == with_one["head_sha256"]
