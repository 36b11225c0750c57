"""What is opened is the sum of exactly the uploads that reached every aggregator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.errors import BadInput, CapacityExceeded, ProtocolViolation, SessionAborted
from secagg.protection.messages import Outcome
from secagg.protection.sharing.aggregator import begin_aggregator
from secagg.protection.sharing.client import deliveries
from secagg.protection.sharing.context import LARGEST_VECTOR, SharedContext, explain, fewest, sealed_bytes
from secagg.protection.sharing.messages import SetLists
from secagg.protection.sharing.server import GatheringKeys
from tests.protection.rehearsal import context_for, party
from tests.protection.sharing.rehearsal import Shared, aggregator, identity, shared_context, through

RINGS = tuple(range(8, 65, 8))


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Shared, dict[int, tuple[int, ...]]]:
    """A session of 2 to 4 aggregators, and for each client the aggregators that its upload reaches."""
    m, n = draw(st.integers(2, 4)), draw(st.integers(2, 6))
    whole = draw(st.lists(st.integers(1, n), min_size=2, unique=True))
    context = shared_context(m, n, dropouts=n - len(whole), bits=draw(st.sampled_from(RINGS)))
    session, everyone = Shared(context, crashing=draw(st.booleans())), context.numbers
    partly = {c: draw(st.lists(st.sampled_from(everyone), max_size=m - 1, unique=True)) for c in range(1, n + 1)}
    return session, {client: everyone if client in whole else tuple(partly[client]) for client in partly}


@settings(max_examples=40)
@given(sessions())
def test_the_sum_is_that_of_whole_uploads(sample: tuple[Shared, dict[int, tuple[int, ...]]]) -> None:
    """Whatever subset of uploads reaches which of 2 to 4 aggregators, the opened sum is that of the whole ones."""
    session, reached = sample
    for client, numbers in reached.items():
        if numbers:
            session.upload(client, to=numbers)
    members = tuple(client for client, numbers in reached.items() if numbers == session.context.numbers)
    session.commit_sets().reveal_sets().agree()
    assert all(state.members == members for state in session.states.values())
    assert session.commit_sums().reveal_sums().open() == session.expected(members)
    assert session.server.members == members
    assert session.server.vectors == tuple(session.context.helpers)


@pytest.mark.parametrize(("m", "bits"), [*((2, bits) for bits in RINGS), (3, 24), (5, 64), (16, 40)])
def test_sums_reach_both_ends_of_every_ring(m: int, bits: int) -> None:
    """Sums at the ends of the ring come out unchanged, in every ring and with 2, 3 and the most aggregators."""
    session = Shared(shared_context(m, 3, bits=bits)).until("open")
    assert session.open() == session.expected((1, 2, 3))


@settings(max_examples=40)
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
        session.worked(1, np.full(6, 2**15, dtype=np.int64))
    with pytest.raises(BadInput, match="sums 6"):
        session.worked(1, np.zeros(7, dtype=np.int64))
    assert session.commit_sums().reveal_sums().open() == session.expected((1, 2, 3))


@pytest.mark.parametrize(
    ("facts", "least"),
    [({"dropouts": 1}, 5), ({"dropouts": 2, "min_clients_in_sum": 4}, 4), ({"dropouts": 2, "colluders": 2}, 4)],
)
def test_all_but_the_dropouts_are_needed_exactly(facts: dict[str, int], least: int) -> None:
    """With n − D whole uploads a sum is opened; with one fewer server and aggregators abort alike."""
    context = shared_context(2, 6, **facts)
    assert fewest(context) == least
    assert str(least) in explain(context)
    session = Shared(context).upload(*range(1, least + 1)).commit_sets().reveal_sets().agree()
    assert session.commit_sums().reveal_sums().open() == session.expected(range(1, least + 1))
    session = Shared(context).upload(*range(1, least)).upload(least, to=(1,)).upload(6, to=(2,))
    session.commit_sets().reveal_sets()
    lists = SetLists(tuple(shown for said in session.said.values() for shown in said.lists))
    with pytest.raises(SessionAborted, match=f"only {least - 1} clients"):
        session.gather()
    with pytest.raises(SessionAborted, match=f"only {least - 1} clients"):
        session.hear(1, lists)


@pytest.mark.parametrize("chosen", [(3, 7, 12), tuple(range(2, 11))])
def test_one_aggregator_cannot_choose_a_smaller_sum(chosen: tuple[int, ...]) -> None:
    """No sum comes of it when an aggregator leaves out more uploads than the plan's D."""
    session = Shared(shared_context(2, 12, dropouts=2, colluders=1))
    session.upload(*session.context.clients)
    liar = session.states[2]
    session.states[2] = replace(liar, manifests=tuple(each for each in liar.manifests if each.client in chosen))
    with pytest.raises(SessionAborted, match=f"only {len(chosen)} clients .*at least 10"):
        session.finish("commit set")


