"""Faults to plant in a session, each of which returns what is noticed of it: the cells of `test_fault_table.py`.

`telling`, `concluding`, `making`, `saying`, `sending` and `leaving` make plants of a change, `in_census` one of a plant
for another sum; the others are plants, or changes for these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.crypto.envelopes import seal_envelope
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers, sum_digest
from secagg.heads import LinearHead
from secagg.protection.encryption import derivations as encryption
from secagg.protection.encryption.key_holder import SpentKey
from secagg.protection.encryption.messages import EncryptedUpload, OpenedSum, PublishedKey, SumRequest
from secagg.protection.encryption.polynomials import add, pack, scaled
from secagg.protection.interface import Transition
from secagg.protection.masking import derivations as masking
from secagg.protection.masking.client import Advertised
from secagg.protection.masking.messages import (
    Dealing,
    Directory,
    Inbox,
    KeyAdvertisement,
    OpenedShare,
    Opening,
    Survivors,
    Unmasking,
)
from secagg.protection.masking.tags import no_words
from secagg.protection.messages import Acknowledgement, Confirmation, Outcome, UploadHeader
from secagg.protection.proven_bits import NO_CENSUS
from secagg.protection.sharing import derivations as sharing
from secagg.protection.sharing.aggregator import SetCommitted, SumCommitted
from secagg.protection.sharing.client import SharingReady
from secagg.protection.sharing.derivations import KEY
from secagg.protection.sharing.messages import SessionKeys, SetLists, SetPledges, ShareManifest, SumPledges, SumShare
from secagg.session import MemberSession, SumResult, conclude
from secagg.session.outcome import HEAD_FILE, head_file
from secagg.transcript import FrameBody, Journal, payload_of, peek, read_transcript, sign_frame
from secagg.wire import decode, encode, tag_of
from tests.protection.census_liars import exchanged, with_more
from tests.session.noticing import Notice, Planted, noticed
from tests.session.test_acceptance import Censoring
from tests.session.test_lies_at_every_write import sum_of_others
from tests.session.test_malicious_helpers import FIRST, Dropping, staged
from tests.session.test_one_result import LIES, Equivocating, WithoutEnd
from tests.worlds.hosts import parts_of
from tests.worlds.session import SimulatedSession, make_session

SERVER, ME, OTHER, HELPER, SECOND = 0, 2, 3, 5, 6
EVERYBODY = (1, 2, 3, 4)
UPLOADS: dict[str, type] = {"masked": UploadHeader, "shared": ShareManifest, "encrypted": EncryptedUpload}
Notices = frozenset[Notice]
Made = Callable[[MemberSession, Transition], Transition]


@dataclass(frozen=True)
class Scene:
    """Where a fault is planted: four clients of whom one may be missing, under one protection.

    Where the sum is an exact census all clients are shown it. One of them alone holds the first class, which the gate
    leaves out: one client more, or two, are a census that honest clients can have, and open the class.
    """

    folder: Path
    protection: str
    patch: pytest.MonkeyPatch
    is_census: bool = False

    def world(self, *, shown: bool = False) -> SimulatedSession:
        """The federation; where clients are shown the sum another round follows, which nobody begins."""
        fixed: dict[str, Any] = {"clients": 4, "dropouts": 1, "colluders": 0, "protection": self.protection}
        if not self.is_census:
            return make_session(self.folder, parameters=(("refine", int(shown)),), **fixed)
        world = make_session(self.folder, classes=("rare", "no", "yes"), class_gate=1, **fixed)
        assert (world.setup.context.proves_bits, world.setup.method.traits.class_threshold) == (True, 2)
        for member in EVERYBODY[1:]:
            world.vectors[member][0] = 0
        return world

    @property
    def upload(self) -> type:
        """The message that announces a client's upload."""
        return UPLOADS[self.protection]


Plant = Callable[[Scene], Awaitable[Notices]]


