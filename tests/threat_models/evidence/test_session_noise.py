"""The noise that a session itself holds, measured with all records, with some, or with none of the members'."""

import math
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import chi2

from methods.method import ZeroSums
from secagg.agreement.plan import NoiseFrom
from secagg.encoding import Normalisation
from secagg.protection.messages import Attachment, RoundOpening
from tests.worlds.setups import exact, local, make_setup, some_records
from threat_models.estimation.chi_square import ENOUGH_LEVEL
from threat_models.evidence.blocks import blocks_of, cell_names, noise_of, noisy_sum_of
from threat_models.evidence.session_noise import BY_RECORDS, BY_ZEROS, UNKNOWN, noise_of_sessions
from threat_models.session import AuditRecords, Knowledge, Session, ZeroSample

MEMBERS, EACH, DIMENSION = 4, 200, 128


@cache
def plan_of(**choices):
    """A plan of one sum about centred records of length 1, ε = 2; and the records of its members and of strangers."""
    usual = {"dimension": DIMENSION, "epsilon": 2.0, "max_records": 256, "normalise": Normalisation.CENTRED_UNIT}
    setup = make_setup(MEMBERS, **{**usual, **choices})
    clients = [some_records(setup, EACH, seed=member) for member in setup.roster.clients]
    return setup, clients, [some_records(setup, EACH, seed=100 + place) for place in range(2)]


def opened(factors, seed, **choices):
    """A session whose noisers drew `factors` times the planned σ."""
    setup, clients, _ = plan_of(**choices)
    generator = np.random.default_rng(seed)
    sigmas = np.concatenate([np.full(entries, sigma) for sigma, entries in setup.sum.calibration.segments])
    noise = sum(np.rint(generator.normal(0, factor * sigmas)) if factor else 0 * sigmas for factor in factors)
    total = np.sum([exact(setup, own) for own in clients], axis=0) + noise.astype(np.int64)
    names = tuple(setup.context.names[member] for member in setup.context.clients)
    return Session(
        plan=setup.plan,
        clients=names,
        members=names,
        release=blocks_of(setup, total),
        noise=noise_of(setup, MEMBERS),
        claim=setup.facts.sum_claim,
        calibration=setup.sum.calibration,
        head=None,
        messages=(),
        uploads={},
        contributions={},
        round=setup.round,
        cells=cell_names(setup),
        noisy_sums=(noisy_sum_of(setup, total, MEMBERS),),
    )


def knowing(members, strangers):
    """Somebody who has the records of some members, and of strangers."""
    parts = [*members, *strangers]
    integers = np.concatenate([np.zeros((0, DIMENSION), np.int64), *(own.counted.records for own in parts)])
    labels = np.concatenate([np.zeros(0, np.int64), *(own.counted.labels for own in parts)])
    owners = ["a member"] * sum(map(len, members)) + [""] * sum(map(len, strangers))
    return Knowledge(AuditRecords(integers, labels, integers.astype(np.float64)), tuple(owners))


def measured(factor, known, seed=1, **choices):
    """What is found of the noise, σ × `factor` of all members, by somebody who knows so many members' records."""
    session = opened((factor,) * MEMBERS, seed, **choices)
    _, clients, strangers = plan_of(**choices)
    return noise_of_sessions((session,), knowing(clients[:known], strangers))


@pytest.mark.parametrize("known", [MEMBERS, 1, 0])
@pytest.mark.parametrize("factor", [0.0, 0.6, 0.7])
def test_noise_too_small_of_all_members_is_found(factor, known):
    """σ × 0.7 and less is found with any records: with seeds that are fixed, else once in 500 sessions not."""
    found = measured(factor, known)
    assert (found.is_short, found.is_enough) == (True, False)
    assert found.ratio == pytest.approx(factor**2, abs=0.15)
    assert found.sentence.startswith("There is less noise in the sum than planned: ")


@pytest.mark.parametrize("known", [MEMBERS, 1, 0])
def test_noise_twenty_percent_too_small_is_never_enough(known):
    """Of twenty sessions with σ × 0.8, whose seeds are fixed, none has enough noise: each errs with 0.1 %."""
    assert not any(measured(0.8, known, seed).is_enough for seed in range(20))


@pytest.mark.parametrize(("known", "source"), [(MEMBERS, BY_RECORDS), (0, BY_ZEROS)])
def test_planned_noise_is_hardly_ever_short(known, source):
    """Of twenty honest sessions, whose seeds are fixed, one at most is called short, and most are known to have enough.

    Each errs with 0.5 % at most; with other seeds two of twenty would, once in 200 times.
    """
    found = [measured(1.0, known, seed) for seed in range(20)]
    assert sum(each.is_short for each in found) <= 1
    assert sum(each.is_enough for each in found) >= 10
    assert {each.source for each in found} == {source}


