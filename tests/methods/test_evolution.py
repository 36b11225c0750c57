"""Settings and how they move: spaces, FedPop's operators against values worked out by hand, and golden bits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods import method_named
from methods.search.population import Draws, Population, Search, annealed, draw_beside, draw_settings, evolve, extremes
from methods.search.space import Space
from secagg.errors import BadInput

KNOWN = method_named("fedavg").parameters
TUNABLE = ("batch", "epochs", "rate", "server_rate")
SPACE = Space.read("rate=log:0.001:1 epochs=1:5 batch=8|32|16 server_rate=0.5:1.5", KNOWN, TUNABLE)
"""In the order of their names: batch, epochs, rate, server_rate."""
SEED = bytes(range(32))
GOLDEN_DRAWS = [369, 743, 543, 339, 574, 409]
GOLDEN_ORDER = [0, 4, 1, 5, 3, 2]
GOLDEN_PLACES = (1.0, 3.0, 0.5433456817060055, 0.33911542392680916)
GOLDEN_PARENTS = [0, 1, 2, 2, 1]
GOLDEN_SETTINGS = [
    {"batch": 32, "epochs": 4, "rate": 0.0426616, "server_rate": 0.839115},
    {"batch": 32, "epochs": 3, "rate": 0.00445033, "server_rate": 0.542782},
    {"batch": 16, "epochs": 4, "rate": 0.265302, "server_rate": 0.81725},
    {"batch": 32, "epochs": 5, "rate": 0.21427, "server_rate": 0.734977},
    {"batch": 32, "epochs": 3, "rate": 0.0030866, "server_rate": 1.23268},
]
GOLDEN_COHORTS = [2.0, 4.0, 1.0, 3.0, 0.0]
places = st.tuples(st.integers(0, 2), st.integers(0, 4), st.floats(0, 1), st.floats(0, 1)).map(
    lambda found: tuple(map(float, found))
)


def search_of(**given: object) -> Search:
    """A search of five configurations."""
    return Search(**{"kind": "evolution", "space": SPACE, "configurations": 5, "variants": 1, "rounds": 30,
                     "interval": 5, **given})  # type: ignore[arg-type]  # fmt: skip


def test_settings_at_places() -> None:
    """Both ends, the geometric and the arithmetic middle, and values by their number."""
    assert SPACE.at((0.0, 0.0, 0.0, 0.0)) == {"batch": 8, "epochs": 1, "rate": 0.001, "server_rate": 0.5}
    assert SPACE.at((1.0, 4.0, 1.0, 1.0)) == {"batch": 32, "epochs": 5, "rate": 1.0, "server_rate": 1.5}
    middle = SPACE.at((2.0, 2.0, 0.5, 0.5))
    assert middle == {"batch": 16, "epochs": 3, "rate": 0.0316228, "server_rate": 1.0}
    assert math.isclose(float(middle["rate"]), math.sqrt(0.001), rel_tol=1e-6)


@given(places)
def test_places_stay_within_bounds(at: tuple[float, ...]) -> None:
    """Whatever is drawn, evolved or taken beside lies in the space, and so do the settings."""
    draws = Draws(SEED)
    for found in (
        draw_settings(SPACE, draws),
        draw_beside(SPACE, at, draws, TUNABLE),
        evolve(SPACE, at, 0.1, 0.5, draws, TUNABLE),
        evolve(SPACE, at, 5.0, 0.0, draws, TUNABLE),
    ):
        assert SPACE.holds(found)
        settings = SPACE.at(found)
        assert 0.001 <= float(settings["rate"]) <= 1
        assert 0.5 <= float(settings["server_rate"]) <= 1.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are no settings to try"),
        ("clip=0.1:1", "clip is no setting that may be tried; choose among batch"),
        ("rate=1:0.1", "cannot lie between"),
        ("rate=log:0:1", "no logarithm"),
        ("rate=nan:1", "cannot"),
        ("rate=0.1:1 rate=0.1:2", "each once"),
        ("epochs=1.5:2", "cannot be"),
        ("epochs=log:1:5", "give whole numbers"),
        ("epochs=1:100000", "give whole numbers"),
        ("batch=8|8", "each once"),
        ("batch", "no settings are read from"),
    ],
)
def test_what_is_no_space_is_refused(text: str, words: str) -> None:
    """With what would be one; a clip is nothing to be tried."""
    with pytest.raises(BadInput, match=words):
        Space.read(text, KNOWN, TUNABLE)


def test_whole_numbers_mutate() -> None:
    """A whole number goes to either neighbour or stays, each about as often: printed Eq. 3 never moves it."""
    draws = Draws(SEED)
    found = [evolve(SPACE, (1.0, 2.0, 0.5, 0.5), 0.1, 0.0, draws, TUNABLE) for _ in range(600)]
    for setting, around in ((0, 1), (1, 2)):
        counts = [sum(each[setting] == around + step for each in found) for step in (-1, 0, 1)]
        assert sum(counts) == 600
        assert min(counts) > 150
    assert max(abs(each[2] - 0.5) for each in found) <= 0.1
    assert max(each[2] for each in found) > 0.59


def test_only_what_is_moved_moves() -> None:
    """FedPop-L leaves the server's settings alone."""
    at = (1.0, 2.0, 0.5, 0.5)
    own = search_of().own_names
    assert own == ("batch", "epochs", "rate")
    assert {evolve(SPACE, at, 0.1, 1.0, Draws(bytes([seed]) * 32), own)[3] for seed in range(20)} == {0.5}