def in_census(plant: Plant, *lies: Callable[[pytest.MonkeyPatch], None]) -> Plant:
    """The same fault in a session whose sum is an exact census, with lies about the clients' proofs beside it."""

    async def planted(scene: Scene) -> Notices:
        for lie in lies:
            lie(scene.patch)
        return await plant(replace(scene, is_census=True))

    return planted


# What the server does.


def telling(
    victims: int | Collection[int],
    message: type,
    change: Callable[[Any, Any], Any],
    *others: int,
    lost: tuple[int, int, type] | None = None,
) -> Plant:
    """The server tells some parties another message, and is not told what is `lost`; `others` are in league with it."""

    async def plant(scene: Scene) -> Notices:
        def lie(body: FrameBody) -> FrameBody:
            return replace(body, payload=encode(change(run, payload_of(body, message))))

        run = Planted(scene.world(), told=(victims, message, lie), lost=lost)
        return await noticed(run, SERVER, *others)

    return plant


def telling_frame(message: type, **changes: Any) -> Plant:
    """The server tells one client another frame than the next one."""

    async def plant(scene: Scene) -> Notices:
        run = Planted(scene.world(), told=(ME, message, lambda body: replace(body, **changes)))
        return await noticed(run, SERVER)

    return plant


def concluding(
    outcome: Callable[[Outcome], Outcome] = lambda outcome: outcome,
    result: Callable[[SimulatedSession, SumResult], SumResult] = lambda world, result: result,
    *,
    shown: bool = False,
) -> Plant:
    """The server says something else of the sum that it opened, or makes something else of it, to everybody."""

    async def plant(scene: Scene) -> Notices:
        world = scene.world(shown=shown)
        return await noticed(Planted(world, outcome=outcome, result=partial(result, world)), SERVER)

    return plant


def another_sum(world: SimulatedSession, result: SumResult) -> SumResult:
    """All that follows from a sum with one more in an entry; what a masked one is released in stays."""
    return replace(
        conclude(world.setup, result.members, result.vector + first_entry(len(result.vector))), release=result.release
    )


def another_digest(told: Outcome) -> Outcome:
    """The outcome with the digest of another sum."""
    return replace(told, aggregate_sha256=bytes(32))


def with_members(*members: int) -> Callable[[Outcome], Outcome]:
    """The outcome of other clients."""
    return lambda told: replace(told, members=members)


def first_entry(length: int) -> Integers:
    """One in the first entry, and zeros."""
    entries: Integers = np.zeros(length, dtype=np.int64)
    entries[0] = 1
    return entries


def another_share_shown(world: SimulatedSession, result: SumResult) -> SumResult:
    """One more in an entry of the first aggregator's share that is shown, and what follows from it."""
    share, *others = result.release
    return replace(
        another_sum(world, result), release=(with_more(world.setup.context, share, place=0, more=1), *others)
    )


PROOFS_IN = {"masked": 2, "shared": 0, "encrypted": 1}
"""Which file of a census's release ends with the proofs of all clients."""


def without_proofs(world: SimulatedSession, result: SumResult) -> SumResult:
    """The release without the clients' proofs; a file that is nothing else is left out."""
    place = PROOFS_IN[world.setup.plan.protection]
    shorter = result.release[place][: -len(result.members) * world.setup.context.proof_bytes]
    rest = (shorter,) if shorter else ()
    return replace(result, release=(*result.release[:place], *rest, *result.release[place + 1 :]))


def proofs_of_another(world: SimulatedSession, result: SumResult) -> SumResult:
    """The release with the first client's proofs in the place of the second's."""
    place, context = PROOFS_IN[world.setup.plan.protection], world.setup.context
    changed = exchanged(context, result.release[place], len(result.members), place=1)
    return replace(result, release=(*result.release[:place], changed, *result.release[place + 1 :]))


