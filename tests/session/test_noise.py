"""What a member contributes: the sum of its bounded records plus its own share of the noise, and nothing else.

Each check of noise fails with probability 10⁻⁹ on noise that is as planned.
"""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from secagg.agreement.plan import NoiseFrom
from secagg.encoding import Normalisation
from secagg.errors import BadRecord
from secagg.experiments.session import run_session
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import Adjacency, Unit, discrete_gaussian
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.session import conclude, contribution_of
from secagg.session.rounds import following_setup
from secagg.unsafe_for_tests import TOKEN
from tests.session.noise_checks import (
    BAD_ROWS,
    check_bad_record_is_silent,
    check_noise,
    check_noise_comes_first,
    check_record_is_bounded,
    check_shares_differ,
    noise_of,
)
from tests.worlds.rosters import make_roster
from tests.worlds.setups import WIDE, exact, local, make_setup, some_records

FRESH = [OperatingSystem()] * 5


@pytest.mark.parametrize("refine", [0, 2])
def test_contribution_is_the_exact_sum_plus_the_drawn_noise(refine):
    """With the noise's bytes fixed, the vector is the records' sum, times the multipliers, plus that noise."""
    setup = make_setup(refine=refine, clients=40, dimension=8, epsilon=8.0, colluders=0, dropouts=0)
    records = some_records(setup)
    assert setup.sum.calibration is not None
    noise = discrete_gaussian(setup.sum.calibration.segments, SeededRandomness(b"share", TOKEN))
    q, labels = records.integers, records.labels
    counts = np.bincount(labels, minlength=3)
    sums = np.stack([q[labels == label].sum(axis=0) for label in range(3)])
    flat = [setup.plan.noises[0].multiplier * counts, sums.reshape(-1), (q.T @ q)[np.triu_indices(8)]]
    vector = contribution_of(setup, records, SeededRandomness(b"share", TOKEN)).vector
    assert (vector - noise).tolist() == np.concatenate(flat).tolist() == exact(setup, records).tolist()
    assert setup.plan.noises[0].multiplier > 1


@pytest.mark.parametrize("noise", [NoiseFrom.AGGREGATOR, None])
def test_no_share_where_the_plan_asks_for_none(noise):
    """Without noise, and where an aggregator adds it, the contribution is the exact sum and no randomness is used."""
    none = {"epsilon": math.inf, "delta": None, "adjacency": None, "normalise": Normalisation.UNIT}
    setup = make_setup(noise=noise) if noise else make_setup(**none)
    records = some_records(setup)
    assert np.array_equal(contribution_of(setup, records, None).vector, exact(setup, records))  # type: ignore[arg-type]


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("unit", Unit)
def test_sum_of_all_shares_has_the_planned_variance(adjacency, unit):
    """The noise on the sum of five is five shares' on every block."""
    setup = make_setup(dimension=WIDE, adjacency=adjacency, unit=unit, epsilon=4.0)
    check_noise(setup, noise_of(setup, FRESH), 5)


def test_noise_of_a_round_has_the_planned_variance():
    """The noise on the sum of a refinement round is five shares' of the round's own σ."""
    setup = make_setup(dimension=WIDE, classes=40, refine=1, epsilon=4.0)
    records = some_records(setup, 400)
    result = conclude(setup, setup.context.clients, exact(setup, records))
    following = following_setup(setup, result, result.broadcast)
    assert [block.name for block in following.sum.layout.blocks] == ["gradient"]
    check_noise(following, noise_of(following, FRESH), 5)


def test_noise_survives_protection_and_opening():
    """Opened through masks and ring, with one member gone, the noise is four shares' and the rest is the exact sum."""
    setup = make_setup(dimension=WIDE, epsilon=8.0)
    records = {member: some_records(setup, 10, seed=member) for member in setup.context.clients}
    vectors = {member: contribution_of(setup, own, OperatingSystem()).vector for member, own in records.items()}
    keys = dict(enumerate(make_roster()[1]))
    opened = run_session(setup, keys, vectors.__getitem__, {2: "UploadHeader"})
    assert opened.members == (1, 3, 4, 5)
    check_noise(setup, opened.total - sum(exact(setup, records[member]) for member in opened.members), 4)


def test_every_member_draws_its_own_noise():
    """No two members' shares agree, nor do two shares of one member."""
    check_shares_differ(make_setup(dimension=16), FRESH)


