"""Known and public records held against the sum that they are, or are not, said to be in."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from secagg.agreement.schema import load_schema
from secagg.data import open_dataset
from secagg.encoding import Normalisation
from secagg.privacy import OpenedNoise
from tests.threat_models.attacks.sums import plan_of, records_of, session_of
from threat_models.attacks.gaussian_likelihood import draw_noise
from threat_models.evidence.transcripts import LEVEL, find_doubts
from threat_models.session import join_records

HEART = Path("../shared/data/tabular/heart")
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
KINDS = pytest.mark.parametrize("normalisation", [Normalisation.NONE, Normalisation.CENTRED_UNIT])


def session_and_records(normalisation=Normalisation.NONE, count=400, **changes):
    """An exact masked sum of the first breast-cancer records, of two members, and all of them."""
    features, labels = load_breast_cancer(return_X_y=True)
    scaled = (features - features.min(axis=0)) / np.ptp(features, axis=0)
    radius = 1.0 if normalisation is not Normalisation.NONE else 6.0
    plan = plan_of(30, 2, radius=radius, protection="masked", normalisation=normalisation)
    everyone = records_of(plan, scaled, labels)
    parts = [everyone.take(np.arange(start, count, 2)) for start in (0, 1)]
    return session_of(plan, parts, **changes), everyone


def noised(session, factor, seed=0):
    """The session with noise of so many record lengths on every block."""
    levels = session.plan.levels
    noise = {
        "counts": OpenedNoise(factor),
        "class_sums": OpenedNoise(factor * levels),
        "second_moment": OpenedNoise(factor * levels**2, triangle=True),
    }
    extra = draw_noise(session.release, noise, seed)
    return replace(session, noise=noise, release={name: block + extra[name] for name, block in session.release.items()})


@KINDS
def test_what_is_as_it_is_called_is_not_doubted(normalisation):
    """Records of members and of others raise no doubt, all of them or some, in an exact sum and under noise."""
    session, everyone = session_and_records(normalisation)
    members, others = everyone.take(slice(0, 400)), everyone.take(slice(400, None))
    for seen in (session, noised(session, 3.0)):
        for known in (members, members.take(slice(0, 150)), members.take(slice(0, 0))):
            assert find_doubts(seen, known, others) == ()
        assert find_doubts(seen, members, others.take(slice(0, 0))) == ()


@KINDS
def test_public_records_that_took_part_are_recognised(normalisation):
    """Both files together, or the public one alone, that are the exact sum to the bit: they took part."""
    session, everyone = session_and_records(normalisation)
    members = everyone.take(np.random.default_rng(1).permutation(400))
    (doubt,) = find_doubts(session, members.take(slice(0, 200)), members.take(slice(200, None)))
    assert doubt == (
        "To the bit, the opened sum is that of the records of --known and --public together: those of --public took "
        "part."
    )
    (doubt,) = find_doubts(session, members.take(slice(0, 0)), members)
    assert "--public alone" in doubt
    one = np.flatnonzero(members.labels == 1)
    (doubt,) = find_doubts(session, members.take(one[:50]), members.take(one[50:]))
    assert 'of class "class 1" is that of the records of --known and --public together' in doubt
    vectors = replace(session, contributions={**session.contributions})
    own = everyone.take(np.arange(0, 400, 2))
    (doubt,) = find_doubts(vectors, everyone.take(slice(0, 0)), own)
    assert "the vector of client-0" in doubt


@KINDS
def test_one_record_of_difference_is_no_equality(normalisation):
    """Where one member is in neither file, the sum does not show whose the public ones are."""
    session, everyone = session_and_records(normalisation)
    members = everyone.take(np.random.default_rng(1).permutation(400))
    zero, one = (np.flatnonzero(members.labels == label) for label in (0, 1))
    rest = np.concatenate([zero[1:], one[1:]])
    assert find_doubts(session, members.take(rest[::2]), members.take(rest[1::2])) == ()


@KINDS
def test_more_known_records_than_the_sum_holds_are_doubted(normalisation):
    """A class of which more are called members than the opened counts say is named, with both numbers."""
    session, everyone = session_and_records(normalisation, count=60)
    known = everyone.take(np.flatnonzero(everyone.labels == 0)[60:130])
    opened = int(session.release["counts"][0])
    assert opened < 70
    (doubt,) = find_doubts(session, known, everyone.take(slice(0, 0)))
    assert f'Of class "class 0" there are 70 records in --known, and the opened sum holds {opened}' in doubt
    (doubt,) = find_doubts(noised(session, 0.5), known, everyone.take(slice(0, 0)))
    assert "once in 1,000,000 sums" in doubt


@pytest.mark.parametrize("part", ["class_sums", "second_moment"])
def test_known_records_that_a_sum_cannot_hold_are_doubted(part):
    """Records as far out as no sum of the others could make up for leave no sum of records behind."""
    session, everyone = session_and_records()
    known = everyone.take(slice(0, 100))
    integers = known.integers.copy()
    if part == "class_sums":
        integers[:] = -known.integers.max()  # all to one side
    else:
        integers[:, 0] += 20_000 * (-1) ** np.arange(100)  # to both sides, which the class sums do not show
    wrong = replace(known, integers=integers)
    (doubt,) = find_doubts(session, wrong, everyone.take(slice(0, 0)))
    assert {"class_sums": "is longer than its records", "second_moment": "is none of any records"}[part] in doubt
    assert find_doubts(session, known, everyone.take(slice(0, 0))) == ()


def test_noise_alone_is_hardly_ever_doubted():
    """All members known, under noise of the least to the most use: no doubt in 300 sums (false once in 10⁴ runs)."""
    session, everyone = session_and_records()
    members, nobody = everyone.take(slice(0, 400)), everyone.take(slice(0, 0))
    assert LEVEL * 300 < 1e-3
    for seed in range(100):
        for factor in (0.1, 3.0, 100.0):
            assert find_doubts(noised(session, factor, seed), members, nobody) == ()


def test_files_that_are_all_of_a_noisy_sum_are_doubted():
    """Under noise it can only be said that both files together explain the sum, and the known ones do not."""
    session, everyone = session_and_records()
    members = everyone.take(np.random.default_rng(1).permutation(400))
    (doubt,) = find_doubts(noised(session, 2.0), members.take(slice(0, 200)), members.take(slice(200, None)))
    assert "whether those of --public took part cannot be told" in doubt
    assert find_doubts(noised(session, 1e4), members.take(slice(0, 200)), members.take(slice(200, None))) == ()


def test_sum_without_classes_is_held_against_nothing():
    """A view without class sums, or with cells of another kind, says nothing of either file."""
    session, everyone = session_and_records()
    others = everyone.take(slice(0, 50))
    assert find_doubts(replace(session, release={}), others, others) == ()
    cells = {name: np.repeat(block, 2, axis=0) for name, block in session.release.items()}
    assert find_doubts(replace(session, release=cells), others, others) == ()


@cache
def hospitals(normalisation):
    """A plan for the four hospitals' tables, and the records of each."""
    if not HEART.is_dir():
        pytest.skip("needs the heart-disease tables")
    schema = load_schema("heart-disease")
    read = {
        name: open_dataset(str(HEART / f"processed.{name}.data"), schema=schema, split=False, tolerant=True).train
        for name in HOSPITALS
    }
    radius = 1.0 if normalisation is not Normalisation.NONE else 7.0
    dimension = read["va"].inputs.shape[1]
    plan = plan_of(dimension, 2, radius=radius, protection="masked", normalisation=normalisation)
    return plan, {name: records_of(plan, each.inputs.astype(float), each.labels) for name, each in read.items()}


@KINDS
@pytest.mark.parametrize("absent", HOSPITALS)
def test_hospital_that_took_no_part_is_found_out(normalisation, absent):
    """Of four real hospitals each is recognised as absent from the exact sum of the other three, and no other is."""
    plan, records = hospitals(normalisation)
    session = session_of(plan, [own for name, own in records.items() if name != absent])
    for name, own in records.items():
        assert bool(find_doubts(session, own, records[absent] if name != absent else own.take(slice(0, 0)))) == (
            name == absent
        )


@KINDS
def test_hospitals_records_shuffled_into_two_files_are_found_out(normalisation):
    """All 920 records are in the sum: half of them are not strangers because a file says so."""
    plan, records = hospitals(normalisation)
    everyone = join_records(*records.values())
    order = np.random.default_rng(0).permutation(len(everyone))
    session = session_of(plan, list(records.values()))
    (doubt,) = find_doubts(session, everyone.take(order[:460]), everyone.take(order[460:]))
    assert "those of --public took part" in doubt