def another_secret(world: SimulatedSession, result: SumResult) -> SumResult:
    """The release with another secret of one client."""
    listed = decode(Unmasking, result.release[1])
    secrets = (replace(listed.secrets[0], secret=b"s" * 32), *listed.secrets[1:])
    return replace(result, release=(result.release[0], encode(replace(listed, secrets=secrets)), *result.release[2:]))


def another_head(world: SimulatedSession, result: SumResult) -> SumResult:
    """Another head than follows from the sum."""
    head = result.require_artifact()
    assert isinstance(head, LinearHead)
    return replace(result, artifact=replace(head, weight=(2 * head.weight).astype(np.float32)))


async def head_on_the_servers_word(scene: Scene) -> Notices:
    """The server names another head of a sum that clients are not shown; all of them have that one at last."""
    world = scene.world()
    run = Planted(world, result=partial(another_head, world))
    found = await noticed(run, SERVER)
    true = conclude(world.setup, EVERYBODY, world.total(EVERYBODY))
    (told,) = {(world.home(member) / HEAD_FILE).read_bytes() for member in EVERYBODY}
    assert told == head_file(world.setup, another_head(world, true)) != head_file(world.setup, true)
    return found


async def two_outcomes(scene: Scene) -> Notices:
    """One client is told of another head, and shown that the others have theirs."""
    return await noticed(Equivocating(scene.world(), (ME,), shows=True), SERVER)


async def two_outcomes_kept_apart(scene: Scene) -> Notices:
    """The same, and what would tell it is kept from that client."""
    return await noticed(Equivocating(scene.world(), (ME,), shows=False), SERVER)


async def unconfirmed(scene: Scene) -> Notices:
    """One client is not shown that its outcome is confirmed."""
    return await noticed(WithoutEnd(scene.world(), tag_of(Confirmation)), SERVER)


async def censored(scene: Scene, *, signs: bool) -> Notices:
    """The server takes ME's whole upload and leaves it out."""
    return await noticed(Censoring(scene.world(), signs=signs), SERVER)


def false_release(*places: Any) -> Plant:
    """The server adds to the sum of the masked uploads, and tells the sum that follows."""

    async def plant(scene: Scene) -> Notices:
        def with_one_more(context: Any) -> Any:
            words = no_words(context)
            words[0] += np.uint64(1)
            return words

        for place in places:
            scene.patch.setattr(place, "no_words", with_one_more)
        world = scene.world(shown=True)
        return await noticed(Planted(world, result=partial(another_sum, world)), SERVER)

    return plant


async def sum_changed_in_its_ciphertext(scene: Scene) -> Notices:
    """The server adds Δ to the ciphertexts of the sum, and declares and shows these."""
    world = scene.world(shown=True)
    one = first_entry(world.setup.context.length)

    def lie(told: SumRequest) -> SumRequest:
        context: Any = world.setup.context
        total = context.summed(told.packed)
        add(total[:, 0], scaled(context.parameters, one), context.parameters.primes)
        packed = pack(total, context.parameters.entry_bytes)
        declared = replace(told.declaration, total=hashlib.sha256(packed).digest())
        return SumRequest(encryption.sign_declaration(context, world.keys[SERVER], declared), packed)

    run = Planted(world, declared=lie)
    found = await noticed(run, SERVER)
    assert run.totals[-1].tolist() == (world.total(EVERYBODY) + one).tolist()
    return found


def keys_swapped(_: Any, told: Directory) -> Directory:
    """The directory with a key of the server's in a client's place."""
    return Directory((*told.entries[:3], replace(told.entries[3], mask_key=bytes(range(32)))))


def another_total(_: Any, told: Survivors) -> Survivors:
    """The true survivors with the digest of another sum."""
    return replace(told, total=bytes(32))


def list_shortened(_: Any, told: SetLists) -> SetLists:
    """The lists, one client taken off that of the second aggregator."""
    one, two = told.lists
    return SetLists((one, replace(two, manifests=two.manifests[1:])))