def test_annealing_is_a_cosine() -> None:
    """Eq. 4 at its beginning, middle and end, to the last bits but a few."""
    assert annealed(0.1, 0, 30) == 0.1
    assert math.isclose(annealed(0.1, 15, 30), 0.05, rel_tol=1e-14)
    assert annealed(0.1, 30, 30) == annealed(0.1, 31, 30) == 0.0
    for done in range(30):
        assert math.isclose(annealed(0.1, done, 30), 0.05 * (1 + math.cos(math.pi * done / 30)), abs_tol=1e-15)


@pytest.mark.parametrize(
    ("scores", "best", "worst"),
    [
        ([1.0], [], []),
        ([2.0, 1.0], [1], [0]),
        ([3, 1, 2], [1], [0]),
        ([5, 4, 3, 2, 1], [4, 3], [1, 0]),
        ([1, 1, 1, 1], [0, 1], [2, 3]),
    ],
)
def test_best_and_worst(scores: list[float], best: list[int], worst: list[int]) -> None:
    """Within the lowest third and beyond two thirds, as quantiles; never the same ones."""
    assert extremes(scores) == (best, worst)


def test_draws_are_golden() -> None:
    """A seed gives these numbers, on every machine and in every version."""
    draws = Draws(SEED)
    assert [draws.below(1000) for _ in range(6)] == GOLDEN_DRAWS
    assert Draws(SEED).shuffled(6) == GOLDEN_ORDER
    assert draw_settings(SPACE, Draws(SEED)) == GOLDEN_PLACES


def test_evolution_is_golden() -> None:
    """Scores and a seed give these replacements, settings and cohorts, on every machine and in every version."""
    search = search_of()
    population = Population.first(search, Draws(SEED)).measured(np.array([3.0, 1.0, 2.0, 5.0, 4.0]))
    following, parents = population.following(search, 5, np.zeros((5, 1)), Draws(SEED))
    assert parents == GOLDEN_PARENTS
    assert [search.space.at(tuple(each.tolist())) for each in following.places] == GOLDEN_SETTINGS
    assert following.order.tolist() == GOLDEN_COHORTS
    kept = [place for place in range(5) if parents[place] == place]
    assert np.array_equal(following.places[kept], population.places[kept])
    assert np.array_equal(following.tried[:, 0], following.places)


def test_scores_are_discounted_means() -> None:
    """Eq. 5: Σ γ^(T−r)·s_r / Σ γ^(T−r), from one replacement to the next."""
    search, rounds = search_of(), np.arange(35.0).reshape(7, 5)
    population = Population.first(search, Draws(SEED))
    for number, found in enumerate(rounds, start=1):
        population = population.measured(found)
        since = rounds[:number] if number <= 5 else rounds[5:number]
        weights = 0.9 ** np.arange(len(since))[::-1]
        assert np.allclose(population.scores, weights @ since / weights.sum())
        population, _ = population.following(search, number, np.zeros((5, 1)), Draws(bytes([number]) * 32))


def test_neighbours_are_tried_while_a_configuration_is_new() -> None:
    """FedPop-L replaces what the worst cohorts tried by neighbours of what the best did, then leaves it."""
    search = search_of(configurations=2, variants=3, interval=10)
    population = Population.first(search, Draws(SEED)).measured(np.zeros(2))
    assert len({tuple(each) for each in population.tried.reshape(-1, 4).tolist()}) == 6
    assert np.array_equal(population.tried[:, :, 3], population.places[:, None, 3].repeat(3, axis=1))
    found = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    following, parents = population.following(search, 1, found, Draws(SEED))
    changed = (following.tried != population.tried).any(axis=2)
    assert changed.tolist() == [[False, False, True], [True, False, False]]
    assert parents == [0, 1]
    for _ in range(2):
        following = following.measured(np.zeros(2))
    later, _ = following.following(search, 3, found, Draws(SEED))
    assert np.array_equal(later.tried, following.tried)


