"""Encrypted two-client sessions, replayed as the key holder sees them, with the client's and the library SEAL's code.

Two members are the hardest case for them: all others side with the key holder, and nothing else hides a part. It knows
two ways of splitting the sum, and plays both through the code that made the ciphertexts, under a key that leaves no
noise and with the mask seeds that it unsealed: what it would see of either, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers, Ring
from secagg.protection.encryption import bfv
from secagg.protection.encryption.client import begin_client
from secagg.protection.encryption.derivations import EncryptedContext, mask_keys, sign_key
from secagg.protection.encryption.key_holder import unseal_seed
from secagg.protection.encryption.messages import PublishedKey
from secagg.protection.encryption.parameters import HeParameters
from secagg.protection.encryption.polynomials import Polynomials, add, centre, mask_of, multiples, pack, subtract
from secagg.protection.interface import LocalParty
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from threat_models.session import Encoding, SplitSession

LIMB = 20
MEMBERS = (1, 2)


class Tape:
    """A client's recorded random bytes, which an adversary that knows the client's seeds can replay."""

    def __init__(self) -> None:
        self._drawn: list[bytes] = []
        self._next = 0

    def bytes(self, count: int) -> bytes:
        """Return the next recorded random bytes or, after the last, new ones, which are recorded too."""
        if self._next == len(self._drawn):
            self._drawn.append(OperatingSystem().bytes(count))
        self._next += 1
        return self._drawn[self._next - 1]

    def rewind(self) -> Tape:
        """Go back to the first of the recorded random bytes, to replay them, and return the tape."""
        self._next = 0
        return self


@dataclass(frozen=True)
class _HolderKey:
    """A key holder's published key, and its secret's coefficients (N,), in {−1, 0, 1}."""

    published: PublishedKey
    secret: Integers = field(repr=False)


@dataclass(frozen=True)
class Scene:
    """An encrypted session with the plan's parameters, two clients that take part, and the key holder's own keys."""

    context: EncryptedContext
    identity: SigningKey = field(repr=False)
    sealing: EnvelopeKey = field(repr=False)

    @classmethod
    def of(cls, parameters: HeParameters, security: int) -> Scene:
        """Make a new session whose vectors fill one ciphertext."""
        source = OperatingSystem()
        identity, clients = SigningKey.generate(source), range(1, parameters.summands + 1)
        bits = parameters.plain_bits - 1
        context = EncryptedContext(
            round_digest=source.bytes(32),
            session_id=source.bytes(32),
            roster=source.bytes(32),
            identities=dict.fromkeys(clients, identity.public),
            names={},
            ring=Ring(-(-bits // 8) * 8),
            length=parameters.degree,
            colluders=0,
            dropouts=0,
            min_clients_in_sum=2,
            server=identity.public,
            helpers={parameters.summands + 1: identity.public},
            largest=(1 << (bits - 1)) - 1,
            security=security,
        )
        return cls(context, identity, EnvelopeKey.generate(source))

    def without_noise(self, secret: int) -> _HolderKey:
        """Make a malicious public key (−a·s, a) without noise, whose secret s is 0 or 1.

        Dropping the special prime removes the noise that is left.
        """
        parameters = self.context.parameters
        primes = (*parameters.primes, parameters.special)
        generator = np.random.default_rng(int.from_bytes(OperatingSystem().bytes(16), "big"))
        pair = np.zeros((1, 2, len(primes), parameters.degree), dtype=np.uint64)
        for place, prime in enumerate(primes):
            pair[0, 1, place] = generator.integers(1, prime, parameters.degree, dtype=np.uint64)
            pair[0, 0, place] = secret * (np.uint64(prime) - pair[0, 1, place])
        return _HolderKey(self._publish(pack(pair, parameters.entry_bytes)), secret * self._unit())

    def honest(self) -> _HolderKey:
        """Make a key as an honest key holder does, and learn its secret by decrypting the ciphertext (0, Δ)."""
        parameters = self.context.parameters
        key = bfv.generate(parameters)
        delta = np.zeros((1, 2, len(parameters.primes), parameters.degree), dtype=np.uint64)
        delta[0, 1] = multiples(self._unit(), parameters.scale, parameters.primes, parameters.degree)[0]
        return _HolderKey(self._publish(key.public), centre(parameters, bfv.decrypt(parameters, key.secret, delta)))

    def _unit(self) -> Integers:
        unit = np.zeros(self.context.parameters.degree, dtype=np.int64)
        unit[0] = 1
        return unit

    def _publish(self, public: bytes) -> PublishedKey:
        unsigned = PublishedKey(self.context.parameters.digest(), public, self.sealing.public, bytes(64))
        return sign_key(self.context, self.identity, unsigned)


def encrypt_as_client(scene: Scene, published: PublishedKey, member: int, vector: Integers, tape: Tape) -> Polynomials:
    """Encrypt a vector by the real client code; return the upload minus the mask, which the key holder can remove."""
    context, me = scene.context, LocalParty(member, scene.identity, tape)
    ready: Any = begin_client(context, me).state
    sent = ready.advance(context, me, published).state.protect(context, me, context.ring.encode(vector))
    found = context.uploaded(sent.vector)
    keys = mask_keys(context, unseal_seed(context, scene.sealing, sent.outgoing), me.member)
    subtract(found[:, 0], mask_of(context.parameters, len(found), keys), context.parameters.primes)
    return found


def encrypt_as_library(scene: Scene, published: PublishedKey, member: int, vector: Integers, tape: Tape) -> Polynomials:
    """Encrypt vector + mask, modulo the plaintext modulus t, as the library SEAL does.

    The mask can be known, no part of the ciphertext can.
    """
    parameters = scene.context.parameters
    words = np.frombuffer(tape.bytes(8 * parameters.degree), dtype="<u8")
    residues = (vector.view(np.uint64) + words) & np.uint64((1 << parameters.plain_bits) - 1)
    half = ((1 << parameters.plain_bits) + 1) // 2
    rounded = (residues.astype(object) * parameters.modulus + half) >> parameters.plain_bits
    found = bfv.encrypt_zero(parameters, published.public_key, 1)
    message = np.stack([(rounded % prime).astype(np.uint64) for prime in parameters.primes])
    add(found[:, 0], message[None], parameters.primes)
    return found


@dataclass(frozen=True)
class SplitSessions:
    """A factory of encrypted two-client sessions with one plan's parameters, for attacks by the key holder."""

    parameters: HeParameters
    security: int

    def series(self, encoding: Encoding, rounds: int) -> tuple[SplitSession, ...]:
        """Make `rounds` two-client sessions with the same split of the sum, under one honest and two malicious keys."""
        scene = Scene.of(self.parameters, self.security)
        keys = {
            "honest key": scene.honest(),
            "key without noise": scene.without_noise(0),
            "key of secret 1": scene.without_noise(1),
        }
        coins = np.random.default_rng(int.from_bytes(OperatingSystem().bytes(16), "big"))
        truth = int(coins.integers(2))
        return tuple(_session(encoding, scene, keys, truth, coins) for _ in range(rounds))


