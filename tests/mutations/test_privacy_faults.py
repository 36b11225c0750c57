"""Faults of differential privacy, each put into the code, and the check of session/noise_checks.py that reports it.

The same checks hold for the code as it is in tests/session/test_promise.py and tests/session/test_noise.py.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from secagg.agreement.plan import PlannedNoise
from secagg.data import records
from secagg.encoding import moments, quantise
from secagg.errors import BadInput
from secagg.features import local_records
from secagg.plan_facts import planning
from secagg.privacy import Adjacency, MomentSensitivity, PrivacyClaim, claim, discrete_gaussian
from secagg.privacy.gaussian import mu_of
from secagg.privacy.shares import GaussianCost
from secagg.protection.masking import client, derivations, server
from secagg.protection.masking.quorum import derive_thresholds
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.session import round_setup as contribution
from secagg.unsafe_for_tests import TOKEN
from tests.mutations.faults import untried
from tests.session.noise_checks import (
    BAD_ROWS,
    check_bad_record_is_silent,
    check_neighbours,
    check_noise,
    check_noise_comes_first,
    check_promise,
    check_record_is_bounded,
    check_shares_differ,
    check_small_set_is_not_signed,
    check_small_sum_is_refused,
    check_stated,
    noise_of,
    reported,
)
from tests.worlds.rosters import make_roster
from tests.worlds.setups import DELTA, WIDE, exact, make_setup


@pytest.mark.parametrize("factor", [0.5, 1 / math.sqrt(2), 0.99])
def test_smaller_sigma_in_the_plan(factor):
    """σ halved, divided by √2 or one per cent short in the plan: every member's own ε is above the promised one."""
    plan = make_setup().plan
    noises = tuple(replace(n, sigma=factor * n.sigma, off_diagonal=factor * n.off_diagonal) for n in plan.noises)
    assert "the noise gives" in reported(check_promise, replace(plan, noises=noises), make_roster()[0])


@pytest.mark.parametrize("factor", [0.5, 1 / math.sqrt(2)])
def test_smaller_sigma_in_the_sampler(monkeypatch, factor):
    """Members that draw with a smaller σ than the plan's are seen in the variance of the sum."""

    def weak(segments, source):
        return discrete_gaussian([(Fraction(sigma) * Fraction(factor), count) for sigma, count in segments], source)

    monkeypatch.setattr(contribution, "discrete_gaussian", weak)
    setup = make_setup(dimension=WIDE)
    assert reported(check_noise, setup, noise_of(setup, [OperatingSystem()] * 5), 5)


@pytest.mark.parametrize("factor", [1, 2])
def test_forgotten_factor_for_replacing(monkeypatch, factor):
    """Noise for add/remove, or √2 times it, under replace-one: all members accept it, the worst neighbours do not."""
    add_remove = MomentSensitivity.squared

    def forgetful(self: MomentSensitivity, weights: Mapping[str, float]) -> float:
        return factor * add_remove(replace(self, adjacency=Adjacency.ADD_REMOVE), weights)

    monkeypatch.setattr(MomentSensitivity, "squared", forgetful)
    with pytest.raises(BadInput, match="breaks its declaration: one record moves"):
        make_setup(adjacency=Adjacency.REPLACE_ONE)
    untried(monkeypatch)
    setup = make_setup(adjacency=Adjacency.REPLACE_ONE)
    check_promise(setup.plan, setup.roster)
    assert reported(check_neighbours, setup)


def test_root_of_two_times_the_noise_of_add_remove_is_refused_in_the_plan():
    """A plan for replace-one whose σ are √2 times those for add/remove is refused by the members."""
    noises = tuple(
        replace(n, sigma=math.sqrt(2) * n.sigma, off_diagonal=math.sqrt(2) * n.off_diagonal)
        for n in make_setup().plan.noises
    )
    plan = replace(make_setup(adjacency=Adjacency.REPLACE_ONE).plan, noises=noises)
    assert "the noise gives" in reported(check_promise, plan, make_roster()[0])


def test_budget_split_into_three_thirds(monkeypatch):
    """Blocks that each get ε/3 and δ/3 bear far more noise than the promise takes: nearly half of ε is unused."""

    def thirds(sums, moved, noisers, epsilon, delta):
        share = 1 / (mu_of(epsilon / 3, delta / 3) * math.sqrt(noisers.fewest))
        return tuple(
            PlannedNoise(block.name, 1, block.l2 * share, block.l2 * share / math.sqrt(2) * block.triangle)
            for block in moved[0].blocks
        )

    monkeypatch.setattr(planning, "noises_for", thirds)
    setup = make_setup()
    assert reported(check_neighbours, setup)
    assert reported(check_promise, setup.plan, setup.roster)


def test_missing_share():
    """One member of five that adds no noise, and four shares taken for five, are seen in the variance of the sum."""
    setup = make_setup(dimension=WIDE)
    four = noise_of(setup, [OperatingSystem()] * 4)
    assert reported(check_noise, setup, four, 5)
    check_noise(setup, four, 4)


def test_plan_that_counts_on_a_share_that_may_be_missing():
    """Noise for all five of five is refused by the members where some of them may drop out."""
    plan = replace(make_setup(colluders=0, dropouts=0).plan, min_clients_in_sum=1)
    for dropouts in (1, 2):
        assert "the noise gives" in reported(check_promise, replace(plan, dropouts=dropouts), make_roster()[0])