def test_halving_gives_up_two_of_three() -> None:
    """Of nine three stay after a third of the rounds, one after two thirds; cohorts go on with who is left, evenly."""
    search = search_of(kind="halving", configurations=9, rounds=9)
    population, alive = Population.first(search, Draws(SEED)), []
    for number in range(1, 9):
        population = population.measured(np.arange(9.0))
        population, parents = population.following(search, number, np.zeros((9, 1)), Draws(bytes([number]) * 32))
        alive.append(int(population.alive.sum()))
        assert population.holds(search)
        assert set(np.bincount(population.order.astype(int), minlength=9)) <= {0, 9 // alive[-1]}
        assert parents == list(range(9))
    assert alive == [9, 9, 3, 3, 3, 1, 1, 1]
    assert population.best == 0


def test_evolution_within_halving_round_by_round() -> None:
    """Every second round neighbours of the best of those left replace the worst; halving's own rounds only drop.

    Nine configurations in twelve rounds: halving drops after rounds 4 and 8. Dropped ones have the lowest losses then.
    """
    search = search_of(kind="evolution-in-halving", configurations=9, rounds=12, interval=2)
    population, scores = Population.first(search, Draws(SEED)), []
    early, middle = [*range(9)], [5, 4, 3, 9, 9, 9, 2, 9, 9]
    late, last = [0, 1, 2, 0, 0, 0, 3, 0, 0], [0, 3, 3, 0, 0, 0, 0, 0, 0]
    found = [early, early, middle, middle, late, late, late, last, late, late, late]
    replaced, alive = {}, {}
    for number, losses in enumerate(found, start=1):
        before = population.measured(np.array(losses, dtype=float))
        scores.append(before.scores.tolist())
        population, parents = before.following(search, number, np.zeros((9, 1)), Draws(bytes([number]) * 32))
        replaced[number] = {place: parent for place, parent in enumerate(parents) if place != parent}
        alive[number] = np.flatnonzero(population.alive).tolist()
        moved = (population.places != before.places).any(axis=1)
        assert set(np.flatnonzero(moved)) <= set(replaced[number])
        assert population.age[list(replaced[number])].tolist() == [0.0] * len(replaced[number])
        assert population.holds(search)
        assert set(np.bincount(population.order.astype(int), minlength=9)) <= {0, 9 // len(alive[number])}
    assert {number: sorted(each) for number, each in replaced.items() if each} == {2: [6, 7, 8], 6: [6]}
    assert set(replaced[2].values()) <= {0, 1, 2}
    assert replaced[6] == {6: 1}
    assert list(alive.values()) == [list(range(9))] * 3 + [[1, 2, 6]] * 4 + [[6]] * 4
    assert scores[3] == pytest.approx(middle)
    assert scores[4] == pytest.approx([5, 1, 2, 9, 9, 9, 3, 9, 9])
    assert scores[7] == pytest.approx([5, 3.9 / 1.9, 4.8 / 1.9, 9, 9, 9, 2.7 / 1.9, 9, 9])
    assert population.best == 6


def test_settings_beside_a_dropped_configuration_stay() -> None:
    """Within halving FedPop-L moves what cohorts of the configurations left tried, not what those dropped had tried."""
    search = search_of(kind="evolution-in-halving", configurations=3, variants=3, rounds=12, interval=10)
    first = Population.first(search, Draws(SEED)).measured(np.zeros(3))
    population = replace(first, alive=np.array([0.0, 1.0, 0.0]))
    following, _ = population.following(search, 1, np.array([[1.0, 2.0, 3.0]] * 3), Draws(SEED))
    assert (following.tried != first.tried).any(axis=2).tolist() == [[False] * 3, [False, False, True], [False] * 3]


@pytest.mark.parametrize("kind", ["evolution", "random", "halving", "evolution-in-halving"])
def test_cohorts_are_dealt_evenly(kind: str) -> None:
    """In each round every setting that is tried has one cohort; not the same one in every round."""
    search = search_of(kind=kind, rounds=1000)
    population, orders = Population.first(search, Draws(SEED)), set()
    for number in range(1, 20):
        population = population.measured(np.arange(5.0))
        population, _ = population.following(search, number, np.zeros((5, 1)), Draws(bytes([number]) * 32))
        orders.add(tuple(population.order))
        assert sorted(population.order) == list(range(5))
    assert len(orders) > 10
    assert [population.arm_of(member) for member in (1, 6, 11)] == [int(population.order[1])] * 3