def test_too_few_uploads_are_never_even_listed() -> None:
    """An aggregator with fewer uploads than all but the dropouts aborts at the deadline."""
    session = Shared(shared_context(2, 5, dropouts=2)).upload(1, 2)
    with pytest.raises(SessionAborted, match="only 2 clients uploaded; at least 3"):
        session.commit_sets()


def outcome(members: tuple[int, ...]) -> Outcome:
    """The end of a session of these clients."""
    return through(Outcome(members, bytes(32), bytes(32)))


def test_aggregators_accept_the_outcome_of_the_agreed_set_only() -> None:
    """An outcome of fewer, more or other clients than were agreed on is laid at the server's door."""
    session = Shared(shared_context(2, 4)).upload(1, 2, 3).play("commit set", "open")
    session.open()
    for wrong in ((1, 2), (1, 2, 3, 4), (1, 2, 4)):
        with pytest.raises(ProtocolViolation, match="party 0: opened the sum of another set"):
            session.hear(1, outcome(wrong))
    for number in session.context.numbers:
        state = session.states[number]
        session.hear(number, outcome((1, 2, 3)))
        assert session.states[number] == state


def test_a_client_accepts_an_outcome_with_itself_and_enough_others() -> None:
    """An outcome that leaves the client out, or is of fewer clients than may be summed, is refused."""
    session = Shared(shared_context(2, 5, dropouts=2)).upload(2)
    state, me = session.sent(2), party(2)
    assert state.advance(session.context, me, outcome((1, 2, 5))).state == state
    with pytest.raises(ProtocolViolation, match="party 0: the outcome leaves this client out"):
        state.advance(session.context, me, outcome((1, 3, 4)))
    with pytest.raises(ProtocolViolation, match="party 0: opened the sum of 2 clients, not 3"):
        state.advance(session.context, me, outcome((2, 5)))


def test_an_upload_is_one_vector_and_seeds() -> None:
    """A client sends the packed vector and 1,136 bytes to the first aggregator and 1,168 bytes to each other."""
    session = Shared(shared_context(3, 3, bits=24, length=1000))
    session.prepare(1)
    sizes = [len(sealed) for sealed in session.sealed(1)]
    assert sizes == [sealed_bytes(session.context, number) for number in (1, 2, 3)] == [3000 + 1136, 1168, 1168]
    assert session.context.upload_bytes == sum(sizes) == len(session.transitions[1].vector or b"")
    assert [part.receiver for part in deliveries(session.context)] == [4, 5, 6]


KEYS = {number: identity(number).public for number in range(1, 18)}


@pytest.mark.parametrize(
    ("seconds", "problem"),
    [
        ({}, "not 0; add members with the role aggregator to the roster"),
        ({6: KEYS[1]}, "not 1; add members with the role aggregator to the roster"),
        ({5 + number: key for number, key in KEYS.items()}, "not 17"),
        ({7: KEYS[2], 6: KEYS[1]}, "do not follow"),
        ({6: KEYS[1], 8: KEYS[2]}, "do not follow"),
        ({5: KEYS[1], 6: KEYS[2]}, "do not follow"),
        ({6: KEYS[1], 7: KEYS[1]}, "shares its identity"),
        ({6: KEYS[1], 7: context_for().identities[1]}, "shares its identity"),
        ({6: KEYS[1], 7: bytes(32)}, "shares its identity"),
    ],
)
def test_impossible_aggregators_are_refused(seconds: dict[int, bytes], problem: str) -> None:
    """None, one, seventeen, unsorted, gapped or doubled aggregators make no session, nor one that is also another."""
    names = dict.fromkeys(range(30), "somebody")
    with pytest.raises(BadInput, match=problem):
        SharedContext.of(replace(context_for(), helpers=seconds, names=names, server=bytes(32)))


def test_impossible_plans_are_refused() -> None:
    """A session begins neither with dropouts below the minimum nor with a vector that one seal cannot hold."""
    impossible = shared_context(2, 5, min_clients_in_sum=3, dropouts=3)
    with pytest.raises(BadInput, match="cannot be reached"):
        begin_aggregator(impossible, aggregator(impossible, 1))
    with pytest.raises(BadInput, match="cannot be reached"):
        GatheringKeys(impossible)
    with pytest.raises(BadInput, match="too long"):
        shared_context(2, 5, bits=8, length=LARGEST_VECTOR + 1)
    for missing in (0, 6, 7):
        context = shared_context()
        with pytest.raises(BadInput, match="need a name"):
            replace(context, names={index: name for index, name in context.names.items() if index != missing})


def test_numbers_are_places_in_the_roster() -> None:
    """Aggregators are numbered in the order of their indices; the length may be filled in later."""
    context = shared_context(3, 4, length=0)
    assert context.numbers == (1, 2, 3)
    assert [context.index_of(number) for number in context.numbers] == [5, 6, 7]
    assert [context.number_of(index) for index in (5, 6, 7)] == [1, 2, 3]
    assert [context.name_of(number) for number in (1, 3, 9)] == ["a1", "a3", "aggregator 9"]
    longer = replace(context, length=100)
    assert longer.upload_bytes == context.upload_bytes + longer.packed_bytes
    assert longer.binding == context.binding