def test_one_seed_on_all_members():
    """Shares from the same seed add up to n² times the variance of one, and are the same shares."""
    setup = make_setup(dimension=WIDE)
    same = [SeededRandomness(b"the same everywhere", TOKEN) for _ in range(5)]
    total = noise_of(setup, same)
    assert reported(check_noise, setup, total, 5)
    check_noise(setup, total, 25)
    assert reported(check_shares_differ, setup, [SeededRandomness(b"the same everywhere", TOKEN) for _ in range(2)])


def test_clip_after_the_sum(monkeypatch):
    """Records that are shortened together, so that only their sum is bounded, are longer than one may be."""

    def together(features, grid, origin=None):
        longest = np.linalg.norm(features, axis=1).max() / np.sqrt(len(features))
        return np.rint(features * (grid.levels / longest)).astype(np.int64)

    monkeypatch.setattr(local_records, "quantise", together)
    assert "longer than the grid's" in reported(check_record_is_bounded, make_setup())
    monkeypatch.setattr(moments, "_check_lengths", lambda chunk, levels: None)
    assert "record 1" in reported(check_record_is_bounded, make_setup())


@pytest.mark.parametrize("rounded", [lambda value: math.floor(value * 1e4) / 1e4, lambda value: value * (1 - 1e-12)])
def test_epsilon_computed_too_low(monkeypatch, rounded):
    """ε cut to four decimals, or by one part in 10¹², is below the exact one."""
    computed = GaussianCost.epsilon
    monkeypatch.setattr(GaussianCost, "epsilon", lambda self, delta: rounded(computed(self, delta)))
    setup = make_setup(epsilon=3.3333)
    assert setup.facts.claim is not None
    assert reported(check_stated, PrivacyClaim.of(setup.facts.claim.releases, delta=DELTA))


@pytest.mark.parametrize("form", ["{:.2f}", "{:.0f}"])
def test_epsilon_shown_too_low(monkeypatch, form):
    """ε rounded to the nearest in words is below the exact one."""
    monkeypatch.setattr(claim, "format_epsilon", form.format)
    setup = make_setup(epsilon=3.3333)
    assert setup.facts.claim is not None
    assert reported(check_stated, setup.facts.claim)


def test_epsilon_in_the_plan_rounded_down():
    """A plan that states two decimals of its ε, rounded down, is refused by the members."""
    plan = make_setup(epsilon=3.3333).plan
    assert "the noise gives" in reported(check_promise, replace(plan, epsilon=3.33), make_roster()[0])


def test_thresholds_without_the_calibrated_minimum(monkeypatch):
    """When the thresholds forget the n − D clients that the noise needs, too small a sum is opened and signed for."""
    setup = make_setup(clients=6, colluders=0, dropouts=0)

    def forgetful(context):
        found = derive_thresholds(len(context.identities), context.colluders, context.dropouts, 1)
        return replace(found, survivors=found.signatures)

    monkeypatch.setattr(derivations, "thresholds_of", forgetful)
    for module in (client, server):
        monkeypatch.setattr(module, "thresholds_of", forgetful, raising=False)
    assert reported(check_small_sum_is_refused, setup, {2: "UploadHeader"}).endswith("the sum of 5 was opened")
    assert reported(check_small_set_is_not_signed, setup).endswith("signed for 5 survivors")


def test_bad_record_that_stops_its_member(monkeypatch, tmp_path):
    """A loader that refuses the record tells of it, as the member then takes no part."""
    monkeypatch.setattr(records.Faults, "add", _refusing)
    assert "row" in reported(check_bad_record_is_silent, make_setup(), tmp_path, *BAD_ROWS["NaN"])


def _refusing(self, bad, problem, remedy):
    if bad.any():
        index = int(np.argmax(bad))
        raise self.origin.refusal(index, problem, remedy)


def test_bad_record_that_is_mended(monkeypatch, tmp_path):
    """A NaN that is replaced instead of left out changes what leaves."""

    def mending(self, bad, problem, remedy):
        return None

    monkeypatch.setattr(records.Faults, "add", mending)
    monkeypatch.setattr(
        local_records, "quantise", lambda f, grid, origin=None: quantise(np.nan_to_num(f), grid, origin)
    )
    assert reported(check_bad_record_is_silent, make_setup(), tmp_path, *BAD_ROWS["NaN"])


def test_records_before_the_noise():
    """A contribution that sums first and draws then is seen."""

    def hasty(setup, records, randomness):
        vector = exact(setup, records)
        return vector + discrete_gaussian(setup.sum.calibration.segments, randomness)

    assert reported(check_noise_comes_first, make_setup(), hasty)


def test_noise_of_another_block(monkeypatch):
    """Noise with the σ of the blocks in another order is seen block by block."""
    setup = make_setup(dimension=WIDE)

    def shuffled(segments, source):
        return discrete_gaussian(list(reversed(segments)), source)

    monkeypatch.setattr(contribution, "discrete_gaussian", shuffled)
    assert reported(check_noise, setup, noise_of(setup, [OperatingSystem()] * 5), 5)


def test_plan_for_fewer_blocks():
    """A plan that leaves the noise of one block out is refused by the members."""
    plan = make_setup().plan
    assert "the plan has noise for" in reported(check_promise, replace(plan, noises=plan.noises[:2]), make_roster()[0])
