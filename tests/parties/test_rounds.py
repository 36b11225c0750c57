"""The walk through a plan's rounds that all parties share."""

from secagg.parties import LocalRecords, Rounds, SessionSetup, SumResult, conclude
from tests.parties.promised import exact, promised, some_records


def ending(setup: SessionSetup, *members: int) -> SumResult:
    """How a session over these members' records ends, without noise."""
    records = LocalRecords.pooled([some_records(setup, 30, seed=member) for member in members])
    return conclude(setup, members, exact(setup, records))


def test_each_session_is_there_once_the_one_before_has_ended() -> None:
    """The walk stops at a session that has not ended, goes on after its end, and stops for good after the last."""
    rounds: Rounds[SumResult] = Rounds(promised(refine=2, epsilon=8.0))
    numbers = []
    for _ in range(4):
        for setup in rounds:
            numbers.append(setup.number)
        if numbers[-1] > len(rounds.done):
            rounds.ended(ending(setup, 1, 2, 3, 4, 5))
    assert numbers == [1, 2, 3]
    assert [setup.number for setup, _ in rounds.done] == [1, 2, 3]
    assert rounds.last is rounds.done[-1][1]
    assert list(rounds) == []


def test_who_is_not_in_a_sum_is_gone() -> None:
    """Nobody is gone at first; later those whom the latest sum lacks."""
    rounds: Rounds[SumResult] = Rounds(promised(refine=1, epsilon=8.0))
    assert rounds.gone == frozenset()
    for setup in rounds:
        rounds.ended(ending(setup, 1, 3, 4, 5))
        assert rounds.gone == {2}
