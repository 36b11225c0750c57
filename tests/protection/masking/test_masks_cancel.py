"""The sum that is opened is the survivors' sum, bit for bit, or nothing is opened."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import SessionAborted
from secagg.protection import protection_named
from secagg.protection.masking.derivations import thresholds_of
from secagg.protection.masking.quorum import most_dropouts
from tests.protection.rehearsal import LENGTH, SENT, Rehearsal, context_for

RINGS = tuple(range(8, 65, 8))


@st.composite
def tolerable(draw: st.DrawFn) -> tuple[Rehearsal, dict[int, str]]:
    """A session of at most 7 clients and departures within its tolerance, each at any step."""
    n = draw(st.integers(2, 7))
    colluders = draw(st.integers(0, n - 2))
    dropouts = draw(st.integers(0, most_dropouts(n, colluders)))
    context = context_for(n, colluders=colluders, dropouts=dropouts, bits=draw(st.sampled_from(RINGS)))
    leaving = draw(st.lists(st.sampled_from(context.clients), max_size=dropouts, unique=True))
    return Rehearsal(context), {member: draw(st.sampled_from(SENT)) for member in leaving}


def survivors_of(context_clients: tuple[int, ...], leaves: dict[int, str]) -> tuple[int, ...]:
    """Who has uploaded before leaving, if it left."""
    return tuple(member for member in context_clients if leaves.get(member) not in SENT[:3])


@given(tolerable())
def test_masks_cancel_whoever_leaves_and_when(sample: tuple[Rehearsal, dict[int, str]]) -> None:
    """With at most D departures at any steps, the opened sum is that of everyone who uploaded, in every ring."""
    session, leaves = sample
    members, total = session.finish(leaves)
    assert members == survivors_of(session.context.clients, leaves)
    assert total == session.expected(members)


@given(st.lists(st.sampled_from(SENT), min_size=3, max_size=5), st.permutations(range(1, 6)))
def test_too_many_departures_open_nothing(steps: list[str], order: list[int]) -> None:
    """With more than n − t departures the session aborts, and no dealer's secret has t shares at the server."""
    session = Rehearsal(context_for(5, dropouts=2))
    leaves = dict(zip(order, steps, strict=False))
    with pytest.raises(SessionAborted) as caught:
        session.finish(leaves)
    assert caught.value.exit_code == 5
    shares = getattr(session.server, "_shares", None)
    needed = thresholds_of(session.context).shares
    assert shares is None or all(len(held) < needed for held in shares._shares.values())


@pytest.mark.parametrize("steps", list(product(SENT, repeat=2)), ids="-".join)
def test_every_pair_of_steps_can_lose_a_client(steps: tuple[str, str]) -> None:
    """Two of five clients that leave at any two steps, equal ones too, leave the survivors' sum behind."""
    session = Rehearsal(context_for(5, dropouts=2))
    leaves = dict(zip((5, 2), steps, strict=True))
    members, total = session.finish(leaves)
    assert total == session.expected(members)
    assert members == survivors_of(session.context.clients, leaves)


@pytest.mark.long
def test_masks_cancel_on_a_sparse_graph() -> None:
    """Among 300 clients, each dealing to some neighbours only, one may leave at every step and the sum is exact."""
    session = Rehearsal(context_for(300, colluders=5, dropouts=20))
    assert not thresholds_of(session.context).is_complete
    members, total = session.finish({30 * place: step for place, step in enumerate(SENT, start=1)})
    assert len(members) == 297
    assert total == session.expected(members)


@pytest.mark.parametrize("bits", RINGS)
def test_sums_reach_both_ends_of_every_ring(bits: int) -> None:
    """A sum at the ends of the ring comes out unchanged."""
    session = Rehearsal(context_for(3, bits=bits))
    members, total = session.finish()
    assert total == session.expected(members)
    assert members == (1, 2, 3)
    assert total[0] > 2 ** (bits - 1) - 4


@cache
def departures_before_abort(protection: str, step: str) -> int:
    """How many of 7 clients may leave at one step before the session aborts."""
    for count in range(8):
        session = Rehearsal(context_for(7, colluders=1, dropouts=2), protection)
        try:
            session.finish(dict.fromkeys(range(1, count + 1), step))
        except SessionAborted:
            return count
    return 8


@pytest.mark.parametrize("step", SENT)
def test_the_threshold_is_met_exactly(step: str) -> None:
    """With n = 7 and c = 1, two departures at a step are survived and three never are: t = 5."""
    assert thresholds_of(context_for(7, colluders=1, dropouts=2)).signatures == 5
    assert departures_before_abort("masked", step) == 3


def test_none_sums_in_clear() -> None:
    """Without protection the sum is that of those who uploaded, down to n − D of them."""
    session = Rehearsal(context_for(4, dropouts=1), "none")
    members, total = session.finish({2: "UploadHeader"})
    assert (members, total) == ((1, 3, 4), session.expected((1, 3, 4)))
    assert session.context.ring.decode(session.context.ring.unpack(session.uploads[1], LENGTH)).tolist() == (
        session.vectors[1].tolist()
    )
    assert departures_before_abort("none", "UploadHeader") == 3


def test_none_keeps_the_minimum_cohort() -> None:
    """Without protection, too, fewer clients than the minimum of clients are never summed."""
    session = Rehearsal(context_for(4, dropouts=3, min_clients_in_sum=3), "none")
    with pytest.raises(SessionAborted, match="at least 3"):
        session.finish({1: "UploadHeader", 2: "UploadHeader"})
    assert "NO PROTECTION" in protection_named("none").explain(session.context)
