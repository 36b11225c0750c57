"""Sizes and order of messages: padded ones tell nothing, those as long as the data are found."""

from dataclasses import replace

import numpy as np
import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from threat_models.attacks.protocol.sizes_and_timing import SIZES_AND_TIMING, association, bits, sizes_by_step
from threat_models.findings import Verdict
from threat_models.session import Message


def uploads(session, knowledge, size_of, order=None):
    """The session with one message of each client."""
    owned = {client: sum(owner == client for owner in knowledge.owners) for client in session.clients}
    names = order or session.clients
    messages = [Message(name, "server", "upload", size_of(owned[name]), place) for place, name in enumerate(names)]
    return replace(session, messages=tuple(messages))


@pytest.mark.parametrize(
    ("sizes", "expected"), [((5, 5, 5, 5), 0.0), ((1, 2, 3, 4), 2.0), ((1, 1, 2, 2), 1.0), ((7,), 0.0)]
)
def test_bits(sizes, expected):
    """Golden: equal sizes tell nothing, four different ones two bits."""
    assert bits({str(place): size for place, size in enumerate(sizes)}) == expected


def test_association_is_exact_for_few_clients():
    """Golden: of 120 orders of five clients two have the strongest correlation."""
    records = np.arange(5.0)
    assert association(2 * records + 1, records) == pytest.approx(2 / 120)
    assert association(np.ones(5), records) == 1.0


def test_association_by_chance_is_rarely_significant():
    """Independent values have p < 0.01 in about 1 % of 200 draws: more than 9 have probability below 10⁻³."""
    generator = np.random.default_rng(5)
    found = [association(generator.normal(size=6), generator.normal(size=6)) for _ in range(200)]
    assert sum(each < 0.01 for each in found) <= 9


def test_messages_of_one_size_tell_nothing():
    """A simulated session's messages have one size, whatever its clients hold."""
    finding = attacked(SIZES_AND_TIMING, "network_observer", rehearsed(partition="dirichlet:0.3"))
    assert measured(finding, "bits_of_a_size").value == 0
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is not Verdict.SUCCEEDS


def test_messages_as_long_as_the_data_are_found():
    """Uploads that grow with a client's records tell how many it has."""
    rehearsal = rehearsed(partition="dirichlet:0.3")
    session = uploads(rehearsal.sessions[0], rehearsal.knowledge, lambda count: 100 + 8 * count)
    finding = attacked(SIZES_AND_TIMING, "network_observer", rehearsal, session)
    assert finding.verdict is Verdict.SUCCEEDS
    assert "upload" in finding.sentence


def test_order_by_size_of_the_data_is_found():
    """Clients that come in the order of their numbers of records are noticed, though all messages are alike."""
    rehearsal = rehearsed(partition="dirichlet:0.3")
    knowledge, session = rehearsal.knowledge, rehearsal.sessions[0]
    order = sorted(session.clients, key=lambda client: sum(owner == client for owner in knowledge.owners))
    ordered = uploads(session, knowledge, lambda _: 100, order)
    assert attacked(SIZES_AND_TIMING, "network_observer", rehearsal, ordered).verdict is Verdict.SUCCEEDS


def test_sizes_are_added_by_step_and_direction():
    """What a client sends and what it gets in a step are counted apart; others' messages are not."""
    messages = [Message("a", "server", "x", 3, 0), Message("a", "server", "x", 4, 1), Message("server", "a", "x", 9, 2)]
    messages.append(Message("server", "everyone", "x", 100, 3))
    assert sizes_by_step(messages, ["a"]) == {("x", True): {"a": 7}, ("x", False): {"a": 9}}
