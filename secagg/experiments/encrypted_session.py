"""One encrypted session in memory: clients, a server that adds, a key holder; every message through its bytes.

A client may leave before it has sent anything. Ciphertexts wait in files to be added, as at a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.experiments.in_memory import Measured, SessionResult
from secagg.protection import LocalParty
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.encryption.client import begin_client
from secagg.protection.encryption.key_holder import begin_holder
from secagg.protection.encryption.server import AwaitingCiphertexts, AwaitingHolder, AwaitingOpening
from secagg.randomness import RandomSource
from secagg.wire import decode, encode

Message = TypeVar("Message")


class EncryptedSession:
    """Drives every client, the server and the key holder through one session; `identities` holds the key holder's."""

    def __init__(
        self,
        context: EncryptedContext,
        identities: Mapping[int, SigningKey],
        server: SigningKey,
        vector_of: Callable[[int], Integers],
        randomness: RandomSource,
        leaves: Mapping[int, str],
    ) -> None:
        parties = {index: LocalParty(index, key, randomness) for index, key in identities.items()}
        self._holder = parties.pop(context.holder_index)
        self._clients = {member: me for member, me in parties.items() if member not in leaves}
        self._context = context
        self._server = server
        self._vector_of = vector_of
        self.measured = Measured()

    def run(self) -> SessionResult:
        """Carry the session to its end. Raises SessionAborted when too few upload, or nothing may be opened."""
        context = self._context
        begun = time.perf_counter()
        held = begin_holder(context, self._holder)
        joining = AwaitingHolder(context)
        joining.accept(context.holder_index, _through(held.outgoing))
        collecting, published = joining.close()
        self._took("PublishedKey", begun)
        with TemporaryDirectory() as folder:
            for member in self._clients:
                self._upload(collecting, published[member], member, Path(folder))
            opening, requests = self._add_up(collecting, Path(folder))
        begun = time.perf_counter()
        state: Any = held.state
        opened = state.advance(context, self._holder, _through(requests[context.holder_index]))
        opening.accept(context.holder_index, _through(opened.outgoing))
        opening.inspect(context.holder_index, opened.vector)
        ready, _ = opening.close()
        total = ready.open(context, context.ring.unpack(opened.vector, context.length))
        self._took("open", begun)
        return SessionResult(total, ready.members, self.measured)

    def _upload(self, server: AwaitingCiphertexts, published: Any, member: int, folder: Path) -> None:
        """One client encrypts, the server takes what it sends."""
        context, me = self._context, self._clients[member]
        start = time.process_time()
        state: Any = begin_client(context, me).state
        ready: Any = state.advance(context, me, _through(published)).state
        sent = ready.protect(context, me, context.ring.encode(self._vector_of(member)))
        packed = sent.vector or b""
        self.measured.charge(member, cpu=time.process_time() - start, sent=len(encode(sent.outgoing)) + len(packed))
        begun = time.perf_counter()
        server.accept(member, _through(sent.outgoing))
        server.inspect(member, packed)
        _file(folder, member).write_bytes(packed)
        self._took("EncryptedUpload", begun)

    def _add_up(self, collecting: AwaitingCiphertexts, folder: Path) -> tuple[AwaitingOpening, Mapping[int, Any]]:
        begun = time.perf_counter()
        adding, _ = collecting.close()
        for member in adding.vectors:
            adding.add(member, _file(folder, member).read_bytes())
        following = adding.requested(adding.request(self._server))
        self._took("Declaration", begun)
        return following

    def _took(self, name: str, begun: float) -> None:
        seconds = self.measured.server_seconds
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begun


def _file(folder: Path, member: int) -> Path:
    return folder / str(member)


def _through(message: Message) -> Message:
    """A message as its receiver reads it."""
    return decode(type(message), encode(message))