def of_two_clients(run: Any, told: SumRequest) -> SumRequest:
    """The true sum of two clients, rightly declared."""
    return sum_of_others(run, sum_of_others(run, told))


def declared_without_one(run: Any, told: SumRequest) -> SumRequest:
    """The sum of all, declared as that of all but one."""
    fewer = replace(told.declaration, uploads=told.declaration.uploads[:-1])
    return replace(
        told, declaration=encryption.sign_declaration(run.world.setup.context, run.world.keys[SERVER], fewer)
    )


def forged_acknowledgement(run: Any, told: Confirmation) -> Confirmation:
    """The confirmation with a signature that is none."""
    return Confirmation(tuple(LIES["forged"][0](run.world, list(told.acknowledgements))))


# What clients do.


def making(liar: int, made: Made, *others: int, shown: bool = False) -> Plant:
    """A client's or a helper's machine gives something else; `others` are in league with it."""

    async def plant(scene: Scene) -> Notices:
        return await noticed(Planted(scene.world(shown=shown), liar, made=made), liar, *others)

    return plant


def saying(liar: int, message: type, change: Callable[[MemberSession, Any], Any]) -> Plant:
    """A client or a helper says something else in one message."""
    return making(liar, made_to_say(message, change))


def made_to_say(message: type, change: Callable[[MemberSession, Any], Any]) -> Made:
    """A machine that says something else in one message."""

    def made(session: MemberSession, given: Transition) -> Transition:
        said = given.outgoing
        return replace(given, outgoing=change(session, said)) if isinstance(said, message) else given

    return made


def sending(change: Callable[[SimulatedSession, bytes], bytes], message: type | None = None) -> Plant:
    """A client sends another frame than its machine gave, of its upload or of another message."""

    async def plant(scene: Scene) -> Notices:
        world = scene.world()
        run = Planted(world, ME, sent=(message or scene.upload, partial(change, world)))
        return await noticed(run, ME)

    return plant


def signed_by_another(world: SimulatedSession, frame: bytes) -> bytes:
    """The frame with somebody else's signature."""
    return sign_frame(world.keys[OTHER], peek(frame))


def body_with(**changes: Any) -> Callable[[SimulatedSession, bytes], bytes]:
    """The frame with another body, signed by its sender."""
    return lambda world, frame: sign_frame(world.keys[ME], replace(peek(frame), **changes))


def acknowledging_another(world: SimulatedSession, frame: bytes) -> bytes:
    """The acknowledgement of an outcome that nobody told."""
    said = replace(payload_of(peek(frame), Acknowledgement), outcome=bytes(32))
    return sign_frame(world.keys[ME], replace(peek(frame), payload=encode(said)))


def other_bytes(session: MemberSession, given: Transition) -> Transition:
    """Protected bytes of which the first one is not the announced one."""
    vector = given.vector
    return replace(given, vector=bytes([vector[0] ^ 1]) + vector[1:]) if vector else given


async def two_uploads(scene: Scene) -> Notices:
    """A client sends a second upload behind its first, while another one is still waited for."""
    world = scene.world()

    def second(frame: bytes) -> bytes:
        said = payload_of(peek(frame), scene.upload)
        if isinstance(said, ShareManifest):
            digests = (bytes(32), *said.digests[1:])
            said = sharing.sign_manifest(world.setup.context, world.keys[ME], ME, digests)  # type: ignore[arg-type]
        else:
            said = replace(said, digest=bytes(32))
        return sign_frame(world.keys[ME], replace(peek(frame), payload=encode(said)))

    run = Planted(world, ME, more=(scene.upload, second, b"more"))
    return await noticed(run, ME, 4, leaving={4: tag_of(scene.upload)})


def keys_of_small_order(session: MemberSession, said: KeyAdvertisement) -> KeyAdvertisement:
    """A mask key of small order."""
    return masking.sign_advertisement(session._context, session._me.identity, replace(said, mask_key=bytes(32)))


