"""The schedule of cohorts: balanced exactly, nobody twice in one, and the same for everybody who has the seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.method import SampledTraining, SumSpec
from secagg.errors import BadInput
from secagg.plan_facts.noise_plan import charged
from secagg.protection.draw import cohorts, most_rounds

SEEDS = st.binary(min_size=32, max_size=32)
SHAPES = st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(1, 40)))


@given(SEEDS, SHAPES)
def test_everybody_is_drawn_as_often_as_others_but_for_once(seed: bytes, shape: tuple[int, int, int]) -> None:
    """After every round each member was drawn ⌊r·k/n⌋ or ⌈r·k/n⌉ times; each cohort has k distinct members in order."""
    members, size, rounds = shape
    drawn = cohorts(seed, members, size, rounds)
    assert len(drawn) == rounds
    times = Counter(dict.fromkeys(range(1, members + 1), 0))
    for number, cohort in enumerate(drawn, start=1):
        assert len(cohort) == size
        assert list(cohort) == sorted(set(cohort))
        times.update(cohort)
        least, most = number * size // members, most_rounds(members, size, number)
        assert set(times.values()) <= {least, most}
    assert set(times) == set(range(1, members + 1))


@given(SEEDS, SHAPES)
def test_fewer_rounds_are_the_first_of_more(seed: bytes, shape: tuple[int, int, int]) -> None:
    """The stream is read in order: how many rounds follow changes no cohort."""
    members, size, rounds = shape
    assert (
        cohorts(seed, members, size, rounds)[: rounds // 2]
        == cohorts(seed, members, size, max(1, rounds // 2))[: rounds // 2]
    )


@given(SEEDS, SHAPES)
def test_member_is_charged_for_every_round_that_it_is_in(seed: bytes, shape: tuple[int, int, int]) -> None:
    """No schedule draws a member for more rounds than it is charged for, and some member is drawn for as many.

    Its own training, which does not begin before the second round, is charged for no more than it has rounds.
    """
    members, size, rounds = shape
    plan: Any = SimpleNamespace(cohort=size)
    steps = SampledTraining(rate=0.5, steps=2, levels=8, size=3, times=max(1, rounds - 1))
    kind = SumSpec((), (), "equal", times=rounds, training=steps)
    (charge,) = charged(plan, [kind], members)
    drawn = Counter(each for cohort in cohorts(seed, members, size, rounds) for each in cohort)
    assert charge.times == max(drawn.values())
    assert charge.training == replace(steps, times=min(steps.times, charge.times))
    assert charged(SimpleNamespace(cohort=0), [kind], members) == (kind,)  # type: ignore[arg-type]


def test_another_seed_draws_others() -> None:
    """Of a hundred members no two seeds draw the same ten, ten times."""
    drawn = {cohorts(bytes([seed]) * 32, 100, 10, 10) for seed in range(50)}
    assert len(drawn) == 50


def test_pairs_meet_about_as_often_as_by_chance() -> None:
    """A shuffle without bias: in 3000 first cohorts of 2 of 6 each of 15 pairs comes 200 times, by χ² at 10⁻⁶."""
    found = Counter(cohorts(number.to_bytes(32, "big"), 6, 2, 1)[0] for number in range(3000))
    assert len(found) == 15
    assert sum((times - 200) ** 2 / 200 for times in found.values()) < 56.5


def test_known_schedule() -> None:
    """What a seed draws never changes: transcripts are held against it."""
    assert cohorts(bytes(range(32)), 7, 4, 4) == ((2, 4, 5, 6), (1, 2, 3, 7), (1, 3, 5, 7), (2, 4, 5, 6))


@pytest.mark.parametrize("size", [0, 6])
def test_no_cohort_is_larger_than_its_members(size: int) -> None:
    """Five members make no cohort of none or of six."""
    with pytest.raises(BadInput, match="cannot be drawn from 5"):
        cohorts(bytes(32), 5, size, 1)
