"""The walk through a plan's rounds that all parties share."""

from secagg.plan_facts.records import LocalRecords
from secagg.session import Rounds, RoundSetup, SumResult, conclude
from tests.worlds.setups import exact, make_setup, some_records


def ending(setup: RoundSetup, *members: int) -> tuple[SumResult, bytes]:
    """How a session over these members' records ends, without noise, and what opens the next."""
    records = LocalRecords.pooled([some_records(setup, 30, seed=member) for member in members])
    result = conclude(setup, members, exact(setup, records))
    return result, result.broadcast


def test_each_session_is_there_once_the_one_before_has_ended() -> None:
    """The walk stops at a session that has not ended, goes on after its end, and stops for good after the last."""
    rounds: Rounds[SumResult] = Rounds(make_setup(refine=2, epsilon=8.0))
    numbers = []
    for _ in range(4):
        for setup in rounds:
            numbers.append(setup.number)
        if numbers[-1] > len(rounds.done):
            rounds.ended(*ending(setup, 1, 2, 3, 4, 5))
    assert numbers == [1, 2, 3]
    assert [setup.number for setup, _ in rounds.done] == [1, 2, 3]
    assert rounds.last is rounds.done[-1][1]
    assert list(rounds) == []


def test_who_knocks_is_waited_for_in_this_round_and_the_next() -> None:
    """A client that the latest sum lacks and that knocks is gone neither then nor in the next round."""
    rounds: Rounds[SumResult] = Rounds(make_setup(refine=3, epsilon=8.0))
    gone = []
    for setup in rounds:
        rounds.ended(*ending(setup, 1, 3, 4, 5))
        gone.append(set(rounds.dropped_out))
        if setup.number == 1:
            rounds.request_rejoin(2)
            gone.append(set(rounds.dropped_out))
    assert gone == [{2}, set(), set(), {2}, {2}]


def test_later_rounds_have_a_time_of_their_own() -> None:
    """Members join the first round in the plan's `join_seconds`, later ones in `round_seconds`; by default a step's."""
    times = {"refine": 1, "epsilon": 8.0, "join_seconds": 11, "step_seconds": 12}
    for choices, expected in (({"round_seconds": 13}, 13), ({}, 12)):
        rounds: Rounds[SumResult] = Rounds(make_setup(**times, **choices))
        waits = []
        for setup in rounds:
            waits.append(setup.join_seconds)
            rounds.ended(*ending(setup, 1, 2, 3, 4, 5))
        assert waits == [11, expected]


def test_who_is_not_in_a_sum_is_gone() -> None:
    """Nobody is gone at first; later those whom the latest sum lacks."""
    rounds: Rounds[SumResult] = Rounds(make_setup(refine=1, epsilon=8.0))
    assert rounds.dropped_out == frozenset()
    for setup in rounds:
        rounds.ended(*ending(setup, 1, 3, 4, 5))
        assert rounds.dropped_out == {2}