def bad_shares(*holders: int) -> Plant:
    """A dealer gives these holders sealed shares that do not open."""

    def change(session: MemberSession, said: Dealing) -> Dealing:
        (directory,) = session._transcript.payloads(Directory)
        binding = masking.session_binding(session._context, directory.digest)
        sign = partial(masking.sign_sealed_share, session._me.identity, binding)
        shares = (sign(replace(each, sealed=bytes(1202))) if each.holder in holders else each for each in said.shares)
        return replace(said, shares=tuple(shares))

    return saying(ME, Dealing, change)


def shares_of_another_seed(session: MemberSession, given: Transition) -> Transition:
    """The state of a dealer that goes on with another seed than it has committed to."""
    state = given.state
    return replace(given, state=replace(state, seed=bytes(range(32)))) if isinstance(state, Advertised) else given


def false_share(session: MemberSession, said: Opening) -> Opening:
    """Another share of the first dealer's seed."""
    return replace(said, seed_shares=(OpenedShare(1, bytes(33)), *said.seed_shares[1:]))


def false_tags(session: MemberSession, said: Opening) -> Opening:
    """Tags that are not those of the upload, signed as tags are."""
    heard = {message: session._transcript.payloads(message)[0] for message in (Directory, Inbox, Survivors)}
    directory, dealers, survivors = heard[Directory].digest, heard[Inbox].dealers, heard[Survivors]
    facts = (directory, dealers, survivors.members, survivors.total)
    parts = masking.endorsement_parts(session._context, *facts)
    return replace(said, tags=masking.sign_tags(session._me.identity, ME, bytes(80), parts))


def false_tags_shown(*, with_upload: bool) -> Plant:
    """The server shows the false tags of a client that is in league with it, with its upload or without."""

    async def plant(scene: Scene) -> Notices:
        world = scene.world(shown=True)
        kept: list[Any] = []

        def remembered(session: MemberSession, said: Opening) -> Opening:
            kept.append(false_tags(session, said).tags)
            return replace(said, tags=kept[0])

        def result(told: SumResult) -> SumResult:
            listed = decode(Unmasking, told.release[1])
            tags = tuple(sorted((*listed.tags, kept[0]), key=lambda each: each.member))
            if with_upload:
                return replace(told, release=(told.release[0], encode(replace(listed, tags=tags)), *told.release[2:]))
            return replace(told, release=(told.release[0], encode(replace(listed, tags=tags, uploads=()))))

        run = Planted(world, ME, made=made_to_say(Opening, remembered), result=result)
        return await noticed(run, SERVER, ME)

    return plant


async def two_manifests(scene: Scene) -> Notices:
    """A client splits its vector twice, and sends the second aggregator a share of the second time."""
    world, second = scene.world(), list[Transition]()

    def made(session: MemberSession, given: Transition) -> Transition:
        if isinstance(given.outgoing, ShareManifest):
            keys = session._transcript.payloads(SessionKeys)[0].pledges
            vector = world.setup.context.ring.encode(world.vectors[ME])
            second.append(SharingReady(keys).protect(world.setup.context, session._me, vector))
        return given

    class Twice(Planted):
        """The second aggregator gets the second frame, and its share."""

        def new_work(self, member: int, journal: Journal) -> Any:
            work: Any = super().new_work(member, journal)
            taking = work.upload

            async def upload(sender: int, frame: bytes, parts: Any) -> bytes:
                if sender != ME or member != SECOND:
                    return bytes(await taking(sender, frame, parts))
                (split,) = second
                part = world.setup.protocol.deliveries(world.setup.context)[1]
                frame = sign_frame(world.keys[ME], replace(peek(frame), payload=encode(split.outgoing)))
                return bytes(
                    await taking(sender, frame, parts_of((split.vector or b"")[part.start : part.start + part.size]))
                )

            work.upload = upload
            return work

    return await noticed(Twice(world, ME, made=made), ME)


