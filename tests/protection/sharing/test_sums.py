"""What is opened is the sum of exactly the uploads that reached every aggregator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import BadInput, CapacityExceeded, SessionAborted
from secagg.protection.messages import Abort
from secagg.protection.sharing.agreeing import SetRevealed
from secagg.protection.sharing.context import LARGEST_VECTOR, SharedContext, explain, fewest
from secagg.protection.sharing.envelope import sealed_bytes
from secagg.protection.sharing.summing import SumOpened
from tests.protection.rehearsal import context_for
from tests.protection.sharing.rehearsal import Shared, identity, shared_context

RINGS = tuple(range(8, 65, 8))


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Shared, dict[int, tuple[int, ...]]]:
    """A session of 2 to 4 aggregators, and for each client the aggregators that its upload reaches."""
    m, n = draw(st.integers(2, 4)), draw(st.integers(2, 6))
    session = Shared(shared_context(m, n, dropouts=0, bits=draw(st.sampled_from(RINGS))), crashing=draw(st.booleans()))
    everyone = session.context.numbers
    whole = draw(st.lists(st.integers(1, n), min_size=2, unique=True))
    partly = {c: draw(st.lists(st.sampled_from(everyone), max_size=m - 1, unique=True)) for c in range(1, n + 1)}
    return session, {client: everyone if client in whole else tuple(partly[client]) for client in partly}


@given(sessions())
def test_the_sum_is_that_of_whole_uploads(sample: tuple[Shared, dict[int, tuple[int, ...]]]) -> None:
    """Whatever subset of uploads reaches which of 2 to 4 aggregators, the opened sum is that of the whole ones."""
    session, reached = sample
    for client, numbers in reached.items():
        if numbers:
            session.upload(client, to=numbers)
    members = tuple(client for client, numbers in reached.items() if numbers == session.context.numbers)
    session.commit_sets().reveal_sets().agree()
    assert all(keeper.state.members == members for keeper in session.keepers.values())
    assert session.commit_sums().reveal_sums().open() == session.expected(members)
    assert all(keeper.state.members == members for keeper in session.keepers.values())


@pytest.mark.parametrize(("m", "bits"), [*((2, bits) for bits in RINGS), (3, 24), (16, 40)])
def test_sums_reach_both_ends_of_every_ring(m: int, bits: int) -> None:
    """Sums at the ends of the ring come out unchanged, in every ring and with 2, 3 and the most aggregators."""
    session = Shared(shared_context(m, 3, bits=bits)).until("open")
    assert session.open() == session.expected((1, 2, 3))


@given(st.integers(2, 4), st.integers(0, 2**32))
def test_every_aggregators_noise_is_in_the_sum(m: int, seed: int) -> None:
    """The opened integers are the uploads' sum plus the sum of the vectors that the aggregators gave as noise."""
    session = Shared(shared_context(m, 3, bits=64)).until("commit sum")
    generator = np.random.default_rng(seed)
    noises = {number: generator.integers(-1000, 1000, 6) for number in session.context.numbers}
    clean = Shared(shared_context(m, 3, bits=64)).until("open").open()
    noisy = session.commit_sums(noises).reveal_sums().open()
    wrapped = np.array(clean, dtype=np.int64) + sum(noises.values())
    assert noisy == wrapped.tolist()


def test_noise_must_fit() -> None:
    """Noise outside the ring or of another length is refused, and the agreed set waits on."""
    session = Shared(shared_context(2, 3, bits=16)).until("commit sum")
    with pytest.raises(CapacityExceeded):
        session.add_up(1, np.full(6, 2**15, dtype=np.int64))
    with pytest.raises(BadInput, match="sums 6"):
        session.add_up(1, np.zeros(7, dtype=np.int64))
    assert session.commit_sums().reveal_sums().open() == session.expected((1, 2, 3))


