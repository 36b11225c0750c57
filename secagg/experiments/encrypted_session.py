"""One encrypted session in memory: clients, a server that adds, a key holder; every message through its bytes.

A client may leave before it has sent anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.experiments.in_memory import Measured, SessionResult
from secagg.protection import LocalParty, SessionContext
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.encryption.client import AwaitingKey
from secagg.protection.encryption.key_holder import make_key
from secagg.protection.encryption.messages import Declaration, EncryptedUpload, OpenedSum, PublishedKey
from secagg.protection.encryption.server import AwaitingCiphertexts
from secagg.randomness import RandomSource
from secagg.wire import decode, encode

ENCRYPTED_STEPS = ("EncryptedUpload",)


class EncryptedSession:
    """Drives every client, the server and the key holder through one session; `largest` is the plan's capacity."""

    def __init__(
        self,
        session: SessionContext,
        largest: int,
        identities: Mapping[int, SigningKey],
        vector_of: Callable[[int], Integers],
        randomness: RandomSource,
        leaves: Mapping[int, str],
    ) -> None:
        self._clients = {
            member: LocalParty(member, key, randomness) for member, key in identities.items() if member not in leaves
        }
        self._server, self._holder = SigningKey.generate(randomness), SigningKey.generate(randomness)
        self._context = EncryptedContext.of(session, self._server.public, self._holder.public, largest)
        self._vector_of = vector_of
        self._randomness = randomness
        self.measured = Measured()

    def run(self) -> SessionResult:
        """Carry the session to its end. Raises SessionAborted when too few upload, or nothing may be opened."""
        context, seconds = self._context, self.measured.server_seconds
        begun = time.perf_counter()
        held = make_key(context, self._holder, self._randomness)
        published = encode(held.published)
        server = AwaitingCiphertexts(context, decode(PublishedKey, published))
        seconds["PublishedKey"] = time.perf_counter() - begun
        seconds["EncryptedUpload"] = sum(self._upload(server, published, member) for member in self._clients)
        begun = time.perf_counter()
        declared = server.close(self._server)
        seconds["Declaration"] = time.perf_counter() - begun
        begun = time.perf_counter()
        spent = held.begin(context, decode(Declaration, encode(declared.declaration)), declared.packed)
        opened = spent.opening.open(context, self._holder, None)
        total = declared.opened(context, decode(OpenedSum, encode(opened)))
        seconds["open"] = time.perf_counter() - begun
        return SessionResult(total, declared.declaration.members, self.measured)

    def _upload(self, server: AwaitingCiphertexts, published: bytes, member: int) -> float:
        """One client encrypts and the server adds; the server's seconds."""
        context, me = self._context, self._clients[member]
        start = time.process_time()
        ready: Any = AwaitingKey().advance(context, me, decode(PublishedKey, published)).state
        sent = ready.protect(context, me, context.ring.encode(self._vector_of(member)))
        upload, packed = encode(sent.outgoing), sent.vector or b""
        self.measured.charge(member, cpu=time.process_time() - start, sent=len(upload) + len(packed))
        begun = time.perf_counter()
        server.accept(member, decode(EncryptedUpload, upload), packed)
        return time.perf_counter() - begun
