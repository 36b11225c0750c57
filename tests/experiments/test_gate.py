"""A simulated class gate: one outcome whatever the protection, over partitions where one client alone holds a class."""

from typing import Any

import numpy as np
import pytest

import secagg
from secagg.errors import BadInput
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.sweep import AXES
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency, Unit
from secagg.protection import PROTECTIONS
from secagg.randomness import OperatingSystem
from tests.session.noise_checks import check_noise, distance, honest, noise_of
from tests.worlds.setups import exact, local, make_setup

LABELS = np.arange(300) % 5
FEATURES = np.random.default_rng(4).normal(size=(300, 20)) + 3 * np.eye(20)[LABELS]
PARTITION = {"clients": 6, "partition": "dirichlet:0.1", "seed": 1}
"""Class 4 is at one client; every other class is at three or more."""
NORMALISED = {"normalise": "centred-unit"}
SETTINGS = [NORMALISED, {**NORMALISED, "refine": 2}, {**NORMALISED, "method": "prototypes"}]
PROMISE = {"epsilon": 20_000.0, "delta": 1e-5, "adjacency": "add-remove"}
"""So little noise that the gate decides as the exact census would, but for a chance below 10⁻⁹."""


def simulated(**settings: Any) -> SimulationResult:
    """A simulation over the arrays of this module, tested on its own records."""
    given = {**PARTITION, "class_gate": 2, "colluders": 0, **settings}
    return secagg.simulate(FEATURES, LABELS, test_features=FEATURES, test_labels=LABELS, **given)


@pytest.mark.parametrize("settings", SETTINGS, ids=["fedcgs", "refined", "prototypes"])
def test_every_protection_leaves_out_the_same_and_opens_the_same(settings: dict[str, Any]) -> None:
    """The class of one client is left out, and sums and heads are the same under every protection."""
    runs = [simulated(protection=protection, **settings) for protection in PROTECTIONS]
    assert len({run.federated.result.aggregate_sha256 for run in runs}) == 1
    assert len({run.to_json()["head_sha256"] for run in runs}) == 1
    for run in runs:
        content = run.to_json()
        assert (content["classes_left_out"], content["class_gate"]) == (["4"], 2)
        assert run.head.present.tolist() == [True, True, True, True, False]
        assert content["accuracy"] < content["accuracy_reference"]


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("noise", ["client", "aggregator"])
def test_noise_does_not_bring_the_class_back(protection: str, noise: str) -> None:
    """With noise the same class is left out, and the head does not predict it, whoever adds the noise."""
    if (protection, noise) == ("encrypted", "aggregator"):
        pytest.skip("no plan has them together")
    run = simulated(protection=protection, noise=noise, refine=0, **PROMISE)
    assert run.to_json()["classes_left_out"] == ["4"]
    assert run.head.present.tolist() == [True, True, True, True, False]
    assert "over all 2 sums together" in run.to_json()["promise"]


@pytest.mark.parametrize("settings", SETTINGS, ids=["fedcgs", "refined", "prototypes"])
def test_gate_that_everything_passes_changes_nothing(settings: dict[str, Any]) -> None:
    """Where every class passes, the last sum and the head are those of the plan without a gate."""
    open_, none = (simulated(class_gate=gate, partition="iid", **settings) for gate in (2, 0))
    assert open_.to_json()["classes_left_out"] == none.to_json()["classes_left_out"] == []
    assert open_.federated.result.aggregate_sha256 == none.federated.result.aggregate_sha256
    assert open_.to_json()["head_sha256"] == none.to_json()["head_sha256"]


@pytest.mark.parametrize("partition", ["iid", "shards:1", "dirichlet:0.05"])
def test_main_sum_is_that_of_the_records_kept(partition: str) -> None:
    """The last sum is the exact one over the records of the classes that enough clients hold."""
    run = simulated(partition=partition, class_gate=1, clients=9, **NORMALISED)
    setup = run.federated.setup
    kept = [name not in run.to_json()["classes_left_out"] for name in setup.plan.classes]
    counts = run.federated.result.blocks["counts"]
    assert np.array_equal(counts > 0, kept)
    assert np.array_equal(run.federated.result.vector, exact(setup, local(setup, FEATURES, LABELS)))


def test_colluders_raise_the_gate() -> None:
    """The clients that may collude do not count for a class, one by default: more classes are left out."""
    found = [
        simulated(colluders=colluders, **NORMALISED).to_json()["classes_left_out"] for colluders in (0, None, 1, 2)
    ]
    assert found[0] == ["4"]
    assert set(found[0]) <= set(found[1])
    assert found[1:] == [found[2], found[2], ["1", "3", "4"]]


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_census_leaves_with_its_noise(unit: Unit, adjacency: Adjacency) -> None:
    """Five clients' censuses bear five shares of the planned noise, and the worst neighbours use its μ up."""
    setup = make_setup(dimension=12, classes=400, class_gate=1, unit=unit, adjacency=adjacency, epsilon=4.0)
    check_noise(setup, noise_of(setup, [OperatingSystem()] * 5), 5)
    empty, zero, one, every = (
        LocalRecords(np.ones((len(labels), 12), np.int64), np.array(labels, np.int64), np.zeros(len(labels), np.int64))
        for labels in ([], [0], [1], list(range(400)))
    )
    other = {Adjacency.ADD_REMOVE: empty, Adjacency.REPLACE_ONE: one}[adjacency]
    pair = (zero, other) if unit is Unit.RECORD else (every, empty)
    assert setup.sum.calibration is not None
    assert distance(setup, *pair) == pytest.approx(setup.sum.calibration.mu(honest(setup)))


def test_fewer_than_two_classes_are_refused() -> None:
    """Where no two classes pass there is nothing to tell apart, and the refusal says what to lower."""
    with pytest.raises(BadInput, match="0 of 5 classes are held by 6 clients or more") as refusal:
        simulated(class_gate=6, **NORMALISED)
    assert "lower the class gate" in str(refusal.value.remedy)


def test_gate_beyond_the_clients_is_refused() -> None:
    """A gate that no class can pass is refused before anything is summed."""
    with pytest.raises(BadInput, match="a class gate of 7, beyond 0 dropouts and 0 colluders, lets no class of 6"):
        simulated(class_gate=7)


def test_what_has_no_census_refuses_a_gate() -> None:
    """The papers' noise and the centralised baseline have no census."""
    with pytest.raises(BadInput, match="has no census"):
        simulated(method="prototypes", noise="fedtc:gaussian:0.1:0.1")
    with pytest.raises(BadInput, match="no class_gate"):
        simulated(method="dp-sgd", **PROMISE)


def test_gate_can_be_swept() -> None:
    """The gate is an axis like any other setting, off by default."""
    assert "class_gate" in AXES
    assert SimulationSettings().class_gate == 0