@pytest.mark.parametrize(("facts", "least"), [({"minimum_cohort": 4}, 4), ({"colluders": 2}, 4), ({}, 2)])
def test_the_minimum_cohort_is_met_exactly(facts: dict[str, int], least: int) -> None:
    """With the least number of whole uploads a sum is opened; with one fewer every aggregator aborts for good."""
    context = shared_context(2, 6, **facts)
    assert fewest(context.session) == least
    assert str(least) in explain(context.session)
    session = Shared(context).upload(*range(1, least + 1)).commit_sets().reveal_sets().agree()
    assert session.commit_sums().reveal_sums().open() == session.expected(range(1, least + 1))
    session = Shared(context).upload(*range(1, least)).upload(5, to=(1,)).upload(6, to=(2,))
    session.commit_sets().reveal_sets()
    with pytest.raises(SessionAborted, match=f"only {least - 1} clients"):
        session.agree()
    assert isinstance(session.keepers[1].state, Abort)
    with pytest.raises(SessionAborted, match=f"only {least - 1} clients"):
        session.take(1, SetRevealed, lambda at, me, others: at.agree(session.context, me, others), [])


def test_too_few_uploads_are_never_even_listed() -> None:
    """An aggregator with fewer uploads than the minimum cohort aborts at the deadline."""
    session = Shared(shared_context(2, 5, minimum_cohort=3)).upload(1, 2)
    with pytest.raises(SessionAborted, match="only 2 clients uploaded; at least 3"):
        session.commit_sets()
    assert isinstance(session.keepers[1].state, Abort)


def test_the_end_names_the_sum() -> None:
    """The last state holds the members and the digest of the opened integers, the same at every aggregator."""
    session = Shared(shared_context(3, 3)).until("open")
    session.open()
    states = [keeper.state for keeper in session.keepers.values()]
    assert all(isinstance(state, SumOpened) for state in states)
    assert len({(state.members, state.aggregate_sha256) for state in states}) == 1


def test_an_upload_is_one_vector_and_seeds() -> None:
    """A client sends the packed vector and 48 bytes to the first aggregator and 80 bytes to each other."""
    session = Shared(shared_context(3, 3, bits=24, length=1000))
    session.prepare(1)
    sizes = [len(sealed) for sealed in session.sealed[1]]
    assert sizes == [sealed_bytes(session.context, number) for number in (1, 2, 3)] == [3000 + 48, 80, 80]


@pytest.mark.parametrize(
    ("identities", "problem"),
    [
        ({1: identity(1).public}, "2 ≤ m ≤ 16"),
        ({number: identity(number).public for number in range(1, 18)}, "2 ≤ m ≤ 16"),
        ({2: identity(2).public, 1: identity(1).public}, "2 ≤ m ≤ 16"),
        ({1: identity(1).public, 3: identity(3).public}, "2 ≤ m ≤ 16"),
        ({1: identity(1).public, 2: identity(1).public}, "shares its identity"),
        ({1: identity(1).public, 2: context_for().identities[1]}, "shares its identity"),
    ],
)
def test_impossible_aggregators_are_refused(identities: dict[int, bytes], problem: str) -> None:
    """One, seventeen, unsorted, gapped or doubled aggregators make no session, nor does a client that is one."""
    with pytest.raises(BadInput, match=problem):
        SharedContext(context_for(), identities, dict.fromkeys(identities, "a"))


def test_impossible_plans_are_refused() -> None:
    """A session begins neither with dropouts below the minimum cohort nor with a vector that one seal cannot hold."""
    with pytest.raises(BadInput, match="cannot be reached"):
        Shared(shared_context(2, 5, minimum_cohort=3, dropouts=3))
    with pytest.raises(BadInput, match="too long"):
        shared_context(2, 5, bits=8, length=LARGEST_VECTOR + 1)
    with pytest.raises(BadInput, match="needs a name"):
        SharedContext(context_for(), {1: identity(1).public, 2: identity(2).public}, {1: "a"})
