"""What an upload, the aggregators but one, and the states give away: nothing."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.stream import MaskStream
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.derivations import open_share
from tests.protection.rehearsal import octets, party
from tests.protection.sharing.rehearsal import STEPS, Shared, shared_context

FALSE_FAILURE = 1e-6  # were the seeds not fixed, one run in a million would fail
LENGTH = 40_000


def upload_of(bits: int, value: int, m: int = 3, client: int = 1) -> Shared:
    """A session in which a client has split a constant vector."""
    session = Shared(shared_context(m, 3, bits=bits, length=LENGTH))
    session.vectors[client] = np.full(LENGTH, value, dtype=np.int64)
    session.prepare(client)
    return session


def shares_of(session: Shared, client: int = 1) -> dict[int, np.ndarray]:
    """The client's shares as residues, opened and expanded with every aggregator's secret."""
    context, ring = session.context, session.context.ring
    found = {}
    for number in context.numbers:
        secret = EnvelopeKey.from_bytes(session.states[number].secret)
        opened = open_share(context, secret, client, number, session.sealed(client)[number - 1])
        if number == 1:
            found[number] = ring.unpack(opened.vector, LENGTH)
        else:
            found[number] = np.zeros(LENGTH, dtype=ring.word)
            MaskStream().apply(found[number], bind.stream_key(context, opened.seed, client, number), 1)
    return found


def looks_uniform(octets: np.ndarray, tests: int) -> bool:
    """A chi-square test on the frequencies of byte values; all `tests` together fail falsely with FALSE_FAILURE."""
    expected = len(octets) / 256
    observed = np.bincount(octets, minlength=256)
    return bool(((observed - expected) ** 2 / expected).sum() < chi2.isf(FALSE_FAILURE / tests, 255))


@pytest.mark.parametrize("bits", [8, 24, 32, 64])
@pytest.mark.parametrize("end", [0, 1])
def test_all_shares_but_one_look_uniform(bits: int, end: int) -> None:
    """Of a constant vector, the bytes of every m − 1 shares, and of their sum, pass chi-square tests of uniformity.

    The false-failure rate of the whole test is 1e-6.
    """
    session = upload_of(bits, end * (2 ** (bits - 1) - 1))
    ring, shares = session.context.ring, shares_of(session)
    pairs = list(combinations(shares, 2))
    for pair in pairs:
        for view in (*(shares[number] for number in pair), shares[pair[0]] + shares[pair[1]]):
            packed = np.frombuffer(ring.pack(view), dtype=np.uint8)
            for place in range(ring.entry_bytes):
                assert looks_uniform(packed[place :: ring.entry_bytes], len(pairs) * 3 * ring.entry_bytes)
    total = sum(shares.values())
    assert (ring.decode(total) == session.vectors[1]).all()


def test_a_sealed_share_looks_uniform() -> None:
    """What a relay sees of a constant vector passes a chi-square test of uniformity with false-failure rate 1e-6."""
    sealed = upload_of(32, 0).sealed(1)[0]
    assert looks_uniform(np.frombuffer(sealed[1120:], dtype=np.uint8), 1)


def test_shares_of_the_same_vector_are_fresh() -> None:
    """Two uploads of one vector, by two clients or by one, share no entry of 64 bits at the first aggregator."""
    one, other = upload_of(64, 7), upload_of(64, 7, client=2)
    first, second = shares_of(one)[1], shares_of(other, 2)[1]
    one.seed = b"again"
    one.prepare(1)
    assert not (first == second).any()
    assert not (first == shares_of(one)[1]).any()


def test_sizes_do_not_depend_on_the_data() -> None:
    """The sealed shares of different vectors have the same sizes."""
    sizes = {tuple(len(each) for each in upload_of(24, value).sealed(1)) for value in (0, 1, -1, 2**23 - 1)}
    assert len(sizes) == 1


def test_what_a_client_keeps_cannot_unmask_it() -> None:
    """After its upload a client's state holds no seed, no ephemeral key and no share, only digests and signatures."""
    session = Shared(shared_context(3, 3)).upload(1)
    drawn = party(1)
    secrets = [drawn.randomness.bytes(32) for _ in range(5)]
    assert not any(secret in content for secret in secrets for content in octets(session.sent(1)))
    assert {len(content) for content in octets(session.sent(1))} == {32, 64}


def test_session_keys_are_forgotten_with_the_sum() -> None:
    """From the commitment to the sum share on, no state holds the key that opens the uploads."""
    session = Shared(shared_context(2, 3)).until("commit sum")
    secrets = {number: state.secret for number, state in session.states.items()}
    for action in (session.commit_sums, session.reveal_sums, session.open):
        action()
        for number, state in session.states.items():
            assert not any(secrets[number] in content for content in octets(state))
            assert secrets[number] not in session.disk[number]["state"][1]


@pytest.mark.parametrize("step", STEPS)
def test_secrets_never_print(step: str) -> None:
    """No state, party or running sum shows a session key, or a nonce before it is revealed, in its repr."""
    session = Shared(shared_context(2, 3)).until(step)
    secrets, shown = [], []
    for number, state in session.states.items():
        shown += [repr(state), repr(session.parties[number])]
        hidden = {"reveal set": ("secret", "nonce"), "reveal sum": ("nonce", "digest"), "open": ()}
        secrets += [getattr(state, name) for name in hidden.get(step, ("secret",))]
        if step == "commit sum":
            shown += [repr(state.summing(session.context, session.parties[number]))]
    for text in shown:
        for secret in secrets:
            assert secret.hex() not in text
            assert repr(secret)[2:-1] not in text
