"""Validation: accuracy on training records that no client holds, so that no constant is chosen on the test part."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.experiments.simulation import simulate_dataset
from secagg.experiments.sweep import sweep_dataset

VALIDATED = SimulationSettings(validate=0.25, clients=4, radius=8.0)


def records(seed: int, count: int) -> Records:
    """Records of three classes in four dimensions."""
    number = np.arange(count)
    features = np.random.default_rng(seed).normal(size=(count, 4)) + 2 * np.eye(4)[number % 3]
    return Records(features, number % 3, {}, Origin.of(f"made up {seed}", number))


def dataset(**changes: Any) -> Dataset:
    """A hundred and twenty training records and thirty held-out ones."""
    whole = Dataset("small", "features", records(1, 120), records(2, 30), ("a", "b", "c"), None, None, None)
    return replace(whole, **changes)


def held_out(settings: SimulationSettings = VALIDATED, whole: Dataset | None = None) -> set[int]:
    """The training rows that accuracy is measured on."""
    test = Features.of(whole or dataset(), settings).dataset.test
    assert test is not None
    assert set(test.origin.files) == {"made up 1"}
    return set(test.origin.row.tolist())


def test_held_out_records_reach_no_client() -> None:
    """Clients hold the other training records, each once; the held-out ones are the stated share of every class."""
    cast = SimulatedFederation.of(Features.of(dataset(), VALIDATED), VALIDATED)
    held = cast.features.dataset.train.take(np.concatenate(list(cast.rows.values())))
    assert sorted([*held.origin.row.tolist(), *held_out()]) == list(range(120))
    assert [sum(row % 3 == label for row in held_out()) for label in range(3)] == [10, 10, 10]


def test_the_same_records_are_held_out() -> None:
    """Seed, clients and noise do not move them; no run sees more of the records by running again."""
    private = {"epsilon": 4.0, "delta": 1e-5, "adjacency": "add-remove", "radius": None}
    for changes in ({"seed": 7}, {"clients": 3}, private):
        assert held_out(replace(VALIDATED, **changes)) == held_out()


def test_files_keep_their_records() -> None:
    """Where each file is a client, it keeps those of its records that are not held out."""
    parts = (("one", np.arange(50)), ("two", np.arange(50, 120)))
    features = Features.of(dataset(parts=parts), replace(VALIDATED, clients=None))
    assert features.dataset.parts is not None
    kept = [set(features.dataset.train.origin.row[rows].tolist()) for _, rows in features.dataset.parts]
    assert kept == [set(range(50)) - held_out(), set(range(50, 120)) - held_out()]


def test_nothing_is_measured_on_the_test_part() -> None:
    """The accuracy is of the held-out training records alone, whatever the test part is; it need not be there."""
    runs = [simulate_dataset(dataset(test=test), VALIDATED) for test in (records(2, 30), records(9, 30), None)]
    assert [run.evaluation.total for run in runs if run.evaluation] == [30, 30, 30]
    assert len({run.to_json()["accuracy"] for run in runs}) == 1


@pytest.mark.parametrize("epsilon", [4.0, float("inf")])
def test_validation_is_said_not_to_be_private(epsilon: float) -> None:
    """Whatever ε is, what is measured on members' records is listed as not private, and a note says why."""
    promise = {"epsilon": epsilon, "delta": 1e-3, "adjacency": "add-remove", "radius": None}
    content = simulate_dataset(dataset(), replace(VALIDATED, **promise)).to_json()
    assert content["validate"] == 0.25
    assert {"accuracy", "accuracy_interval", "accuracy_reference"} <= set(content["not_private"])
    assert any("30 of 120 training records are set aside for validation" in note for note in content["notes"])
    assert any("own records" in note and "epsilon" in note for note in content["notes"])
    assert simulate_dataset(dataset(), replace(VALIDATED, validate=0.0)).to_json()["not_private"] == []


@pytest.mark.parametrize("settings", [{"validate": -0.1}, {"validate": 1.0}, {"validate": 0.2, "leave_out": "a=b"}])
def test_what_cannot_be_held_out_is_refused(settings: dict[str, Any]) -> None:
    """A fraction is from 0 to below 1, and goes with no other records that are left out."""
    with pytest.raises(BadInput, match="validate cannot be"):
        SimulationSettings(**settings)


def test_a_share_of_no_record_is_refused() -> None:
    """Where not one record would be held out, there is nothing to measure on, and the run is refused."""
    with pytest.raises(BadInput, match=r"0\.0001 of 120 records is none"):
        simulate_dataset(dataset(), replace(VALIDATED, validate=0.0001))


def test_baselines_are_validated_on_the_same_records() -> None:
    """A baseline is measured on the records that a method with the same settings is measured on."""
    open_ = replace(VALIDATED, method="centralised", protection="none", radius=None)
    result = simulate_dataset(dataset(), open_)
    assert held_out(open_) == held_out()
    assert result.evaluation is not None
    assert result.evaluation.total == 30
    assert "accuracy" in result.to_json()["not_private"]


def test_sweep_validates(tmp_path: Any) -> None:
    """A sweep takes the fraction like any setting, and lists what is not private."""
    result = sweep_dataset(dataset(), {"validate": [0.25], "clients": [4], "radius": [8.0]}, 1, tmp_path, workers=1)
    direct = simulate_dataset(dataset(), VALIDATED).to_json()
    assert [run.result["accuracy"] for run in result.runs if run.result] == [direct["accuracy"]]
    assert "accuracy" in result.to_json()["not_private"]
    assert result.table.caption.startswith("Accuracy (%) on 25 % of the training records of small, held out:")


def test_captions_name_the_records(tmp_path: Any) -> None:
    """Where a sweep tries several fractions, its caption names every kind of records that accuracy is measured on."""
    grid = {"validate": [0.0, 0.25], "clients": [4], "radius": [8.0]}
    said = "Accuracy (%) on the held-out records of small or 25 % of the training records of small, held out:"
    assert sweep_dataset(dataset(), grid, 1, tmp_path, workers=1).table.caption.startswith(said)