def test_noise_is_drawn_before_the_records_are_touched():
    """How long the noise takes cannot depend on the records, as they have not been looked at."""
    check_noise_comes_first(make_setup())
    check_noise_comes_first(make_setup(refine=1))


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("normalisation", [Normalisation.UNIT, Normalisation.CENTRED_UNIT])
def test_every_record_is_bounded_before_the_sum(adjacency, normalisation):
    """Records whose lengths span twelve powers of ten each move the sum by no more than the promised μ."""
    check_record_is_bounded(make_setup(adjacency=adjacency, normalise=normalisation))


@pytest.mark.parametrize("name", BAD_ROWS)
@pytest.mark.parametrize("refine", [0, 1])
def test_bad_record_changes_nothing_that_leaves(tmp_path, name, refine):
    """Under noise a bad record neither stops its member nor changes one byte of what it sends."""
    check_bad_record_is_silent(make_setup(refine=refine), tmp_path, *BAD_ROWS[name])


@pytest.mark.parametrize("row", [[0.5, 0.5, 0.5, 0.5], [0.0] * 4, [1e300, -1e300, np.nan, 0.0]])
def test_record_without_a_direction_counts_for_nothing(row):
    """Constant, zero and NaN records are in no block: not even in the counts."""
    setup = make_setup()
    good = np.random.default_rng(3).normal(size=(6, 4))
    labels = np.array([0, 1, 2, 0, 1, 2])
    clean, dirty = local(setup, good, labels), local(setup, np.vstack([good, row]), np.append(labels, 1))
    assert np.array_equal(exact(setup, clean), exact(setup, dirty))
    assert (clean.bad, dirty.bad, len(dirty)) == (0, 1, 7)


def test_member_whose_records_are_all_bad_sends_only_noise():
    """A member without one usable record still takes part, with its share of the noise alone."""
    setup = make_setup()
    records = local(setup, np.full((5, 4), np.nan), np.zeros(5))
    assert setup.sum.calibration is not None
    noise = discrete_gaussian(setup.sum.calibration.segments, SeededRandomness(b"share", TOKEN))
    assert np.array_equal(contribution_of(setup, records, SeededRandomness(b"share", TOKEN)).vector, noise)


def test_bad_records_are_refused_without_noise():
    """Where nothing is hidden, a record without a direction is refused and named."""
    none = {"epsilon": math.inf, "delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
    setup = make_setup(**none)
    with pytest.raises(BadRecord, match="row 2: the feature vector has no direction"):
        local(setup, np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]]), np.zeros(2))


def test_bad_label_counts_for_nothing_whatever_the_integers():
    """What is left in the integers of a record that does not count has no effect."""
    setup = make_setup()
    records = some_records(setup)
    marked = np.where(np.arange(20) == 7, -1, records.labels)
    other = records.integers.copy()
    other[7] = setup.plan.levels
    one, two = LocalRecords(records.records, marked, records.domains), replace(records, records=other, labels=marked)
    assert np.array_equal(exact(setup, one), exact(setup, two))
    noises = [contribution_of(setup, each, SeededRandomness(b"s", TOKEN)).vector for each in (one, two)]
    assert np.array_equal(*noises)


@pytest.mark.parametrize("entry", [2**62, -(2**62), -(2**63)])
def test_an_entry_that_no_noise_explains_is_doubted(entry):
    """An entry beyond records and noise is told, the least int64 too, whose absolute value is negative."""
    setup = make_setup(4)
    vector = np.zeros(setup.sum.layout.length, dtype=np.int64)
    vector[:2] = 20
    assert conclude(setup, (1, 2, 3, 4), vector).doubts == ()
    vector[-1] = entry
    (doubt,) = conclude(setup, (1, 2, 3, 4), vector).doubts
    assert "which 4 honest clients cannot reach" in doubt


@pytest.mark.parametrize("sign", [1, -1])
def test_limit_of_an_opened_entry_is_the_same_for_both_signs(sign):
    """An entry at the limit that a doubt names is none; one beyond it is, negative ones as positive ones."""
    setup = make_setup(4)
    vector = np.full(setup.sum.layout.length, 20, dtype=np.int64)

    def outside(entry):
        vector[-1] = entry
        return conclude(setup, (1, 2, 3, 4), vector).doubts

    (doubt,) = outside(2**62)
    least, most = map(int, re.search(r"outside (-\d+) to (\d+)", doubt).groups())
    assert most > setup.sum.capacity.clients * setup.sum.capacity.records * setup.sum.layout.blocks[-1].bound
    assert least == -most
    assert outside(sign * most) == ()
    assert outside(sign * (most + 1)) == (doubt,)