def test_noise_of_aggregators_counts_once_for_each_of_them():
    """The noise of every aggregator is planned in full: that of one of two alone is too little."""
    choices = {"protection": "shared", "noise": NoiseFrom.AGGREGATOR}
    setup, clients, strangers = plan_of(**choices)
    factors = (1.0,) * setup.sum.calibration.parties
    whole, short = (opened(each, 1, **choices) for each in (factors, factors[1:]))
    for knowledge in (knowing(clients, strangers), knowing([], strangers)):
        assert not noise_of_sessions((whole,), knowledge).is_short
        assert noise_of_sessions((short,), knowledge).is_short


@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_nothing_is_said_where_nothing_is_zero(factor):
    """Without zero sums and without all records an honest and a broken session get the same words."""
    found = measured(factor, 1, normalise=Normalisation.UNIT)
    assert (found.is_known, found.is_short, found.is_enough, found.sentence) == (False, False, False, UNKNOWN)
    assert (math.isnan(found.ratio), found.low, found.high) == (True, 0.0, math.inf)


@pytest.mark.parametrize("block", ["class_sums", "second_moment"])
def test_noise_left_out_of_one_block_is_found(block):
    """A block without noise is found where the other's is as planned, and named."""
    session = opened((1.0,) * MEMBERS, 1)
    setup, clients, strangers = plan_of()
    own = setup.sum.layout.split(np.sum([exact(setup, each) for each in clients], axis=0))[block]
    bare = replace(session, release={**session.release, block: own.reshape(session.release[block].shape)})
    samples = [
        ZeroSample.of(each.number, each.rule, each.sigma, each.off_diagonal, own) if each.rule.block == block else each
        for each in session.noisy_sums[0].samples
    ]
    bare = replace(bare, noisy_sums=(replace(session.noisy_sums[0], samples=tuple(samples)),))
    for known in (clients, []):
        found = noise_of_sessions((bare,), knowing(known, strangers))
        assert found.is_short
        assert block.replace("_", " ") in found.sentence


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.8, 1.2, 2.0])
def test_missing_records_do_not_pass_for_noise(epsilon):
    """Records of half the members are not taken for all, unless the noise is so strong that the rest hardly shows."""
    half, every = (measured(0.8, known, epsilon=epsilon) for known in (2, MEMBERS))
    assert half.source == BY_ZEROS or half.ratio == pytest.approx(every.ratio, rel=0.01)


def test_what_rounding_leaves_lowers_the_lower_limit_alone():
    """Without any record at hand the remainder is bounded by the worst case, and the upper limit stays as it was."""
    session = opened((1.0,) * MEMBERS, 1)
    _, _, strangers = plan_of()
    some, none = (noise_of_sessions((session,), knowing([], each)) for each in (strangers, []))
    assert (none.high, none.ratio) == (some.high, some.ratio)
    assert none.low < some.low


def test_triangles_are_whitened():
    """Zero sums of unit noise on a triangle, σ' off its diagonal, have the covariance 1: exactly, not by trial."""
    sigma, off, dimension = 3.0, 1.7, 6
    upper, right = np.triu_indices(dimension)
    sigmas = np.where(upper == right, sigma, off)
    rule = ZeroSums("second_moment", None, 1.0)
    images = [ZeroSample.of(1, rule, sigma, off, row * sigmas).values for row in np.eye(len(sigmas))]
    assert np.allclose(np.transpose(images) @ images, np.eye(dimension))


@pytest.mark.parametrize("place", [0, 1])
def test_the_worst_of_several_sessions_decides(place):
    """Of two sessions the one with too little noise is reported, wherever it stands among them."""
    sessions = [opened((1.0,) * MEMBERS, 1), opened((1.0,) * MEMBERS, 2)]
    sessions[place] = opened((0.5,) * MEMBERS, 3)
    assert noise_of_sessions(sessions, knowing([], plan_of()[2])).is_short


@pytest.mark.parametrize("is_counted", [True, False])
def test_rounding_is_bounded_for_all_that_may_be_summed(is_counted):
    """The lower limit allows for K worst-case records, as many as planned, or by 4 σ more than the counts say."""
    session = opened((1.0,) * MEMBERS, 1)
    most = MEMBERS * session.plan.max_records
    if is_counted:
        counts = session.release["counts"]
        most = min(most, counts.sum() + 4 * session.noise["counts"].sigma * math.sqrt(counts.size))
    samples = [
        replace(each, remainder=each.remainder / 100, values=10 * each.values) for each in session.noisy_sums[0].samples
    ]  # so that the limit is above 0 for either number of records
    session = replace(
        session,
        release=session.release if is_counted else {},
        noisy_sums=(replace(session.noisy_sums[0], samples=tuple(samples)),),
    )
    values = np.concatenate([each.values for each in samples])
    rest = np.linalg.norm(values) - most * math.hypot(*(each.remainder for each in samples))
    assert rest > 0
    found = noise_of_sessions((session,), knowing([], []))
    assert found.low == pytest.approx(rest**2 / chi2.isf(ENOUGH_LEVEL, len(values)))


