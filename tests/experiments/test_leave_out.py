"""Simulations that leave a domain out: its records reach no client and are all that accuracy is measured on."""

from dataclasses import replace

import numpy as np
import pytest

from secagg.data import Dataset, Records
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from secagg.experiments.simulation import simulate_dataset

DOMAINS = np.array(["art", "photo", "sketch"])
LEFT = SimulationSettings(leave_out="domain=photo", clients=4, radius=8.0)


def records(seed: int, count: int) -> Records:
    """Records of two classes in four dimensions and three domains; the domain moves them."""
    number = np.arange(count)
    labels, domain = number % 2, number // 2 % 3
    features = np.random.default_rng(seed).normal(size=(count, 4)) + labels[:, None] + domain[:, None] * [1, 0, -1, 0]
    return Records(features, labels, {"domain": DOMAINS[domain]}, Origin.of(f"made up {seed}", number))


def dataset() -> Dataset:
    """Sixty training records and thirty held-out ones."""
    return Dataset("domains", "features", records(1, 60), records(2, 30), ("a", "b"), None, None, None)


def test_left_out_records_reach_no_client() -> None:
    """No client holds a record of the domain, and all others are with one client each."""
    cast = SimulatedFederation.of(Features.of(dataset(), LEFT), LEFT)
    held = cast.features.dataset.train.take(np.concatenate(list(cast.rows.values())))
    assert set(held.columns["domain"]) == {"art", "sketch"}
    original = np.flatnonzero(dataset().train.columns["domain"] != "photo")
    assert sorted(held.origin.row.tolist()) == original.tolist()
    assert sum(map(len, cast.members.values())) == len(original)


def test_sum_is_that_of_the_other_records() -> None:
    """The sum has the bits that it has over data which never held the domain, whatever the domain's records are."""
    whole = dataset()
    left = simulate_dataset(whole, LEFT).to_json()
    others = whole.train.take(np.flatnonzero(whole.train.columns["domain"] != "photo"))
    never = simulate_dataset(replace(whole, train=others), replace(LEFT, leave_out=None)).to_json()
    assert left["aggregate_sha256"] == never["aggregate_sha256"]
    assert left["head_sha256"] == never["head_sha256"]
    for part in (whole.train, whole.test):
        assert part is not None
        part.inputs[part.columns["domain"] == "photo"] *= -1
    moved = simulate_dataset(whole, LEFT).to_json()
    assert moved["aggregate_sha256"] == left["aggregate_sha256"]
    assert moved["accuracy"] != left["accuracy"]


def test_accuracy_is_that_of_the_left_out_domain() -> None:
    """Accuracy is over the domain's training and held-out records alone; the others are in `by_domain` only."""
    result = simulate_dataset(dataset(), LEFT)
    found = result.to_json()["by_domain"]
    assert result.evaluation is not None
    assert result.evaluation.total == 20 + 10
    assert found["domains"]["photo"] == {
        "accuracy": result.evaluation.accuracy,
        "correct": result.evaluation.correct,
        "total": 30,
        "left_out": True,
    }
    assert found["left_out_domain"] == result.evaluation.accuracy
    inside = [found["domains"][name] for name in ("art", "sketch")]
    assert [(each["total"], each["left_out"]) for each in inside] == [(10, False)] * 2
    assert found["in_domain"] == pytest.approx((inside[0]["accuracy"] + inside[1]["accuracy"]) / 2)


@pytest.mark.parametrize("method", ["fedcgs", "prototypes", "local-only"])
def test_domains_sum_to_the_total(method: str) -> None:
    """With nothing left out the domains' records are the held-out records, each once, and so are the right ones.

    A method with several heads has a mean accuracy, whose counts are rounded: one record for each domain.
    """
    protection = "none" if method == "local-only" else "masked"
    result = simulate_dataset(dataset(), SimulationSettings(method=method, protection=protection, clients=3))
    assert result.evaluation is not None
    assert [each.domain for each in result.by_domain] == DOMAINS.tolist()
    assert sum(each.evaluation.total for each in result.by_domain) == result.evaluation.total
    mean = sum(each.evaluation.accuracy * each.evaluation.total for each in result.by_domain) / result.evaluation.total
    assert mean == pytest.approx(result.evaluation.accuracy)
    found = result.to_json()["by_domain"]
    assert found["left_out_domain"] is None
    assert not any(each["left_out"] for each in found["domains"].values())


def test_by_another_column() -> None:
    """Leaving out by another column than `domain` tells apart that column's values."""
    whole = dataset()
    for part in (whole.train, whole.test):
        assert part is not None
        part.columns["site"] = np.where(np.arange(len(part)) % 5 == 0, "x", "y")  # type: ignore[index]
    result = simulate_dataset(whole, replace(LEFT, leave_out="site=x"))
    assert [(each.domain, each.left_out) for each in result.by_domain] == [("x", True), ("y", False)]


def test_without_domains() -> None:
    """Data without the column have no accuracy by domain."""
    whole = dataset()
    train, test = (replace(part, columns={}) for part in (whole.train, whole.test) if part is not None)
    result = simulate_dataset(replace(whole, train=train, test=test), SimulationSettings(radius=8.0))
    assert result.by_domain == ()
    assert result.to_json()["by_domain"] is None


@pytest.mark.parametrize("text", ["domain", "domain=", "domain=*", "domain=clipart", "colour=red"])
def test_refused(text: str) -> None:
    """What is no value of a column is refused; a star is for sweeps and comparisons."""
    with pytest.raises(BadInput):
        simulate_dataset(dataset(), SimulationSettings(leave_out=text))


def test_costs_are_stated() -> None:
    """A federated run says what a client and the server computed."""
    content = simulate_dataset(dataset(), LEFT).to_json()
    assert content["client_seconds"] > 0
    assert content["server_seconds"] > 0