def seed_sealed(sealed: Callable[[MemberSession], bytes]) -> Plant:
    """A client seals something else than its mask's seed."""

    def change(session: MemberSession, said: EncryptedUpload) -> EncryptedUpload:
        context: Any = session._context
        return encryption.sign_upload(context, session._me.identity, replace(said, sealed_seed=sealed(session)))

    return saying(ME, EncryptedUpload, change)


def another_seed(session: MemberSession) -> bytes:
    """Another seed, well sealed to the key holder."""
    (published,) = session._transcript.payloads(PublishedKey)
    context: Any = session._context
    return seal_envelope(published.sealing_key, b"another seed".ljust(32), encryption.seed_address(context, ME))


def entering(more: int, *others: int, opened: tuple[int, ...] = EVERYBODY) -> Plant:
    """A client adds to one entry of its vector before it protects it; `opened` are the clients of the opened sum.

    Without any no sum is. `others` are in league with it.
    """

    async def plant(scene: Scene) -> Notices:
        world = scene.world(shown=True)
        world.vectors[ME] = world.vectors[ME] + more * first_entry(len(world.vectors[ME]))
        run = Planted(world, ME)
        found = await noticed(run, ME, *others)
        require_opened(run, world.total(opened) if opened else None)
        return found

    return plant


def require_opened(run: Planted, total: Integers | None) -> None:
    """Hold that this sum was opened, or that the server opened none because it is not that of the proven entries."""
    if total is not None:
        assert [each.tolist() for each in run.totals] == [total.tolist()]
        return
    (reason,) = [each.content for each in read_transcript(run.world.transcript(SERVER)) if each.kind == "aborted"]
    assert not run.totals
    assert reason.decode().startswith(NO_CENSUS)


def leaving(*liars: int, before: type = Acknowledgement) -> Plant:
    """Some parties go away before a message."""

    async def plant(scene: Scene) -> Notices:
        return await noticed(Planted(scene.world()), *liars, leaving=dict.fromkeys(liars, tag_of(before)))

    return plant


# What helpers do.


async def another_pledge(scene: Scene) -> Notices:
    """An aggregator commits to two sets."""
    world = scene.world()

    def second(frame: bytes) -> bytes:
        context: Any = world.setup.context
        pledge = sharing.sign_pledge(context, world.keys[HELPER], 1, sharing.ACCEPTED, bytes(32))
        return sign_frame(world.keys[HELPER], replace(peek(frame), payload=encode(SetPledges((pledge,)))))

    return await noticed(Planted(world, HELPER, more=(SetPledges, second, b"")), HELPER)


def another_list(session: MemberSession, said: SetLists) -> SetLists:
    """A list without the first client, signed again."""
    context: Any = session._context
    (own,) = said.lists
    return SetLists((sharing.sign_list(context, session._me.identity, replace(own, manifests=own.manifests[1:])),))


def another_share(session: MemberSession, given: Transition) -> Transition:
    """Another sum share than the one that was committed to."""
    if not isinstance(given.outgoing, SumShare):
        return given
    packed = bytes(given.outgoing.length)
    digest = hashlib.sha256(packed).digest()
    return replace(given, outgoing=replace(given.outgoing, digest=digest), vector=packed)


def committing(change: Callable[[Any, bytes], bytes]) -> Made:
    """An aggregator that commits to another sum share."""

    def made(session: MemberSession, given: Transition) -> Transition:
        state, context = given.state, session._context
        if not isinstance(state, SumCommitted) or given.vector is None:
            return given
        packed = change(context, given.vector)
        lying = replace(state, digest=hashlib.sha256(packed).digest())
        return Transition(lying, SumPledges((lying.pledge(context, session._me),)), packed)  # type: ignore[arg-type]

    return made


wrong_share = committing(partial(with_more, place=0, more=1))
"""A sum share with one more in an entry, committed to."""
share_with_proofs_of_another = committing(partial(exchanged, clients=len(EVERYBODY), place=1))
"""A sum share with the first client's proofs in the place of the second's, committed to."""


