"""What experiments tell of a plan's rounds: accuracy in the middle, ε spent by then, bytes; and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import pytest

from secagg.data import Dataset, open_dataset
from secagg.errors import BadInput
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.rounds import POINTS, EndedRound, RoundReport
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import NO_CALLBACKS, Callbacks, simulate, simulate_dataset
from secagg.privacy.gaussian import epsilon_of, mu_of

DELTA = 1e-5
NOISE: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA, "adjacency": "add-remove"}
DESCENT = "gradients=1 rate=1.0"


@pytest.fixture(scope="module")
def wine() -> Dataset:
    """178 records."""
    return open_dataset("wine")


def descent(data: Dataset, rounds: int, listeners: Callbacks = NO_CALLBACKS, **given: Any) -> SimulationResult:
    """Gradient descent in rounds, where nothing is random without noise."""
    chosen: dict[str, Any] = {"parameters": DESCENT, "protection": "none", "reference": False, **given}
    settings = SimulationSettings(method="fedavg", rounds=rounds, clients=3, **chosen)
    return simulate_dataset(data, settings, listeners)


def test_model_in_the_middle_is_that_of_a_shorter_plan(wine: Dataset) -> None:
    """After r rounds of many the accuracy, with its interval, is the one that a plan of r rounds ends with."""
    found = descent(wine, 5, every=1).to_json()["rounds"]
    assert [each["round"] for each in found] == [1, 2, 3, 4, 5]
    for number in (1, 3, 5):
        alone = descent(wine, number).to_json()
        assert found[number - 1]["accuracy"] == alone["accuracy"]
        assert found[number - 1]["accuracy_interval"] == alone["accuracy_interval"]


def test_nothing_is_spent_without_noise(wine: Dataset) -> None:
    """At ε = ∞ there is no ε to tell, the numbers are not marked, and bytes grow to what a client sent in all."""
    content = descent(wine, 4, every=2).to_json()
    assert [each["epsilon_spent"] for each in content["rounds"]] == [None, None]
    assert content["not_private"] == []
    first, last = content["rounds"]
    assert 0 < first["upload_bytes"] == last["upload_bytes"] // 2
    assert last["upload_bytes"] == content["upload_bytes_per_client"]


def test_epsilon_of_rounds(wine: Dataset) -> None:
    """ε after r of R equal sums is that of √(r/R)·μ, rounded up; the last is the plan's as accounted, never above."""
    result = descent(wine, 7, every=3, **NOISE)
    content, claim = result.to_json(), result.federated and result.federated.setup.facts.sum_claim
    spent = {each["round"]: each["epsilon_spent"] for each in content["rounds"]}
    assert list(spent) == [3, 6, 7]
    assert claim is not None
    assert spent[7] == claim.releases.epsilon(DELTA) <= NOISE["epsilon"]
    mu = mu_of(NOISE["epsilon"], DELTA)
    for number, epsilon in spent.items():
        expected = epsilon_of(mu * math.sqrt(number / 7), DELTA)
        assert expected * (1 - 1e-5) <= epsilon <= expected * (1 + 1e-3)
    assert "rounds" in content["not_private"]


def test_validation_is_measured_on_members_records(wine: Dataset) -> None:
    """Measured on held-out training records, the rounds are not private even at ε = ∞; without rounds nothing is."""
    assert "rounds" in descent(wine, 2, validate=0.3).to_json()["not_private"]
    one_shot = SimulationSettings(clients=3, validate=0.3, reference=False)
    assert "rounds" not in simulate_dataset(wine, one_shot).to_json()["not_private"]


def test_plan_of_one_sum_has_no_rounds(wine: Dataset) -> None:
    """What is done in one sum has nothing on the way; nor has a baseline."""
    assert simulate_dataset(wine, SimulationSettings(clients=3)).to_json()["rounds"] == []
    baseline = SimulationSettings(method="centralised", protection="none")
    assert simulate_dataset(wine, baseline).to_json()["rounds"] == []


def test_refinement_is_measured_from_the_first_head_on(wine: Dataset) -> None:
    """Every sum of a plan that refines gives a head; a census before them gives none, but has its bytes."""
    settings = SimulationSettings(clients=4, refine=3, class_gate=1)
    census, *heads = simulate_dataset(wine, settings).to_json()["rounds"]
    assert (census["accuracy"], census["accuracy_interval"]) == (None, None)
    assert 0 < census["upload_bytes"] < heads[0]["upload_bytes"]
    assert len(heads) == 4
    assert all(0 < each["accuracy"] <= 1 for each in heads)


