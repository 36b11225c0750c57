"""Federations of the FedPCL tables: who has which records, and on which its models are measured."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.shifts import MEMBER, RECORDS, Part, Pool, Shift

CLASSES, DOMAINS = 5, ("art", "photo", "sketch")
GENERATOR = np.random.default_rng(4)
SIZE = 3000


def pool() -> Pool:
    """Records whose only feature is their number."""
    return Pool(
        features=np.arange(SIZE, dtype=np.float32)[:, None],
        labels=GENERATOR.integers(0, CLASSES, SIZE),
        domains=GENERATOR.choice(DOMAINS, SIZE),
        parts=GENERATOR.choice(list(Part), SIZE),
        classes=tuple(map(str, range(CLASSES))),
        mixed=DOMAINS,
    )


@pytest.mark.parametrize("shift", Shift)
@pytest.mark.parametrize("is_trial", [False, True])
def test_no_record_is_dealt_twice_or_measured_on(shift: Shift, is_trial: bool) -> None:
    """Members' records are their own and of the part for members; those measured on are of the other part alone."""
    records = pool()
    made = records.federation(shift, seed=1, is_trial=is_trial)
    rows = made.train.inputs[:, 0].astype(int)
    assert len(set(rows)) == len(rows)
    assert made.test is not None
    measured = made.test.inputs[:, 0].astype(int)
    wanted = (Part.TRIAL, Part.HELD_OUT) if is_trial else (Part.MEMBERS, Part.TEST)
    assert [set(records.parts[each]) for each in (rows, measured)] == [{wanted[0]}, {wanted[1]}]
    assert ("domain" in made.train.columns) == (shift is not Shift.LABEL)


def test_members_differ_as_the_shift_says() -> None:
    """By feature shift a member has one domain, all classes alike; by label shift all domains, uneven classes."""
    records = pool()
    for shift in Shift:
        made = records.federation(shift, seed=2)
        for name in np.unique(made.train.columns[MEMBER]):
            mine = made.train.take(np.flatnonzero(made.train.columns[MEMBER] == name))
            counts = np.bincount(mine.labels, minlength=CLASSES)
            domains = set(records.domains[mine.inputs[:, 0].astype(int)])
            assert (len(domains) == 1) == (shift is not Shift.LABEL)
            assert (set(counts) == {RECORDS // CLASSES}) == (shift is Shift.FEATURE)


def test_seeds_draw_members_anew() -> None:
    """One seed gives the same members, another others; what is measured on stays."""
    records = pool()
    first, again, other = (records.federation(Shift.BOTH, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first.train.inputs, again.train.inputs)
    assert not np.array_equal(first.train.inputs, other.train.inputs)
    assert first.test is not None
    assert other.test is not None
    assert np.array_equal(first.test.inputs, other.test.inputs)