def test_gradients_show_their_noise_whatever_the_records():
    """Sums that are zero for any record are there where records are not centred, and no others are."""
    setup = make_setup(MEMBERS, refine=1, normalise=Normalisation.UNIT)
    later = setup.at(RoundOpening(2, setup.context.round_digest, bytes(32), Attachment(1, bytes(32))))
    names = [
        [
            sample.rule.block
            for sample in noisy_sum_of(each, np.zeros(each.sum.layout.length, np.int64), MEMBERS).samples
        ]
        for each in (setup, later)
    ]
    assert names == [[], ["gradient"]]


@pytest.mark.parametrize("known", [MEMBERS, 0])
@pytest.mark.parametrize("factor", [1.5, 10.0])
def test_more_than_planned_is_not_enough(factor, known):
    """What is larger than planned noise may be something else, behind which noise is missing: it passes for none."""
    found = measured(factor, known)
    assert (found.is_short, found.is_enough) == (False, False)
    assert "more is in the sum than planned, which may hide that noise is missing" in found.sentence


def test_blocks_whose_noise_shows_nowhere_are_named():
    """Without all records nothing is said about the noise on the counts; with all records it is measured."""
    assert "It says nothing about the noise on the counts." in measured(1.0, 0).sentence
    assert "says nothing" not in measured(1.0, MEMBERS).sentence


@pytest.mark.parametrize("known", [MEMBERS, 0])
def test_sums_that_are_not_at_hand_leave_the_noise_unknown(known):
    """The noise of one of a plan's three sums says nothing of the others', unless it is too small already."""
    _, clients, strangers = plan_of()
    for factor in (1.0, 0.6):
        one = replace(opened((factor,) * MEMBERS, 1), sums=3)
        found = noise_of_sessions((one,), knowing(clients[:known], strangers))
        assert (found.is_short, found.is_enough) == (factor < 1, False)
        assert found.is_short or "2 of its 3 sums are not at hand" in found.sentence


def test_both_sources_are_named_where_both_were_used():
    """What was measured in a later round, by its zero sums, is not said to be measured with records."""
    session = opened((1.0,) * MEMBERS, 1)
    _, clients, strangers = plan_of()
    later = replace(session.noisy_sums[0], number=2, unseen=())
    found = noise_of_sessions((replace(session, noisy_sums=(*session.noisy_sums, later)),), knowing(clients, strangers))
    assert found.source == f"{BY_RECORDS} and {BY_ZEROS}"


@pytest.mark.parametrize("missing", [35, 60])
def test_missing_records_of_one_class_do_not_pass_for_noise(missing, monkeypatch):
    """Where one class lacks records, what is left of its sum is not taken for the noise that members left out."""
    setup = plan_of(method="prototypes", parameters=())[0]
    generator, labels = np.random.default_rng(0), np.searchsorted((6, 9), np.arange(EACH) % 10, side="right")
    clients = [
        local(setup, generator.normal(size=(EACH, DIMENSION)) + 30 * np.eye(DIMENSION)[labels], labels)
        for _ in range(MEMBERS)
    ]
    monkeypatch.setattr(sys.modules[__name__], "plan_of", lambda **choices: (setup, clients, []))
    whole = knowing(clients, [])
    kept = np.setdiff1d(np.arange(MEMBERS * EACH), np.flatnonzero(whole.candidates.labels == 2)[:missing])
    less = Knowledge(whole.candidates.take(kept), whole.owners[: len(kept)])
    assert not any(noise_of_sessions((opened((0.7,) * MEMBERS, seed),), less).is_enough for seed in range(5))


@pytest.mark.parametrize("norm", [Normalisation.UNIT, Normalisation.CENTRED_UNIT])
def test_parities_show_that_noise_was_left_out(norm):
    """Squares and what is squared are odd together: a sum without noise shows it though none of its sums is zero."""
    found = measured(0.0, 1, normalise=norm)
    assert (found.is_short, found.is_enough) == (True, False)
    assert found.sentence.startswith("There is less noise in the sum than planned: ")


def test_blocks_that_known_records_do_not_make_are_measured_by_their_zero_sums():
    """With all records known, noise left out of class-wise second moments alone is found, and named."""
    choices = {"method": "ccvr", "parameters": (), "dimension": DIMENSION}
    session = opened((1.0,) * MEMBERS, 1, **choices)
    _, clients, _ = plan_of(**choices)
    samples = [
        replace(each, values=0 * each.values) if each.rule.block == "class_moments" else each
        for each in session.noisy_sums[0].samples
    ]
    bare = replace(session, noisy_sums=(replace(session.noisy_sums[0], samples=tuple(samples)),))
    found = noise_of_sessions((bare,), knowing(clients, []))
    assert found.is_short
    assert "class moments" in found.sentence