@pytest.mark.parametrize(("rounds", "every"), [(4, 1), (50, 3), (100, 5)])
def test_usual_number_of_points(wine: Dataset, rounds: int, every: int) -> None:
    """Left open, about 20 rounds are measured however many there are, and the last always."""
    numbers = [each["round"] for each in descent(wine, rounds).to_json()["rounds"]]
    assert numbers[-1] == rounds
    assert numbers[0] == every
    assert len(numbers) <= POINTS


def test_watcher_hears_of_every_round(wine: Dataset) -> None:
    """Who watches is told of all rounds, measured or not, and of the last report there is."""
    heard: list[tuple[int, int, int | None]] = []

    def playing(number: int, rounds: int, report: RoundReport | None) -> None:
        heard.append((number, rounds, report.number if report else None))

    descent(wine, 5, Callbacks(playing=playing), every=2)
    assert heard == [(1, 5, None), (2, 5, 2), (3, 5, 2), (4, 5, 4), (5, 5, 5)]


def test_rounds_are_short_for_a_parameter() -> None:
    """`rounds` gives the plan what `rounds=` among the parameters gives it."""
    short = SimulationSettings(method="fedavg", rounds=7, parameters="rate=0.5")
    long = SimulationSettings(method="fedavg", parameters="rate=0.5 rounds=7")
    assert dict(short.method_parameters) == dict(long.method_parameters)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"method": "fedcgs", "rounds": 5},
            "no rounds; leave it out, or use one of fedavg, .*, mpft",
        ),
        ({"method": "fedavg", "rounds": 5, "parameters": "rounds=6"}, "given twice"),
        ({"method": "fedavg", "every": 0}, "every cannot be 0"),
    ],
    ids=["none", "twice", "never"],
)
def test_refused(given: dict[str, Any], words: str) -> None:
    """Rounds that a method does not have, rounds given twice and a measure after every 0 rounds are refused."""
    with pytest.raises(BadInput, match=words):
        SimulationSettings(**given)


def test_baseline_has_no_rounds(wine: Dataset) -> None:
    """A baseline refuses rounds by name."""
    with pytest.raises(BadInput, match="no rounds; leave out --rounds"):
        simulate_dataset(wine, SimulationSettings(method="centralised", protection="none", rounds=2))


def test_model_beyond_float32_is_refused_when_it_is_met(wine: Dataset) -> None:
    """A rate that leaves float32 is refused by what to do about it, not by a number that means nothing."""
    with pytest.raises(BadInput, match="lower rate"):
        descent(wine, 3, every=1, parameters="gradients=1 rate=1e30 server_rate=1e30")


def test_listener_hears_of_each_round_once(wine: Dataset) -> None:
    """`simulate` tells its listener of every round in order, with the latest report and seconds that do not fall."""
    told: list[EndedRound] = []
    result = simulate(wine, method="fedavg", rounds=5, every=2, clients=3, parameters=DESCENT, on_round=told.append)
    assert [(each.number, each.rounds) for each in told] == [(number, 5) for number in range(1, 6)]
    assert [each.report and each.report.number for each in told] == [None, 2, 2, 4, 5]
    assert [each.seconds for each in told] == sorted(each.seconds for each in told)
    assert told[-1].report == result.rounds[-1]


def test_what_a_listener_raises_reaches_the_caller(wine: Dataset) -> None:
    """An exception of a listener ends the simulation at its round, as it is."""
    told: list[EndedRound] = []

    def stop(ended: EndedRound) -> None:
        told.append(ended)
        raise KeyError("the listener's own")

    with pytest.raises(KeyError, match="the listener's own"):
        simulate(wine, method="fedavg", rounds=3, clients=3, parameters=DESCENT, on_round=stop)
    assert [each.number for each in told] == [1]


@pytest.mark.parametrize("listener", ["x", "", 0])
def test_listener_that_cannot_be_called_is_refused_before_anything_is_read(listener: Any) -> None:
    """`simulate` refuses an `on_round` that is not a function, with a remedy, before it opens the data set."""
    with pytest.raises(BadInput, match=r"on_round cannot be of type \w+; give a function, or None"):
        simulate("no/such/file.csv", on_round=listener)
