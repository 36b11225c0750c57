"""Reproducible noise: the same bits for the same seed, and fresh noise without one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg
from secagg.data import Dataset
from secagg.errors import BadInput
from secagg.experiments.sweep import sweep_dataset
from secagg.randomness import SeededRandomness
from tests.experiments.test_sweep import dataset

PRIVATE = {"epsilon": 2.0, "delta": 1e-5, "adjacency": "add-remove"}
SETTINGS: dict[str, dict[str, Any]] = {
    "clients' noise": {**PRIVATE, "clients": 4},
    "clients' noise, part of it from seeds": {**PRIVATE, "clients": 4, "dropouts": 1},
    "noise of who opens": {**PRIVATE, "clients": 4, "noise": "aggregator"},
    "two aggregators' noise": {**PRIVATE, "clients": 4, "protection": "shared", "noise": "aggregator"},
    "rounds": {**PRIVATE, "clients": 4, "refine": 2},
    "a server that trains": {**PRIVATE, "clients": 4, "method": "fedtc", "parameters": "slots=2 epochs=20"},
    "a baseline": {**PRIVATE, "method": "dp-sgd", "parameters": "epochs=2 batches=4"},
}


def data() -> Dataset:
    """Records of three classes in four dimensions."""
    return dataset()


def head(**settings: Any) -> str:
    """The digest of what a run released."""
    records = data()
    assert records.test is not None
    made = secagg.simulate(
        records.train.inputs,
        records.train.labels,
        test_features=records.test.inputs,
        test_labels=records.test.labels,
        **settings,
    ).to_json()
    assert isinstance(made["head_sha256"], str)
    return made["head_sha256"]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_same_seed_same_bits(settings: dict[str, Any]) -> None:
    """One seed gives one head, another seed another, and another partition is not under the same noise."""
    first = head(**settings, noise_seed=7)
    assert head(**settings, noise_seed=7) == first
    assert head(**settings, noise_seed=8) != first
    assert head(**settings, noise_seed=7, seed=1) != first


def test_same_bits_in_any_number_of_processes(tmp_path: Path) -> None:
    """A sweep of one process, one of two and single simulations have the same heads under the same seed."""
    grid = {name: [value] for name, value in PRIVATE.items()} | {"clients": [3, 5], "noise_seed": [7]}
    one, two = (sweep_dataset(data(), grid, 2, tmp_path / str(workers), workers=workers).runs for workers in (1, 2))
    found = [[run.result and run.result["head_sha256"] for run in runs] for runs in (one, two)]
    assert found[0] == found[1]
    assert len(set(found[0])) == 4
    assert found[0][3] == head(**PRIVATE, clients=5, seed=1, noise_seed=7)


def test_noise_is_fresh_without_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a seed two runs differ, and no seeded stream is made."""

    def refuse(*_: object) -> None:
        raise AssertionError("a seeded stream was made")

    monkeypatch.setattr(SeededRandomness, "__init__", refuse)
    assert head(**SETTINGS["clients' noise"]) != head(**SETTINGS["clients' noise"])
    with pytest.raises(AssertionError, match="seeded stream"):
        head(**SETTINGS["clients' noise"], noise_seed=7)


def test_exact_runs_claim_nothing_of_noise() -> None:
    """At epsilon inf a seed changes no bit, and nothing is said of noise that there is not."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, 4)), np.arange(60) % 3
    seeded, plain = (secagg.simulate(features, labels, noise_seed=seed).to_json() for seed in (7, None))
    assert seeded["aggregate_sha256"] == plain["aggregate_sha256"]
    assert seeded["reproducible_noise"] is None
    assert math.inf == float(seeded["epsilon"])


@pytest.mark.parametrize("seed", [-1, 1 << 63, 1.5, True])
def test_seeds_that_cannot_be(seed: Any) -> None:
    """Numbers out of range and what is no whole number are refused by name."""
    with pytest.raises(BadInput, match=r"noise.seed cannot be"):
        head(noise_seed=seed)
