"""Honest encrypted sessions for tests to put their hand into, and what a cheating party needs to sign again."""

import functools
import hashlib
from dataclasses import dataclass, replace

import numpy as np

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Ring
from secagg.protection.encryption import binding as bind
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.encryption.client import AwaitingKey
from secagg.protection.encryption.key_holder import HeldKey, make_key
from secagg.protection.encryption.messages import EncryptedUpload, PublishedKey
from secagg.protection.encryption.server import AwaitingCiphertexts, DeclaredSum
from secagg.protection.seam import LocalParty
from secagg.unsafe_for_tests import SeededRandomness
from secagg.wire import decode, encode

LARGEST = 40_000  # 17-bit plaintexts: an entry of uniform noise is within it with probability 0.62
LENGTH = 4200  # two ciphertexts


@functools.cache
def identity(name: str) -> SigningKey:
    """The identity key of a party, the same in every session."""
    return SigningKey.generate(SeededRandomness(name.encode()))


SERVER = identity("server")
HOLDER = identity("holder")


@functools.cache
def context_for(
    clients: int = 3, *, length: int = LENGTH, largest: int = LARGEST, plan: bytes = b"plan", minimum_cohort: int = 2
) -> EncryptedContext:
    """The public facts of a session of clients 1…n, called c1…cn, one of which may vanish."""
    members = range(1, clients + 1)
    return EncryptedContext(
        plan=plan.ljust(32, b"."),
        session=(b"session of " + plan).ljust(32, b"."),
        roster=b"roster".ljust(32, b"."),
        identities={member: identity(f"c{member}").public for member in members},
        names={member: f"c{member}" for member in members},
        ring=Ring(-(-(largest.bit_length() + 1) // 8) * 8),
        length=length,
        colluders=0,
        dropouts=1,
        minimum_cohort=minimum_cohort,
        server=SERVER.public,
        holder=HOLDER.public,
        largest=largest,
    )


def sha256(content: bytes) -> bytes:
    """The digest that a declaration or an upload holds of what follows it."""
    return hashlib.sha256(content).digest()


def party(member: int) -> LocalParty:
    """A client with its own reproducible secrets."""
    return LocalParty(member, identity(f"c{member}"), SeededRandomness(b"party %d " % member))


def make_held(context: EncryptedContext) -> HeldKey:
    """The key holder's key for a session, through its bytes."""
    return decode(HeldKey, encode(make_key(context, HOLDER, SeededRandomness(b"sealing " + context.plan))))


def upload_of(
    context: EncryptedContext, published: PublishedKey, member: int, vector: np.ndarray
) -> tuple[EncryptedUpload, bytes]:
    """What an honest client sends, through its bytes."""
    ready = AwaitingKey().advance(context, party(member), decode(PublishedKey, encode(published))).state
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
        """A server that has heard nobody yet."""
        return AwaitingCiphertexts(self.context, self.held.published)

    def declare(self, *members: int) -> DeclaredSum:
        """What the server declares when it hears these members."""
        server = self.server()
        for member in members:
            server.accept(member, *self.uploads[member])
        return server.close(SERVER)


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
