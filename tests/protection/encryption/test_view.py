"""What the key holder sees is a function of the sum alone: for honest and for malicious keys, down to the last bit."""

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from secagg.crypto.envelopes import EnvelopeKey
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.client import EncryptionReady
from secagg.protection.encryption.key_holder import unseal_seed
from secagg.protection.encryption.messages import BLIND_BYTES, PublishedKey
from secagg.protection.encryption.parameters import DATA, DEGREE
from secagg.protection.encryption.polynomials import pack
from secagg.protection.interface import LocalParty
from secagg.randomness import OperatingSystem
from tests.protection.encryption import sessions
from tests.protection.encryption.sessions import HOLDER, Session, context_for, identity, phase, secret_polynomial

CAPACITIES = [2**bits - 1 for bits in (19, 27, 35, 41, 43, 55)]
"""With twenty clients each set of primes is chosen once."""


def of_twenty(largest):
    """A session of twenty clients, three of which are enough."""
    return replace(context_for(20, largest=largest, length=4100), dropouts=17)


def malicious_key(context, secret):
    """A key without noise: (−a·s, a) for the constant s in {0, 1}, a random, as the clients' checks accept it."""
    parameters = context.parameters
    primes = (*parameters.primes, parameters.special)
    key = np.zeros((1, 2, len(primes), DEGREE), dtype=np.uint64)
    for place, prime in enumerate(primes):
        key[0, 1, place] = np.random.default_rng(place).integers(1, prime, DEGREE, dtype=np.uint64)
        key[0, 0, place] = secret * (np.uint64(prime) - key[0, 1, place])
    return published(context, pack(key, parameters.entry_bytes))


def published(context, public):
    """A signed key with this public half; the sealing key is the test's."""
    sealing = EnvelopeKey.from_bytes(b"s" * 32)
    return bind.sign_key(context, HOLDER, PublishedKey(context.parameters.digest(), public, sealing.public, bytes(64)))


def splits(context):
    """Vectors of three clients, and others with the same sum: other owners, other signs, the edges of the capacity."""
    most = context.largest // 3
    one = {member: np.random.default_rng(member).integers(-most, most, context.length) for member in (1, 2, 3)}
    moved = np.random.default_rng(9).integers(-most, most, context.length)
    moved[:2] = (most, -most)
    return one, {1: one[1] + moved, 2: one[2] - moved, 3: one[3]}


def seen(context, key, vectors, secret=None):
    """The phase of the sum of uploads without their masks, modulo each prime: all that s and seeds give."""
    held = replace(sessions.make_held(context), sealing_secret=b"s" * 32, published=key)
    uploads = {member: sessions.upload_of(context, key, member, vector) for member, vector in vectors.items()}
    session = Session(context, held, vectors, uploads)
    total = session.unmasked(context.summed(session.request(*vectors).packed), *vectors)
    secret = np.eye(1, DEGREE, dtype=np.int64)[0] if secret is None else secret
    primes = enumerate(context.parameters.primes)
    return np.stack([[phase(pair[:, place], secret, prime) for pair in total] for place, prime in primes])


def of_sum(context, vectors):
    """Δ·X modulo each prime, by Python's integers."""
    padded = np.zeros(context.ciphertexts * DEGREE, dtype=object)
    padded[: context.length] = sum(vector.astype(object) for vector in vectors.values())
    primes = context.parameters.primes
    return np.stack([(context.parameters.scale * padded % prime).reshape(-1, DEGREE) for prime in primes])


@pytest.mark.parametrize("largest", CAPACITIES)
def test_a_key_without_noise_shows_the_sum_and_not_its_split(largest):
    """With pk = (0, a), where nothing hides a rounding, two splits of a sum show Δ·X to the last bit, in every set."""
    context = of_twenty(largest)
    key = malicious_key(context, secret=0)
    one, other = splits(context)
    expected = of_sum(context, one)
    nothing = np.zeros(DEGREE, dtype=np.int64)
    assert (seen(context, key, one, nothing) == expected).all()
    assert (seen(context, key, other, nothing) == expected).all()


def test_the_capacities_cover_every_set_of_primes():
    """The test above runs in each set."""
    assert [of_twenty(largest).parameters.primes for largest in CAPACITIES] == list(DATA)


@pytest.mark.parametrize("split", [0, 1])
def test_a_key_with_a_tiny_secret_shows_no_more(split):
    """With pk = (−a, a) and s = 1 the phase is Δ·X but for a carry in one of 10⁵ coefficients, whatever the split."""
    context = context_for()
    vectors = splits(context)[split]
    difference = seen(context, malicious_key(context, secret=1), vectors) - of_sum(context, vectors)
    (prime,) = context.parameters.primes
    assert set((difference % prime).reshape(-1).tolist()) <= {0, 1, prime - 1}
    assert (difference != 0).sum() < 10


@pytest.mark.parametrize("split", [0, 1])
def test_an_honest_key_shows_the_sum_under_noise_of_zeros_alone(split):
    """With the key holder's own key the phase is Δ·X and the noise of encryptions of zero, whatever the split."""
    context = context_for()
    held = sessions.make_held(context)
    secret = secret_polynomial(context.parameters, held.secret)
    vectors = splits(context)[split]
    key = published(context, held.published.public_key)
    (prime,) = context.parameters.primes
    noise = (seen(context, key, vectors, secret) - of_sum(context, vectors)) % prime
    noise = np.where(noise > prime // 2, noise - prime, noise).astype(np.float64)
    assert np.abs(noise).max() <= 3 * DEGREE // 2
    assert abs(noise.mean()) < 6.5 * np.sqrt(3 * DEGREE / 18 / noise.size)  # N/18 each: s ternary, roundings uniform
    assert noise.var() == pytest.approx(3 * DEGREE / 18, rel=0.2)


@dataclass
class Tape:
    """Randomness whose first bytes can be played again; what comes after is fresh."""

    played: list[bytes] = field(default_factory=list)

    def bytes(self, size):
        """The next bytes of the tape, or new ones."""
        return self.played.pop(0) if self.played else OperatingSystem().bytes(size)


def test_the_digest_tells_nothing_where_encryptions_hold_no_randomness():
    """Under a key that makes an upload a function of vector and seed, its digest still is not: the blind differs."""
    context = context_for()
    parameters = context.parameters
    primes = (*parameters.primes, parameters.special)
    ones = np.zeros((1, 2, len(primes), DEGREE), dtype=np.uint64)
    ones[0, 1] = 1  # a = 1: what stands before the division by the special prime is smaller than half of it
    key = published(context, pack(ones, parameters.entry_bytes))
    vector = np.arange(context.length)
    sent = []
    for _ in range(2):
        me = LocalParty(1, identity("c1"), Tape([b"m" * 32]))
        sent.append(EncryptionReady(key).protect(context, me, context.ring.encode(vector)))
    (first, second) = (each.vector for each in sent)
    assert first[:-BLIND_BYTES] == second[:-BLIND_BYTES]
    assert first[-BLIND_BYTES:] != second[-BLIND_BYTES:]
    assert unseal_seed(context, EnvelopeKey.from_bytes(b"s" * 32), sent[0].outgoing) == b"m" * 32
    digests = {each.outgoing.digest for each in sent}
    assert len({*digests, hashlib.sha256(first[:-BLIND_BYTES]).digest()}) == 3


def test_the_blind_stays_with_the_server():
    """No message to the key holder holds the blind of an upload."""
    session = sessions.honest()
    request = session.request(1, 2, 3)
    shown = sessions.encode(request)
    for member in (1, 2, 3):
        assert session.uploads[member][1][-BLIND_BYTES:] not in shown
