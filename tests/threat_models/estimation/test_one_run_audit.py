"""One run with canaries."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from secagg.data import open_dataset
from secagg.encoding import Normalisation
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.privacy import Adjacency, Unit
from tests.worlds.setups import make_setup
from threat_models.attacks.gaussian_likelihood import MOMENTS, draw_noise, total
from threat_models.estimation.canaries import Canaries, canary_scores, draw_canaries
from threat_models.estimation.one_run_audit import (
    audit_canaries,
    bound_epsilon,
    choose_guesses,
    p_value,
    record_epsilon,
)
from threat_models.evidence.blocks import noise_of
from threat_models.evidence.canaries import plant
from threat_models.session import AuditRecords, Session

SETUP = make_setup(dimension=256, classes=4, epsilon=8.0)
PLAN = SETUP.plan


@pytest.mark.parametrize(("canaries", "largest"), [(10, 1.05), (100, 3.49), (1000, 5.81)])
def test_all_guesses_right(canaries, largest):
    """The most that so many canaries can show, at 95 % and δ = 0; a δ shows a little less."""
    coins = np.arange(canaries) % 2 == 0
    bound = bound_epsilon(coins - 0.5, coins, guesses=canaries, delta=0.0)
    assert bound.lower == bound.largest == pytest.approx(largest, abs=5e-3)
    assert bound_epsilon(coins - 0.5, coins, guesses=canaries, delta=1e-5).lower <= bound.lower


def test_p_value_by_hand():
    """For three guesses of four coins, two right, the bound is the formula's, written out."""
    q, delta = 1 / (1 + math.exp(-0.5)), 1e-3
    pmf = [binom.pmf(k, 3, q) for k in range(4)]
    alpha = max(pmf[1], (pmf[1] + pmf[0]) / 2)
    assert p_value(4, 3, 2, 0.5, delta) == pytest.approx(pmf[2] + pmf[3] + 8 * delta * alpha)
    assert p_value(4, 3, 0, 0.5, delta) == 1.0


@pytest.mark.parametrize("guesses", [200, 40, 1000])
def test_null_scores_claim_no_epsilon(guesses):
    """Scores without the canaries give ε > 0 in no more of 1,000 seeds than 5 % explain (false failures: 1e-6)."""
    claims = 0
    for seed in range(1_000):
        generator = np.random.default_rng(seed)
        coins = generator.random(1_000) < 0.5
        claims += bound_epsilon(generator.normal(size=1_000), coins, guesses=guesses, delta=1e-5).lower > 0
    assert claims <= binom.isf(1e-6, 1_000, 0.05)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_is_not_overstated(epsilon):
    """Coins told with the best (ε, 0)-private noise: above ε in no more of 500 runs than 5 % explain, and near it."""
    q, bounds = 1 / (1 + math.exp(-epsilon)), []
    for seed in range(500):
        generator = np.random.default_rng(seed)
        coins = generator.random(2_000) < 0.5
        told = coins == (generator.random(2_000) < q)
        scores = (told - 0.5) * (1 + generator.random(2_000))
        bounds.append(bound_epsilon(scores, coins, guesses=600, delta=0.0).lower)
    assert sum(bound > epsilon for bound in bounds) <= binom.isf(1e-6, 500, 0.05)
    assert np.median(bounds) > 0.6 * epsilon


def session_with(canaries: Canaries, factor: float, seed: int, others: AuditRecords | None = None) -> Session:
    """A session whose sum holds the canaries that are in, and others, with `factor` times the plan's noise."""
    planted = AuditRecords(canaries.integers[canaries.included], canaries.labels[canaries.included], np.zeros((0, 0)))
    noise = {name: replace(each, sigma=factor * each.sigma) for name, each in noise_of(SETUP, 4).items()}
    release = total(planted, len(PLAN.classes), MOMENTS)
    parts = [
        draw_noise(release, noise, seed),
        *([total(others, len(PLAN.classes), MOMENTS)] if others is not None else []),
    ]
    release = {name: block + sum(part[name] for part in parts) for name, block in release.items()}
    return Session(PLAN, (), (), release, noise, SETUP.facts.claim, None, None, (), {}, {})


def fixed(canaries: Canaries, seed: int) -> Canaries:
    """The same canaries with coins that a seed gives."""
    return replace(canaries, included=np.random.default_rng(seed).random(len(canaries)) < 0.5)


