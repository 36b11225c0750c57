"""The session in memory that experiments run."""

import numpy as np
import pytest

from secagg.errors import SessionAborted
from secagg.experiments.shared_session import SHARED_STEPS, SharedSession
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.protection.rehearsal import identity as client_identity
from tests.protection.rehearsal import vectors_for
from tests.protection.sharing.rehearsal import identity, shared_context


def session_of(m: int, leaves: dict[int, str], noise: int | None = None) -> SharedSession:
    """Five clients and m aggregators, each adding a constant as its noise."""
    context = shared_context(m, 5, bits=64)
    vectors = vectors_for(context)
    identities = {member: client_identity(member) for member in context.clients}
    identities |= {context.index_of(number): identity(number) for number in context.numbers}
    draw = None if noise is None else lambda: np.full(context.length, noise, dtype=np.int64)
    return SharedSession(
        context, identities, lambda member: vectors[member] // 10, SeededRandomness(b"s", TOKEN), leaves, draw
    )


@pytest.mark.parametrize("m", [2, 3, 5])
def test_the_sum_is_that_of_who_stays(m: int) -> None:
    """Clients that leave before or between their uploads are not in the sum; every aggregator's noise is."""
    before, between = SHARED_STEPS
    session = session_of(m, {2: before, 4: between}, noise=7)
    result = session.run()
    vectors = vectors_for(shared_context(m, 5, bits=64))
    assert result.members == (1, 3, 5)
    assert result.total.tolist() == (sum(vectors[member] // 10 for member in (1, 3, 5)) + 7 * m).tolist()
    assert set(result.measured.client_bytes) == {1, 3, 4, 5}
    whole, first = result.measured.client_bytes[1], result.measured.client_bytes[4]
    assert whole > first > shared_context(m, 5, bits=64).packed_bytes


def test_too_few_whole_uploads_open_nothing() -> None:
    """When all but one client leave, the session ends without a sum."""
    with pytest.raises(SessionAborted, match="only 1 clients"):
        session_of(2, dict.fromkeys((2, 3, 4, 5), SHARED_STEPS[1])).run()
