"""A verdict follows from paired intervals over seeds and test records, with Holm's correction over eight systems."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg.generation.pictures import TRAINING
from tests.benchmarks.contrasts import FEWEST, PRIMARY, Contrast, adjusted, contrast_of, read_contrasts, verdicts
from tests.benchmarks.fedbip import CLASSES, COUNT, FEDAVG, ROUNDS, STYLES

CLEAR = Contrast("clear", (1.0, 1.1, 0.9, 1.05, 0.95), (0.4, 1.6))


def with_p(p_value: float) -> Contrast:
    """A contrast of five seeds with this two-sided p: the differences' mean is moved by Student's quantile."""
    from scipy.special import stdtrit

    moves = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    mean = stdtrit(4, 1 - p_value / 2) * moves.std(ddof=1) / math.sqrt(5)
    return Contrast("given", tuple(moves + mean), (0.1, 9.0))


def test_holm_rejects_as_in_a_worked_example() -> None:
    """p = 0.001, 0.0071, 0.009 and five of 1: the limits are 0.05/8, 0.05/7 and 0.05/6, so that the third fails."""
    values = dict(zip(PRIMARY, (0.009, 0.001, 0.0071, 1, 1, 1, 1, 1), strict=True))
    found = verdicts({name: with_p(p) for name, p in values.items() if p < 1})
    assert [name for name, verdict in found.items() if verdict == "held"] == list(PRIMARY)[1:3]
    assert found["FedTC"] == "cannot be told"


def test_adjusted_p_values_are_those_of_an_example() -> None:
    """p = 0.01, 0.04, 0.03 and 0.005 with four of 1: 0.07, 0.2, 0.18 and 0.04, by hand."""
    values = dict(zip(PRIMARY, (0.01, 0.04, 0.03, 0.005), strict=False))
    found = adjusted({name: with_p(p) for name, p in values.items()})
    assert [found[name] for name in values] == pytest.approx([0.07, 0.2, 0.18, 0.04])
    assert [found[name] for name in PRIMARY if name not in values] == [1.0] * 4


def test_a_gap_in_the_order_ends_the_rejections() -> None:
    """Where the smallest p-value is above its limit no other is looked at."""
    assert set(verdicts({name: with_p(0.02) for name in PRIMARY}).values()) == {"cannot be told"}
    assert set(verdicts({name: with_p(0.006) for name in PRIMARY}).values()) == {"held"}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, "held"),
        ({"differences": (-1.0, -1.1, -0.9, -1.05, -0.95), "records": (-1.6, -0.4)}, "did not hold"),
        ({"records": (-0.1, 2.1)}, "cannot be told"),
        ({"records": (-1.6, -0.4)}, "cannot be told"),
        ({"differences": CLEAR.differences[: FEWEST - 1]}, "cannot be told"),
        ({"differences": (1.0, -1.1, 0.9, 1.05, -0.95)}, "cannot be told"),
    ],
    ids=str,
)
def test_both_intervals_decide(change: dict[str, Any], verdict: str) -> None:
    """Test records whose interval holds 0 or is on the other side, few seeds, or spread ones, tell nothing."""
    assert verdicts({"FedCGS": replace(CLEAR, **change)})["FedCGS"] == verdict


def test_intervals_over_records_and_seeds() -> None:
    """Ours is right of 60 of 100 records and theirs of 50: +10 points, and a standard error of some 10·√(0.09) = 3."""
    right = np.arange(100) < 60, np.arange(100) < 50
    ours, theirs = ([each / 100] * 5 for each in right)
    same = contrast_of("", ours, theirs, [np.zeros(100)] * 5, same_records=True)
    own = contrast_of("", ours, theirs, [np.zeros(100)] * 5, same_records=False)
    assert same.differences == pytest.approx([10.0] * 5)
    for found, error in ((same, 3.0), (own, 3.0 / math.sqrt(5))):
        assert found.records == pytest.approx((10 - 1.96 * error, 10 + 1.96 * error), abs=0.3 * error)


def test_strata_keep_their_sizes() -> None:
    """Where the two methods differ by a whole stratum and by nothing within it no draw changes the difference."""
    labels = np.repeat([0, 1], 50)
    found = contrast_of("", [labels / 100] * 5, [np.zeros(100)] * 5, [labels] * 5, same_records=True)
    assert found.records == pytest.approx((50.0, 50.0))


@pytest.mark.parametrize("fault", [{"differences": (math.nan,) * 5}, {"records": (1.0, 0.0)}], ids=str)
def test_numbers_that_are_no_contrast_are_refused(fault: dict[str, Any]) -> None:
    """NaN, and an interval whose ends are exchanged."""
    with pytest.raises(ValueError, match="not a contrast"):
        replace(CLEAR, **fault)


def test_answers_about_other_records_are_refused() -> None:
    """One record fewer in one of the methods' answers."""
    with pytest.raises(ValueError, match="same records"):
        contrast_of("", [np.ones(3)] * 5, [np.ones(2)] * 5, [np.zeros(3)] * 5, same_records=True)


def test_the_file_is_read_as_it_was_written() -> None:
    """What a script prints is what the table reads; the file has the eight systems and no other."""
    written = tomllib.loads(replace(CLEAR, cpu_minutes=1.0).as_toml("FedCGS"))["FedCGS"]
    assert tuple(written["differences"]) == CLEAR.differences
    assert tuple(written["records"]) == CLEAR.records
    assert set(read_contrasts()) <= set(PRIMARY)


def test_fedbip_and_its_rival_take_as_many_steps() -> None:
    """The classifier's steps on the generated pictures are those of a member with 200 pictures in all rounds."""
    generated = COUNT * CLASSES * len(STYLES)
    assert TRAINING.epochs * -(-generated // TRAINING.batch) == ROUNDS * -(-200 // TRAINING.batch)
    assert f"rounds={ROUNDS} epochs=1 batch={TRAINING.batch} " in FEDAVG
