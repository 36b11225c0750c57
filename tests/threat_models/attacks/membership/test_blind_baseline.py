"""A guess of who is a member that sees the records alone."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from tests.threat_models.attacks.audited import rehearsed
from threat_models.attacks.membership.blind_baseline import Blind
from threat_models.attacks.membership.metrics import Scores, succeeds
from threat_models.session import AuditRecords


def cancers():
    """The breast-cancer records, as integers, with every second called a member."""
    features, labels = load_breast_cancer(return_X_y=True)
    integers = np.rint(1_000 * (features - features.mean(axis=0)) / features.std(axis=0)).astype(np.int64)
    return AuditRecords(integers, labels.astype(np.int64), features), np.arange(len(labels)) % 2 == 0


def scored(area, is_member, seed=0):
    """Scores of a test with about this area under its curve."""
    from scipy.stats import norm

    noise = np.random.default_rng(seed).normal(size=len(is_member))
    return Scores(noise + is_member * np.sqrt(2) * norm.ppf(area), is_member)


@pytest.mark.parametrize("seed", range(5))
def test_records_of_one_population_are_not_told_apart(seed):
    """Members drawn at random are told from others in one draw of a thousand at most, whatever the seeds here."""
    records, is_member = cancers()
    drawn = np.random.default_rng(seed).permutation(is_member)
    blind = Blind.of(records, drawn)
    assert not blind.tells
    assert blind.sentence == ""
    test = scored(0.9, drawn)
    assert blind.lets_succeed(test) == succeeds(test)


@pytest.mark.parametrize("change", ["mean", "spread"])
def test_records_of_two_populations_are_told_apart(change):
    """A shift of one feature, or a wider one, is noticed, and a test as good as the blind guess does not count."""
    records, is_member = cancers()
    integers = records.integers.copy()
    if change == "mean":
        integers[is_member, 3] += 3_000
    else:
        integers[is_member, 3] *= 6
    blind = Blind.of(replace(records, integers=integers), is_member)
    assert blind.tells
    assert not blind.allows(blind.scores)
    assert "Give members and others of one population" in blind.sentence
    (area,) = blind.measures
    assert area.low > 0.5


def test_what_is_better_than_a_blind_guess_counts():
    """Members that a test knows for sure are told by the session, though the records differ a little by themselves."""
    records, is_member = cancers()
    integers = records.integers.copy()
    integers[is_member, 3] += 200
    blind = Blind.of(replace(records, integers=integers), is_member)
    assert blind.tells
    assert blind.area.high < 0.9
    assert blind.lets_succeed(Scores(is_member.astype(float), is_member))
    assert not blind.allows(scored(blind.area.value, is_member))


@pytest.mark.parametrize("kinds", [(0, 40), (5, 40), (40, 9)])
def test_too_few_records_give_no_guess(kinds):
    """With fewer than ten of either kind there is none, which stands in no test's way."""
    records, _ = cancers()
    is_member = np.arange(sum(kinds)) < kinds[0]
    blind = Blind.of(records.take(slice(0, sum(kinds))), is_member)
    assert (blind.area, blind.tells, blind.measures, blind.sentence) == (None, False, (), "")
    assert blind.allows(scored(0.9, is_member)) if min(kinds) > 1 else True


def test_a_simulation_draws_both_of_one_population():
    """Members and others of a simulation, split at random, are alike to a blind guess."""
    known = rehearsed("digits").knowledge
    assert not Blind.of(known.candidates, known.is_member).tells