NOBODY = AuditRecords(np.zeros((0, 256), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros((0, 256)))


def some_others(seed: int, count: int = 4_000) -> AuditRecords:
    """Records that vary little in the last 200 of 256 directions, about means that differ by class."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, count)
    spread = np.where(np.arange(256) < 56, 0.12, 1e-4)
    means = np.random.default_rng(0).normal(size=(4, 256)) * 0.02
    integers = np.trunc((means[labels] + generator.normal(size=(count, 256)) * spread) * PLAN.levels)
    return AuditRecords(integers.astype(np.int64), labels, np.zeros((count, 0)))


def test_canaries_of_one_session():
    """At ε = 8 canaries are found without overstating it; with a hundredth of the noise, all of them."""
    for factor, seed in ((1.0, 0), (0.01, 1)):
        canaries = fixed(draw_canaries(PLAN, 255, np.random.default_rng(seed)), seed)
        bound = audit_canaries(session_with(canaries, factor, seed), canaries, NOBODY)
        assert 0 < bound.lower <= 8
        assert factor == 1.0 or bound.right == bound.guesses == 255
        assert f"{bound.right} of {bound.guesses} guesses" in bound.sentence
        assert bound.claimed == 8.0
        assert "8 is claimed" in bound.sentence
        assert not bound.refuted


def test_bound_is_above_the_claim_in_no_more_runs_than_its_level():
    """Under the planned noise: above ε in no more of 40 runs than 5 % explain (false failures: 1e-6)."""
    drawn_ = draw_canaries(PLAN, 255, np.random.default_rng(0))
    bounds = [
        audit_canaries(session_with(fixed(drawn_, seed), 1.0, seed), fixed(drawn_, seed), NOBODY) for seed in range(40)
    ]
    assert sum(bound.refuted for bound in bounds) <= binom.isf(1e-6, 40, 0.05)
    assert np.median([bound.lower for bound in bounds]) == pytest.approx(bounds[0].expected, rel=0.35)


def test_missing_noise_disproves_a_small_claim():
    """A session that claims ε = 1 with a hundredth of its noise is found out, as its power statement says."""
    setup = make_setup(dimension=256, classes=4, epsilon=1.0)
    canaries = fixed(draw_canaries(PLAN, 255, np.random.default_rng(5)), 5)
    noise = noise_of(setup, 4)
    session = replace(session_with(canaries, 0.0, 5), plan=setup.plan, noise=noise, claim=setup.facts.claim)
    bound = audit_canaries(session, canaries, NOBODY)
    assert bound.refuted
    assert "This disproves the claim" in bound.sentence
    assert bound.caught[1] == 1.0
    assert "100 %" in bound.power


def test_scores_without_canaries_claim_nothing():
    """Sums that hold no canary at all give ε > 0 in no more of 200 runs than 5 % explain (false failures: 1e-6)."""
    canaries = draw_canaries(PLAN, 100, np.random.default_rng(7))
    session = session_with(replace(canaries, included=np.zeros(100, dtype=bool)), 1.0, 7)
    scores = canary_scores(session, canaries, NOBODY)
    guesses = choose_guesses(scores.mu, scores.bare, 8.0, 1e-5).count
    claims = 0
    for seed in range(200):
        coins = fixed(canaries, seed).included
        claims += bound_epsilon(scores.values, coins, guesses=guesses, delta=1e-5).lower > 0
    assert claims <= binom.isf(1e-6, 200, 0.05)


def test_known_records_are_taken_off():
    """Records that the auditor knows hide no canary, whatever they are."""
    canaries = fixed(draw_canaries(PLAN, 200, np.random.default_rng(2)), 2)
    others = some_others(8)
    bound = audit_canaries(session_with(canaries, 0.01, 2, others), canaries, others)
    assert bound.right == bound.guesses == 200


def test_quiet_directions_show_canaries_among_unknown_records():
    """Where records hardly vary canaries stand out without knowing any; in random directions most do not."""
    others, public = some_others(8, 40_000), some_others(9)
    rights = {}
    for name, like in (("quiet", public), ("random", None)):
        canaries = fixed(draw_canaries(PLAN, 100, np.random.default_rng(3), like), 3)
        scores = canary_scores(session_with(canaries, 0.01, 3, others), canaries, None, public)
        rights[name] = int(((scores.values > 0) == canaries.included).sum())
        bound = audit_canaries(session_with(canaries, 0.01, 3, others), canaries, None, public)
        assert bound.lower <= bound.largest
    assert rights["quiet"] > 95 > rights["random"]


def test_planned_guesses_follow_from_the_distances_alone():
    """Canaries that cannot be missed are all guessed; hardly visible ones lead one to expect nothing."""
    unmissable, hidden = np.full(100, 1e3), np.full(100, 0.1)
    exact = choose_guesses(unmissable, unmissable, math.inf, 0.0)
    assert (exact.count, exact.caught) == (100, None)
    assert exact.expected == pytest.approx(3.49, abs=5e-3)
    assert choose_guesses(hidden, unmissable, 1.0, 1e-5).expected < 0.1
    assert choose_guesses(hidden, hidden, 1.0, 1e-5).caught == (0.0, 0.0)
    assert choose_guesses(hidden, unmissable, 1.0, 1e-5).caught == pytest.approx((0.0, 1.0), abs=0.01)
    assert choose_guesses(hidden, unmissable, 5.0, 1e-5).caught == (0.0, 0.0)  # 100 show no more than 3.49


def test_claim_is_held_against_for_one_record_added():
    """ε of one record added or left out: the claim itself, and less than it for replacing or for whole clients."""
    assert record_epsilon(PLAN, SETUP.facts.claim) == 8.0
    for changes in ({"adjacency": Adjacency.REPLACE_ONE}, {"unit": Unit.SILO}):
        other = make_setup(dimension=8, classes=4, epsilon=8.0, **changes)
        assert 0 < record_epsilon(other.plan, other.facts.claim) < 8.0


def test_what_no_canary_shows_in_is_refused():
    """A sum without class sums, nothing known of the others, or a single canary."""
    canaries = fixed(draw_canaries(PLAN, 4, np.random.default_rng(2)), 2)
    session = session_with(canaries, 1.0, 2)
    with pytest.raises(BadInput, match="gradient"):
        audit_canaries(replace(session, release={"gradient": np.zeros((4, 5))}), canaries, NOBODY)
    with pytest.raises(BadInput, match="nothing is known"):
        audit_canaries(session, canaries)
    one = Canaries(canaries.integers[:1], canaries.labels[:1], canaries.included[:1])
    with pytest.raises(BadInput, match="at least 2"):
        audit_canaries(session, one, NOBODY)


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
def test_simulated_run_with_canaries(epsilon):
    """All canaries of an exact sum are found; at ε = 1 the bound stays below 1 (false failures: 5 %, by far less)."""
    promise = {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
    planted = plant(open_dataset("digits"), SimulationSettings(**promise), 60)
    bound = audit_canaries(planted.session, planted.canaries, planted.known)
    assert bound.claimed == epsilon
    if math.isinf(epsilon):
        assert (bound.right, bound.guesses) == (60, 60)
        assert bound.lower == bound.largest > 2.9
    else:
        assert bound.lower < 1.0


def test_canaries_fit_the_plan():
    """They are records within the radius, nearly as long and orthogonal; a seed gives them again, but for the coins."""
    first, second = (draw_canaries(PLAN, 40, np.random.default_rng(3), some_others(1)) for _ in "ab")
    products = first.integers @ first.integers.T / PLAN.levels**2
    assert (np.diag(products) <= 1).all()
    assert np.abs(products - np.eye(40)).max() < 0.03
    assert (first.integers == second.integers).all()
    assert set(first.labels.tolist()) == {0, 1, 2, 3}
    assert (first.included != second.included).any()  # fails at random once in 2⁴⁰
    if PLAN.grid.normalisation is Normalisation.CENTRED_UNIT:
        assert np.abs(first.integers.sum(axis=1)).max() <= 0.1 * PLAN.levels
    with pytest.raises(BadInput, match="plant no more than"):
        draw_canaries(PLAN, 257, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("scores", "guesses", "delta"),
    [(np.zeros(3), 2, 0.0), (np.zeros(4), 5, 0.0), (np.zeros(4), 0, 0.0), (np.zeros(4), 2, 1.0),
     (np.full(4, np.nan), 2, 0.0)],
)  # fmt: skip
def test_numbers_that_do_not_go_together_are_refused(scores, guesses, delta):
    """Coins for other canaries, more guesses than canaries, none, no δ, or scores that are no numbers."""
    with pytest.raises(BadInput):
        bound_epsilon(scores, np.zeros(4, dtype=bool), guesses=guesses, delta=delta)
