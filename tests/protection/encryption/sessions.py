"""Honest encrypted sessions for tests to put their hand into, and what a cheating party needs to sign again."""

import functools
import hashlib
from dataclasses import dataclass, replace

import numpy as np

from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Ring
from secagg.protection.encryption import bfv
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.client import begin_client
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.key_holder import HeldKey, begin_holder, unseal_seed
from secagg.protection.encryption.messages import EncryptedUpload, OpenedSum, PublishedKey, SumRequest
from secagg.protection.encryption.parameters import HeParameters
from secagg.protection.encryption.polynomials import centre, mask_of, subtract
from secagg.protection.encryption.server import AwaitingCiphertexts, AwaitingHolder, AwaitingOpening, CiphertextsToAdd
from secagg.protection.interface import LocalParty, Transition
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode

LARGEST = 40_000  # 18-bit plaintexts: an entry of uniform noise is within it with probability 0.31
LENGTH = 4200  # two ciphertexts


@functools.cache
def identity(name: str) -> SigningKey:
    """The identity key of a party, the same in every session."""
    return SigningKey.generate(SeededRandomness(name.encode(), TOKEN))


SERVER = identity("server")
HOLDER = identity("holder")


@functools.cache
def context_for(
    clients: int = 3,
    *,
    length: int = LENGTH,
    largest: int = LARGEST,
    plan: bytes = b"plan",
    min_clients_in_sum: int = 2,
) -> EncryptedContext:
    """The public facts of a session of clients 1…n, called c1…cn, one of which may vanish."""
    members = range(1, clients + 1)
    return EncryptedContext(
        round_digest=plan.ljust(32, b"."),
        session_id=(b"session of " + plan).ljust(32, b"."),
        roster=b"roster".ljust(32, b"."),
        identities={member: identity(f"c{member}").public for member in members},
        names={0: "server"} | {member: f"c{member}" for member in members} | {clients + 1: "key holder"},
        ring=Ring(-(-(largest.bit_length() + 1) // 8) * 8),
        length=length,
        colluders=0,
        dropouts=1,
        min_clients_in_sum=min_clients_in_sum,
        server=SERVER.public,
        helpers={clients + 1: HOLDER.public},
        largest=largest,
    )


def sha256(content: bytes) -> bytes:
    """The digest that a declaration or an upload holds of what follows it."""
    return hashlib.sha256(content).digest()


def party(member: int) -> LocalParty:
    """A client with its own reproducible secrets."""
    return LocalParty(member, identity(f"c{member}"), SeededRandomness(b"party %d " % member, TOKEN))


def holder_of(context: EncryptedContext) -> LocalParty:
    """The session's key holder."""
    return LocalParty(context.holder_index, HOLDER, SeededRandomness(b"sealing " + context.round_digest, TOKEN))


def make_held(context: EncryptedContext) -> HeldKey:
    """The key holder's key for a session, through its bytes."""
    return decode(HeldKey, encode(begin_holder(context, holder_of(context)).state))


def upload_of(
    context: EncryptedContext, published: PublishedKey, member: int, vector: np.ndarray
) -> tuple[EncryptedUpload, bytes]:
    """What an honest client sends, through its bytes."""
    state = begin_client(context, party(member)).state
    ready = state.advance(context, party(member), decode(PublishedKey, encode(published))).state
    transition = ready.protect(context, party(member), context.ring.encode(vector))
    return decode(EncryptedUpload, encode(transition.outgoing)), transition.vector


def signed_again(context: EncryptedContext, upload: EncryptedUpload, packed: bytes, **changes) -> EncryptedUpload:
    """The upload of a client that announces and signs other things."""
    changed = replace(upload, length=len(packed), digest=sha256(packed))
    return bind.sign_upload(context, identity(f"c{upload.member}"), replace(changed, **changes))


@dataclass(frozen=True)
class Session:
    """An honest session up to the clients' uploads."""

    context: EncryptedContext
    held: HeldKey
    vectors: dict[int, np.ndarray]
    uploads: dict[int, tuple[EncryptedUpload, bytes]]

    def server(self) -> AwaitingCiphertexts:
        """A server that has heard no client yet."""
        joining = AwaitingHolder(self.context)
        joining.accept(self.context.holder_index, self.held.published)
        return joining.close()[0]

    def adding(self, *members: int) -> CiphertextsToAdd:
        """A server that has taken these members' uploads and added nothing."""
        server = self.server()
        for member in members:
            server.accept(member, self.uploads[member][0])
        return server.close()[0]

    def added(self, *members: int) -> CiphertextsToAdd:
        """The same with everything added."""
        adding = self.adding(*members)
        for member in members:
            adding.add(member, self.uploads[member][1])
        return adding

    def request(self, *members: int) -> SumRequest:
        """What the server shows the key holder when it hears these members."""
        return self.added(*members).request(SERVER)

    def ask(self, request: SumRequest) -> Transition:
        """What the key holder makes of a request, through its bytes."""
        return self.held.advance(self.context, holder_of(self.context), decode(SumRequest, encode(request)))

    def mask_keys(self, member: int) -> tuple[bytes, ...]:
        """The keys of a member's mask, as the key holder unseals them."""
        sealing = EnvelopeKey.from_bytes(self.held.sealing_secret)
        return bind.mask_keys(self.context, unseal_seed(self.context, sealing, self.uploads[member][0]), member)

    def unmasked(self, ciphertexts: np.ndarray, *members: int) -> np.ndarray:
        """Ciphertexts without these members' masks."""
        rest, parameters = ciphertexts.copy(), self.context.parameters
        for member in members:
            subtract(rest[:, 0], mask_of(parameters, len(rest), self.mask_keys(member)), parameters.primes)
        return rest


def secret_polynomial(parameters: HeParameters, secret: bytes) -> np.ndarray:
    """The ternary secret: what the ciphertext (0, Δ) decrypts to."""
    unit = np.zeros((1, 2, len(parameters.primes), parameters.degree), dtype=np.uint64)
    unit[0, 1, :, 0] = [parameters.scale % prime for prime in parameters.primes]
    return centre(parameters, bfv.decrypt(parameters, secret, unit))


def phase(pair: np.ndarray, secret: np.ndarray, prime: int) -> np.ndarray:
    """c₀ + c₁·s modulo X^N + 1 and a prime, by Kronecker substitution: products of two long integers, in Python's."""
    width, degree = 10, len(secret)

    def joined(digits: np.ndarray) -> int:
        return int.from_bytes(b"".join(int(digit).to_bytes(width, "little") for digit in digits), "little")

    def times(chosen: np.ndarray) -> np.ndarray:
        product = (joined(pair[1]) * joined(chosen)).to_bytes(2 * degree * width, "little")
        digits = [int.from_bytes(product[at : at + width], "little") for at in range(0, len(product), width)]
        return np.array(digits[:degree], dtype=object) - np.array(digits[degree:], dtype=object)

    return (pair[0].astype(object) + times(secret == 1) - times(secret == -1)) % prime


def opened(session: Session, request: SumRequest) -> np.ndarray:
    """What the server makes of the key holder's answer to its request, every message through its bytes."""
    context = session.context
    answer = session.ask(request)
    opening = AwaitingOpening(context, request.declaration)
    opening.accept(context.holder_index, decode(OpenedSum, encode(answer.outgoing)))
    opening.inspect(context.holder_index, answer.vector)
    return opening.close()[0].open(context, context.ring.unpack(answer.vector, context.length))


def requested_again(session: Session, request: SumRequest, packed: bytes | None = None, **changes) -> SumRequest:
    """The request of a server that says and signs other things."""
    packed = request.packed if packed is None else packed
    changed = replace(request.declaration, total=sha256(packed))
    return SumRequest(bind.sign_declaration(session.context, SERVER, replace(changed, **changes)), packed)


def play(context: EncryptedContext, seed: int = 0) -> Session:
    """Vectors whose sum reaches both ends of the capacity, and their uploads."""
    most = context.largest // len(context.clients)
    generator = np.random.default_rng(seed)
    vectors = {}
    for member in context.clients:
        vectors[member] = generator.integers(-most, most, context.length, endpoint=True)
        vectors[member][:2] = (most, -most)
    held = make_held(context)
    uploads = {member: upload_of(context, held.published, member, vector) for member, vector in vectors.items()}
    return Session(context, held, vectors, uploads)


@functools.cache
def honest() -> Session:
    """The session that most tests share; nothing in it changes."""
    return play(context_for())
