"""One run with canaries."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from secagg.errors import BadInput
from secagg.privacy import Adjacency, OpenedNoise
from secagg.statistics import accumulate
from tests.parties.promised import promised
from threat_models.estimation import Canaries, canary_scores, draw_canaries, one_run
from threat_models.estimation.one_run import p_value

PLAN = promised(dimension=256, classes=4, epsilon=8.0).plan


@pytest.mark.parametrize(("canaries", "largest"), [(10, 1.05), (100, 3.49), (1000, 5.81)])
def test_all_guesses_right(canaries, largest):
    """The most that so many canaries can show, at 95 % and δ = 0; a δ shows a little less."""
    coins = np.arange(canaries) % 2 == 0
    guesses = (canaries // 2, canaries // 2)
    bound = one_run(coins.astype(float), coins, guesses=guesses, delta=0.0)
    assert bound.lower == bound.largest == pytest.approx(largest, abs=5e-3)
    assert one_run(coins.astype(float), coins, guesses=guesses, delta=1e-5).lower <= bound.lower


def test_p_value_by_hand():
    """For three guesses of four coins, two right, the bound is the formula's, written out."""
    q, delta = 1 / (1 + math.exp(-0.5)), 1e-3
    pmf = [binom.pmf(k, 3, q) for k in range(4)]
    alpha = max(pmf[1], (pmf[1] + pmf[0]) / 2)
    assert p_value(4, 3, 2, 0.5, delta) == pytest.approx(pmf[2] + pmf[3] + 8 * delta * alpha)
    assert p_value(4, 3, 0, 0.5, delta) == 1.0


@pytest.mark.parametrize("guesses", [(100, 100), (20, 20), (500, 500)])
def test_null_scores_claim_no_epsilon(guesses):
    """Scores without the canaries give ε > 0 in no more of 1,000 seeds than 5 % explain (false failures: 1e-6)."""
    claims = 0
    for seed in range(1_000):
        generator = np.random.default_rng(seed)
        coins = generator.random(1_000) < 0.5
        claims += one_run(generator.normal(size=1_000), coins, guesses=guesses, delta=1e-5).lower > 0
    assert claims <= binom.isf(1e-6, 1_000, 0.05)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_not_overstated(epsilon):
    """Coins told with the best (ε, 0)-private noise: above ε in no more of 500 runs than 5 % explain, and near it."""
    q, bounds = 1 / (1 + math.exp(-epsilon)), []
    for seed in range(500):
        generator = np.random.default_rng(seed)
        coins = generator.random(2_000) < 0.5
        told = coins == (generator.random(2_000) < q)
        scores = told + generator.random(2_000) / 2
        bounds.append(one_run(scores, coins, guesses=(300, 300), delta=0.0).lower)
    assert sum(bound > epsilon for bound in bounds) <= binom.isf(1e-6, 500, 0.05)
    assert np.median(bounds) > 0.6 * epsilon


def released(canaries: Canaries, sigma_factor: float, generator: np.random.Generator):
    """The sum of the canaries that are in, with noise of the plan's size on every entry, and what is known of it."""
    total = accumulate(
        canaries.integers[canaries.included], canaries.labels[canaries.included], len(PLAN.classes), PLAN.levels
    )
    noises = {each.block: OpenedNoise(sigma_factor * 2 * each.sigma, each.multiplier) for each in PLAN.noises}
    release = {}
    for name, block in total.items():
        sigma = np.full(block.shape, noises[name].sigma / noises[name].multiplier)
        if name == "second_moment":
            rows, columns = np.triu_indices(PLAN.dimension)
            sigma[rows != columns] /= math.sqrt(2)
        release[name] = block + np.rint(generator.normal(0, 1, block.shape) * sigma).astype(np.int64)
    return release, noises


def test_canaries_of_one_session():
    """At ε = 8 canaries are found without overstating it; with a hundredth of the noise, all of them."""
    for factor, seed in ((1.0, 0), (0.01, 1)):
        generator = np.random.default_rng(seed)
        canaries = draw_canaries(PLAN, 256, generator)
        release, noises = released(canaries, factor, generator)
        bound = one_run(canary_scores(release, None, noises, canaries), canaries.included, guesses=(60, 60), delta=1e-5)
        assert 0 < bound.lower <= 8
        assert factor == 1.0 or bound.right == 120
        assert f"{bound.right} of 120 guesses" in bound.sentence


def test_known_records_are_taken_off():
    """Other records hide the canaries from who does not know them, and not from who does."""
    generator = np.random.default_rng(2)
    canaries = draw_canaries(PLAN, 256, generator)
    release, noises = released(canaries, 0.01, generator)
    others = np.trunc(generator.normal(size=(4_000, 256)) * PLAN.levels / 20).astype(np.int64)
    known = accumulate(others, generator.integers(0, 4, 4_000), len(PLAN.classes), PLAN.levels)
    seen = {name: release[name] + known[name] for name in release}
    found = [
        one_run(canary_scores(seen, rest, noises, canaries), canaries.included, guesses=(60, 60), delta=1e-5).right
        for rest in (known, None)
    ]
    assert found[0] == 120 > found[1]


def test_canaries_fit_the_plan():
    """They are records within the radius, nearly as long and nearly orthogonal, and a seed gives them again."""
    first, second = (draw_canaries(PLAN, 40, np.random.default_rng(3)) for _ in "ab")
    products = first.integers @ first.integers.T / PLAN.levels**2
    assert (np.diag(products) <= 1).all()
    assert np.abs(products - np.eye(40)).max() < 0.03
    assert (first.integers == second.integers).all()
    assert set(first.labels.tolist()) == {0, 1, 2, 3}
    assert (first.included == second.included).all()
    with pytest.raises(BadInput, match="plant fewer"):
        draw_canaries(replace(PLAN, adjacency=Adjacency.REPLACE_ONE), 257, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("scores", "guesses", "delta"),
    [(np.zeros(3), (1, 1), 0.0), (np.zeros(4), (3, 2), 0.0), (np.zeros(4), (0, 0), 0.0), (np.zeros(4), (1, 1), 1.0),
     (np.full(4, np.nan), (1, 1), 0.0)],
)  # fmt: skip
def test_numbers_that_do_not_go_together_are_refused(scores, guesses, delta):
    """Coins for other canaries, more guesses than canaries, none, no δ, or scores that are no numbers."""
    with pytest.raises(BadInput):
        one_run(scores, np.zeros(4, dtype=bool), guesses=guesses, delta=delta)
