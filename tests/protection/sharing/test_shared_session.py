"""The session in memory that experiments run."""

import numpy as np
import pytest

from secagg.experiments.session import InMemorySession
from secagg.protection import LocalParty, protection_named
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.protection.rehearsal import vectors_for
from tests.protection.sharing.rehearsal import identity, shared_context
from tests.worlds.rosters import identity as client_identity

SHARED = protection_named("shared")


def session_of(m: int, leaves: dict[int, str], noise: int | None = None) -> InMemorySession:
    """Five clients and m aggregators, each adding a constant as its noise."""
    context, source = shared_context(m, 5, dropouts=2, bits=64), SeededRandomness(b"s", TOKEN)
    vectors = vectors_for(context)
    identities = {member: client_identity(member) for member in context.clients}
    identities |= {context.index_of(number): identity(number) for number in context.numbers}
    parties = {index: LocalParty(index, key, source) for index, key in identities.items()}
    draw = None if noise is None else lambda: np.full(context.length, noise, dtype=np.int64)
    return InMemorySession(context, SHARED, parties, lambda member: vectors[member] // 10, leaves, draw)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_sum_is_that_of_who_stays(m: int) -> None:
    """Clients that leave before or between their uploads are not in the sum; every aggregator's noise is."""
    before, between = SHARED.leaving
    session = session_of(m, {2: before, 4: between}, noise=7)
    result = session.run()
    vectors = vectors_for(shared_context(m, 5, bits=64))
    assert result.members == (1, 3, 5)
    assert result.total.tolist() == (sum(vectors[member] // 10 for member in (1, 3, 5)) + 7 * m).tolist()
    assert set(result.measured.client_bytes) == {1, 3, 4, 5}
    whole, first = result.measured.client_bytes[1], result.measured.client_bytes[4]
    assert whole > first > shared_context(m, 5, bits=64).packed_bytes
