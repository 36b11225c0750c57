"""Ways to cheat with the help of those who open sums: aggregators, and the key holder."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from secagg.agreement.roster import SERVER_INDEX
from secagg.crypto.agreement import AgreementKey
from secagg.federation import FederationHelper, session_folder
from secagg.protection.encryption import derivations as encryption
from secagg.protection.encryption.derivations import EncryptedContext
from secagg.protection.encryption.messages import Declaration, PublishedKey, SumRequest
from secagg.protection.encryption.polynomials import add, pack, scaled
from secagg.protection.messages import Outcome
from secagg.protection.sharing import derivations as sharing
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.messages import SessionKeys, SetLists
from secagg.randomness import OperatingSystem
from secagg.session.staging import vector_path
from secagg.transcript import FrameBody, payload_of, peek
from secagg.wire import tag_of
from threat_models.active.consortium import Consortium
from threat_models.active.masked import At, change_message, drop_one, run_cheat
from threat_models.active.probe import Probe
from threat_models.active.stage import Cheat, play


def shared_context(cheat: Cheat) -> SharedContext:
    """The facts of a shared session."""
    return SharedContext.of(cheat.consortium.setup.context)


def encrypted_context(cheat: Cheat) -> EncryptedContext:
    """The facts of an encrypted session."""
    return EncryptedContext.of(cheat.consortium.setup.context)


def own_session_key(cheat: Cheat, member: int, honest: SessionKeys) -> SessionKeys:
    """The server's own key in the first aggregator's name: it would open every share sealed to it."""
    first, *rest = honest.pledges
    own = AgreementKey.generate(OperatingSystem()).public
    forged = sharing.sign_pledge(
        shared_context(cheat), cheat.consortium.party(SERVER_INDEX).identity, first.aggregator, first.step, own
    )
    return SessionKeys((forged, *rest))


class ToLastAggregator(At):
    """Lies to the last aggregator; the first sides with the server and signs what it wants."""

    @property
    def targets(self) -> tuple[int, ...]:
        """The honest aggregator."""
        return self.consortium.seconds[-1:]


def shorter_list(cheat: Cheat, member: int, honest: SetLists) -> SetLists:
    """The first aggregator's list without its last upload, signed by it again: the two would open different sums."""
    first, *rest = honest.lists
    colluder = cheat.consortium.party(cheat.consortium.seconds[0])
    shorter = replace(first, manifests=first.manifests[:-1])
    return SetLists((sharing.sign_list(shared_context(cheat), colluder.identity, shorter), *rest))


class LeavesOneOut(Cheat):
    """Sides with an aggregator that signs receipts for all uploads and forgets those of client 1."""

    @property
    def targets(self) -> tuple[int, ...]:
        """The client that is left out."""
        return self.consortium.clients[:1]


class Forgetful(FederationHelper):
    """Aggregators of which the first signs a receipt for the first client's upload and leaves the upload out."""

    async def upload(self, member: int, frame: bytes, parts: AsyncIterator[bytes]) -> bytes:
        """Take it, sign for it, forget it."""
        receipt = await super().upload(member, frame, parts)
        work, first = self._uploads[peek(frame).round_digest], self.setup.context.clients[0]
        collecting: Any = work._collecting  # noqa: SLF001 (it is its own memory)
        if collecting is not None and self.me.member == next(iter(self.setup.context.helpers)):
            kept = tuple(each for each in collecting.manifests if each.client != first)
            work._collecting = replace(collecting, manifests=kept)  # noqa: SLF001
        return receipt


async def dropped_upload(folder: Path) -> tuple[Cheat, Mapping[int, str]]:
    """A session in which an acknowledged upload is left out; the client must find out, and from whom."""
    cheat = LeavesOneOut(Consortium.enrol(folder, "shared"))
    endings = await play(cheat, Forgetful)
    cheat.deceived.update(cheat.targets)
    return cheat, endings


def own_public_key(cheat: Cheat, member: int, honest: PublishedKey) -> PublishedKey:
    """A sealing key of the server's in the key holder's name: it would know every mask."""
    key = replace(honest, sealing_key=AgreementKey.generate(OperatingSystem()).public)
    return encryption.sign_key(encrypted_context(cheat), cheat.consortium.party(SERVER_INDEX).identity, key)


class ToHolder(At):
    """Lies to the key holder alone."""

    @property
    def targets(self) -> tuple[int, ...]:
        """The key holder."""
        return self.consortium.seconds


def declare(cheat: Cheat, uploads: Any, packed: bytes) -> SumRequest:
    """A request that the server signed, for these bytes as the sum of these uploads."""
    unsigned = Declaration(tuple(uploads), hashlib.sha256(packed).digest(), bytes(64))
    identity = cheat.consortium.party(SERVER_INDEX).identity
    return SumRequest(encryption.sign_declaration(encrypted_context(cheat), identity, unsigned), packed)