def phase(ciphertext: Polynomials, secret: Integers, prime: int) -> Polynomials:
    """Compute the decryption phase c₀ + c₁·s mod (X^N + 1, prime), (N,), of a ciphertext c (2, N) for ternary s.

    It is exact, computed by 20-bit limbs.
    """
    degree = len(secret)
    twist = np.exp(1j * np.pi * np.arange(degree) / degree)
    spectrum = np.fft.fft(secret * twist)
    total: Polynomials = ciphertext[:1].copy()
    for shift in range(0, prime.bit_length(), LIMB):
        limb = (ciphertext[1] >> np.uint64(shift)) & np.uint64((1 << LIMB) - 1)
        product = np.rint((np.fft.ifft(np.fft.fft(limb * twist) * spectrum) / twist).real).astype(np.int64)
        add(total, multiples(product, 1 << shift, (prime,), degree)[0], (prime,))
    return np.asarray(total[0], dtype=np.uint64)


def _splits(largest: int, entries: int, coins: np.random.Generator) -> tuple[dict[int, Integers], dict[int, Integers]]:
    """Split one sum in two ways: all of it is the first member's, or the largest possible vector is the second's."""
    signs = 2 * coins.integers(2, size=entries) - 1
    held, rest = largest * signs, coins.integers(0, largest, entries, endpoint=True) * signs
    return {1: rest, 2: np.zeros_like(rest)}, {1: rest - held, 2: held}


def _session(
    encoding: Encoding, scene: Scene, keys: dict[str, _HolderKey], truth: int, coins: np.random.Generator
) -> SplitSession:
    parameters = scene.context.parameters
    splits = _splits(scene.context.largest, parameters.degree, coins)
    encode = encrypt_as_client if encoding is Encoding.CLIENT else encrypt_as_library
    tapes, prime = {member: Tape() for member in MEMBERS}, parameters.primes[0]

    def add_up(key: _HolderKey, split: dict[int, Integers], tapes: dict[int, Tape]) -> Polynomials:
        first, second = (encode(scene, key.published, each, split[each], tapes[each].rewind()) for each in MEMBERS)
        add(first, second, parameters.primes)
        return phase(first[0, :, 0], key.secret, prime)

    known = {member: Tape() for member in MEMBERS} if encoding is Encoding.LIBRARY_MASKED else tapes
    one, other = (add_up(keys["key without noise"], split, known) for split in splits)
    seen = {name: add_up(key, splits[truth], tapes) for name, key in keys.items()}
    return SplitSession(prime, (one, other), seen, truth)


def ciphertexts_of(setup: RoundSetup) -> SplitSessions | None:
    """Return an object that makes encrypted sessions with this session's parameters; None if nothing is encrypted."""
    context = setup.context
    return SplitSessions(context.parameters, context.security) if isinstance(context, EncryptedContext) else None