def two_left_out(session: MemberSession, given: Transition) -> Transition:
    """A set without two clients, committed to."""
    state, context = given.state, session._context
    if not isinstance(state, SetCommitted) or not isinstance(given.outgoing, SetPledges):
        return given
    lying = replace(state, manifests=state.manifests[2:])
    return Transition(lying, SetPledges((lying.pledge(context, session._me),)))  # type: ignore[arg-type]


def passed_on_unusable(run: Any, told: SessionKeys) -> SessionKeys:
    """The session keys with one whose X25519 half is of small order, signed by its aggregator."""
    key = told.pledges[0].content[:-32] + bytes(32)
    pledge = sharing.sign_pledge(run.world.setup.context, run.world.keys[HELPER], 1, KEY, key)
    return SessionKeys((pledge, *told.pledges[1:]))


def unusable(session: MemberSession, said: SessionKeys) -> SessionKeys:
    """A session key whose X25519 half is of small order."""
    context: Any = session._context
    key = said.pledges[0].content[:-32] + bytes(32)
    return SessionKeys((sharing.sign_pledge(context, session._me.identity, 1, KEY, key),))


async def left_out_in_spite_of_its_receipt(scene: Scene) -> Notices:
    """An aggregator leaves out an upload that it has signed a receipt for."""
    return await noticed(Dropping(staged(scene.folder, scene.protection)), FIRST)


async def without_a_receipt(scene: Scene) -> Notices:
    """An aggregator takes no upload of a client, and says nothing."""
    return await noticed(Planted(scene.world(), lost=(ME, HELPER, ShareManifest)), HELPER)


def opened_otherwise(change: Callable[[Any, Integers], Integers]) -> Made:
    """A key holder that opens other integers, and signs them."""

    def made(session: MemberSession, given: Transition) -> Transition:
        context: Any = session._context
        if not isinstance(given.state, SpentKey) or not isinstance(given.outgoing, OpenedSum) or given.vector is None:
            return given
        packed, blindings = given.vector[: context.packed_bytes], given.vector[context.packed_bytes :]
        integers = change(context, context.ring.decode(context.ring.unpack(packed, context.length).copy()))
        packed = context.ring.pack(context.ring.encode(integers)) + blindings
        digest = hashlib.sha256(packed).digest()
        opened = encryption.sign_opened(context, session._me.identity, replace(given.outgoing, digest=digest))
        return Transition(replace(given.state, aggregate_sha256=sum_digest(integers)), opened, packed)

    return made


def opening_of_another(session: MemberSession, said: OpenedSum) -> OpenedSum:
    """What is opened, as if of another declaration."""
    context: Any = session._context
    return encryption.sign_opened(context, session._me.identity, replace(said, declaration=bytes(32)))


def of_small_order(context: Any, identity: SigningKey, said: PublishedKey) -> PublishedKey:
    """A sealing key whose X25519 half is of small order, signed by the key holder."""
    return encryption.sign_key(context, identity, replace(said, sealing_key=said.sealing_key[:-32] + bytes(32)))


def adding_one(made: Made, *others: int, is_opened: bool = True) -> Plant:
    """A helper whose machine adds one to an entry of the sum, and so does to the sum, if one is opened.

    `others` are in league with it.
    """

    async def plant(scene: Scene) -> Notices:
        world = scene.world(shown=True)
        run = Planted(world, HELPER, made=made)
        found = await noticed(run, HELPER, *others)
        total = world.total(EVERYBODY)
        require_opened(run, total + first_entry(len(total)) if is_opened else None)
        return found

    return plant


def in_first_entry(context: Any, integers: Integers) -> Integers:
    """One more in the first entry."""
    changed: Integers = integers + first_entry(len(integers))
    return changed


def beyond_capacity(context: Any, integers: Integers) -> Integers:
    """One more in every entry than a sum of the plan can have."""
    return np.full_like(integers, context.largest + 1)