def send_sum_of(
    members: Callable[[tuple[int, ...]], tuple[int, ...]],
) -> Callable[[Cheat, int, SumRequest], SumRequest]:
    """The sum of some members' ciphertexts, declared as that of all of them.

    The masks of the others stay on and are uniform modulo q: more noise than a sum of honest ciphertexts has.
    """

    def change(cheat: Cheat, member: int, honest: SumRequest) -> SumRequest:
        context, parameters = encrypted_context(cheat), encrypted_context(cheat).parameters
        shape = (context.ciphertexts, 2, len(parameters.primes), parameters.degree)
        total = np.zeros(shape, dtype=np.uint64)
        folder = session_folder(cheat.consortium.state(SERVER_INDEX), cheat.consortium.setup)
        for each in members(honest.declaration.members):
            add(total, context.uploaded(vector_path(folder, each).read_bytes()), parameters.primes)
        return declare(cheat, honest.declaration.uploads, pack(total, parameters.entry_bytes))

    return change


def beyond_capacity(cheat: Cheat, member: int, honest: SumRequest) -> SumRequest:
    """The honest sum with an amount added to its first entry, for which it takes no key: twice the capacity and one."""
    context, parameters = encrypted_context(cheat), encrypted_context(cheat).parameters
    total = context.summed(honest.packed)
    amount = np.array([2 * context.largest + 1], dtype=np.int64)
    add(total[:1, 0], scaled(parameters, amount), parameters.primes)
    return declare(cheat, honest.declaration.uploads, pack(total, parameters.entry_bytes))


def one_declared(cheat: Cheat, member: int, honest: SumRequest) -> SumRequest:
    """One upload declared as the whole set."""
    return declare(cheat, honest.declaration.uploads[:1], honest.packed)


class OpensTwice(Cheat):
    """Shows the key holder a second sum once the first is opened."""

    def __init__(self, consortium: Consortium) -> None:
        super().__init__(consortium)
        self._request: SumRequest | None = None

    @property
    def targets(self) -> tuple[int, ...]:
        """The key holder."""
        return self.consortium.seconds

    def falsify(self, member: int, body: FrameBody) -> bytes | None:
        """Remember the honest request."""
        if body.step == tag_of(SumRequest):
            self._request = payload_of(body, SumRequest)
        return None

    async def make_up(self, member: int, step: str) -> bytes | None:
        """A smaller set where the outcome is due."""
        if step != tag_of(Outcome) or member not in self.targets or self._request is None:
            return None
        uploads = self._request.declaration.uploads
        kept = drop_one(tuple(each.member for each in uploads), 0)
        return self.lie(member, declare(self, (u for u in uploads if u.member in kept), self._request.packed))


OPENERS = (
    Probe(
        "own session key",
        "shared",
        "shows every client a session key of its own in an aggregator's name",
        "session keys are signed by their aggregators",
        "did not sign",
        change_message(SessionKeys, own_session_key, "shared"),
    ),
    Probe(
        "two lists",
        "shared",
        "shows two aggregators different lists; one of them helps",
        "every aggregator commits to its list before it sees another's",
        "shows another list than the one that",
        change_message(SetLists, shorter_list, "shared", ToLastAggregator),
    ),
    Probe(
        "dropped upload",
        "shared",
        "leaves out an upload for which an aggregator signed a receipt",
        "the client holds the receipt against the aggregator's signed list",
        "signed a receipt for this upload and left it out",
        dropped_upload,
    ),
    Probe(
        "own public key",
        "encrypted",
        "shows every client a key of its own in the key holder's name",
        "the published key is signed by the key holder",
        "the published key is not signed for this session",
        change_message(PublishedKey, own_public_key, "encrypted"),
    ),
    Probe(
        "second opening",
        "encrypted",
        "asks the key holder to open a second sum",
        "the key holder opens one sum of a session, ever",
        "Outcome is awaited",
        run_cheat(OpensTwice, "encrypted"),
    ),
    Probe(
        "one ciphertext",
        "encrypted",
        "passes one client's ciphertext off as the sum",
        "the other clients' masks stay on, and are no noise that honest ciphertexts have",
        "more noise than a sum of honest ciphertexts",
        change_message(SumRequest, send_sum_of(lambda members: members[:1]), "encrypted", ToHolder),
    ),
    Probe(
        "undeclared set",
        "encrypted",
        "adds other uploads than it declares",
        "the masks of exactly the declared set are taken off",
        "more noise than a sum of honest ciphertexts",
        change_message(SumRequest, send_sum_of(lambda members: members[:-1]), "encrypted", ToHolder),
    ),
    Probe(
        "beyond capacity",
        "encrypted",
        "adds an amount of its own to the sum of ciphertexts, which no sum of the plan can hold",
        "what is opened lies within the plan's capacity",
        "an entry lies outside the plan's capacity",
        change_message(SumRequest, beyond_capacity, "encrypted", ToHolder),
    ),
    Probe(
        "one declared",
        "encrypted",
        "declares a single upload",
        "the least number of clients follows from the plan",
        "declares 1 clients; at least",
        change_message(SumRequest, one_declared, "encrypted", ToHolder),
    ),
)
