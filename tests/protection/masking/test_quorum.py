"""Thresholds and the degree of the graph, against their stated bounds recomputed in exact fractions."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput
from secagg.protection.masking import PROTECTION
from secagg.protection.masking.quorum import SPARSE_FROM, derive_thresholds, most_dropouts

SPARSE = [(300, 0, 30), (320, 10, 20), (500, 25, 50), (1000, 50, 100), (2000, 0, 0)]
ROSTERS = st.integers(2, SPARSE_FROM - 1).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n), st.integers(1, n))
)


@given(ROSTERS)
def test_thresholds_meet_their_inequalities(roster: tuple[int, int, int, int]) -> None:
    """2t > n + c with the least t, and survivors = n − D ≥ max(t, c + 2, minimum); or the plan is refused."""
    n, c, d, minimum = roster
    least = next(t for t in range(n + c + 1) if 2 * t > n + c)
    if max(least, c + 2, minimum) > n - d:
        with pytest.raises(BadInput) as caught:
            derive_thresholds(n, c, d, minimum)
        assert caught.value.remedy
        return
    found = derive_thresholds(n, c, d, minimum)
    assert (found.signatures, found.survivors) == (least, n - d)
    assert found.is_complete
    assert (found.degree, found.shares) == (n - 1, least)


@given(ROSTERS)
def test_most_dropouts_is_the_border(roster: tuple[int, int, int, int]) -> None:
    """The remedy's number of dropouts is accepted and one more is refused."""
    n, c, _, _ = roster
    most = most_dropouts(n, c)
    with pytest.raises(BadInput):
        derive_thresholds(n, c, most + 1, 1)
    if max((n + c) // 2 + 1, c + 2) <= n:
        assert derive_thresholds(n, c, most, 1).dropouts == most
    else:
        assert most == 0


@pytest.mark.parametrize(
    ("clients", "colluders", "usual"),
    [(2, 0, 0), (2, 1, 0), (3, 1, 0), (3, 0, 1), (4, 1, 1), (5, 1, 1), (10, 1, 1), (11, 1, 2), (20, 1, 2), (21, 1, 3),
     (100, 1, 10), (300, 1, 30), (1000, 1, 100), (4096, 1, 410), (20, 17, 1), (20, 18, 0), (100, 90, 4)],
)  # fmt: skip
def test_a_tenth_may_vanish_unless_the_quorum_is_tighter(clients: int, colluders: int, usual: int) -> None:
    """⌈n/10⌉ dropouts are tolerated by default, or as many as the quorum allows where that is less: written down."""
    assert PROTECTION.usual_dropouts(clients, colluders) == usual
    assert derive_thresholds(clients, min(colluders, clients - 2), usual, 1).dropouts == usual


@pytest.mark.parametrize("clients", [300, 301, 400, 999, 1000, 4000, 4096])
def test_the_graph_is_sparse_by_default_from_300_clients_on(clients: int) -> None:
    """With the usual dropouts and one colluder a client has some 70 neighbours, not all; below 300 it has all."""
    assert 64 <= derive_thresholds(clients, 1, PROTECTION.usual_dropouts(clients, 1), 1).degree <= 74
    assert derive_thresholds(299, 1, PROTECTION.usual_dropouts(299, 1), 1).degree == 298


@pytest.mark.parametrize("n", range(2, 40))
def test_no_two_survivor_sets_gather_a_quorum(n: int) -> None:
    """However the server splits the honest clients, one of the two halves with all c colluders has fewer than t."""
    for c in range(n - 1):
        t = derive_thresholds(n, c, 0, 1).signatures
        assert all(min(half, n - c - half) + c < t for half in range(n - c + 1))


@pytest.mark.parametrize("clients", [-1, 0, 1])
def test_a_sum_of_one_is_refused(clients: int) -> None:
    """Fewer than two clients raise BadInput."""
    with pytest.raises(BadInput, match="at least 2 clients"):
        derive_thresholds(clients, 0, 0, 1)


def tail(population: int, marked: int, drawn: int, more_than: int) -> Fraction:
    """P[more than `more_than` of `drawn` are marked], drawing without replacement."""
    drawn = min(drawn, population)
    ways = sum(
        math.comb(marked, hits) * math.comb(population - marked, drawn - hits)
        for hits in range(more_than + 1, min(marked, drawn) + 1)
        if drawn - hits <= population - marked
    )
    return Fraction(ways, math.comb(population, drawn))


def least_within(population: int, marked: int, drawn: int, allowed: Fraction) -> int:
    """The smallest m with P[more than m] ≤ allowed, in exact fractions."""
    drawn = min(drawn, population)
    total, exceeding = math.comb(population, drawn), 0
    for hits in range(min(marked, drawn), -1, -1):
        if drawn - hits <= population - marked:
            exceeding += math.comb(marked, hits) * math.comb(population - marked, drawn - hits)
        if Fraction(exceeding, total) > allowed:
            return hits
    return 0


@pytest.mark.parametrize(("n", "c", "d"), SPARSE)
def test_sparse_degree_keeps_its_promise(n: int, c: int, d: int) -> None:
    """Over all clients, too many colluders near one stay below 2^−40 after 2^64 tries, too many dropouts below 2^−40.

    With at most c_k colluders, those who see one side of a client only (k/2 honest holders, the client and the
    colluders) have too few shares, and nobody has enough for both kinds.
    """
    found = derive_thresholds(n, c, d, 1)
    k, t = found.degree, found.shares
    assert not found.is_complete
    assert k % 2 == 0
    most_colluding = t - k // 2 - 2
    assert k // 2 + 1 + most_colluding < t
    assert 2 * t > k + 1 + most_colluding
    assert n * tail(found.signatures - 1, c, k, most_colluding) * 2**64 <= Fraction(1, 2**40)
    assert n * tail(n - 1, d, k, k - t) <= Fraction(1, 2**40)


@pytest.mark.parametrize(("n", "c", "d"), SPARSE[:4])
def test_sparse_degree_is_the_smallest(n: int, c: int, d: int) -> None:
    """No smaller even degree from 64 on meets the same bounds, in exact fractions."""
    for_each = Fraction(1, 2 ** (math.ceil(math.log2(n)) + 1))
    expected = None
    for k in range(64, n - 1, 2):
        threshold = k // 2 + 2 + least_within((n + c) // 2, c, k, for_each / 2**104)
        if threshold <= k - least_within(n - 1, d, k, for_each / 2**40):
            expected = (k, threshold)
            break
    found = derive_thresholds(n, c, d, 1)
    assert (found.degree, found.shares) == expected


def test_too_many_for_a_sparse_graph_stay_complete() -> None:
    """Where no sparse degree meets the bounds, every client deals to every other and t is the global one."""
    found = derive_thresholds(300, 120, 80, 1)
    assert found.is_complete
    assert found.shares == found.signatures == 211


@pytest.mark.parametrize(("n", "c", "d"), [(5, 0, 2), (10, 3, 3), (4, 2, 0), (320, 10, 20)])
def test_explanation_gives_the_numbers(n: int, c: int, d: int) -> None:
    """The explanation names t, c, D and the least number of survivors, and warns when two honest ones may remain."""
    found = derive_thresholds(n, c, d, 1)
    text = found.explain()
    for part in (f"t = {found.signatures} of n = {n}", f"D = {d}", f"fewer than {found.survivors} clients"):
        assert part in text
    assert ("two honest survivors" in text) == (found.survivors - c == 2)
