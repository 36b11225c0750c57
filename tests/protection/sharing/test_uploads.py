"""What an aggregator refuses of a client, and a client of its aggregators."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.crypto.envelopes import EnvelopeKey, seal_envelope
from secagg.crypto.signatures import SigningKey
from secagg.errors import BadInput, MalformedMessage, ProtocolViolation
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.aggregator import begin_aggregator
from secagg.protection.sharing.client import AwaitingSessionKeys, SharingReady, begin_client
from secagg.protection.sharing.derivations import KEY
from secagg.protection.sharing.messages import SessionKeys, ShareManifest
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from secagg.wire import decode, encode
from tests.protection.rehearsal import party
from tests.protection.sharing.rehearsal import Shared, aggregator, identity, shared_context
from tests.vectors.files import load
from tests.worlds.rosters import identity as client_identity

SMALL_ORDER = [bytes.fromhex(case["public"]) for case in load("key_agreement")["weak"] if len(case["public"]) == 64]


def prepared(m: int = 2, **facts: Any) -> Shared:
    """A session in which clients 1 and 2 have their shares ready and nothing has arrived."""
    session = Shared(shared_context(m, 3, **facts))
    session.prepare(1)
    session.prepare(2)
    return session


def refused(session: Shared, number: int, manifest: ShareManifest, sealed: bytes, problem: str) -> None:
    """The upload is refused, the client named, and nothing kept."""
    before = session.states[number]
    with pytest.raises(ProtocolViolation, match=problem) as caught:
        session.submit(number, manifest.client, manifest, sealed)
    assert caught.value.culprit == manifest.client
    assert session.states[number] == before


def resigned(session: Shared, client: int, sealed: tuple[bytes, ...], signer: int = 0) -> ShareManifest:
    """A manifest of other shares with a valid signature of its client (or of another signer)."""
    digests = [hashlib.sha256(each).digest() for each in sealed]
    return bind.sign_manifest(session.context, client_identity(signer or client), client, digests)


@pytest.mark.parametrize("number", [1, 2])
@given(data=st.data())
def test_a_changed_share_is_refused(number: int, data: st.DataObject) -> None:
    """A flipped bit, a cut or an added byte in a sealed share is refused, signed over or not."""
    session = prepared()
    sealed = session.sealed(1)[number - 1]
    place = data.draw(st.integers(0, len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[place] ^= 1 << data.draw(st.integers(0, 7))
    for changed in (bytes(flipped), sealed[:place], sealed + b"\0"):
        refused(session, number, session.sent(1).manifest, changed, "not the one that it signed")
        shares = tuple(changed if at == number else each for at, each in enumerate(session.sealed(1), start=1))
        refused(session, number, resigned(session, 1, shares), changed, "not sealed to this aggregator")
    session.upload(1)


@pytest.mark.parametrize(
    "name", ["signature", "digest", "client", "one digest fewer", "one digest more", "stranger", "aggregator"]
)
def test_a_manifest_that_its_client_did_not_sign_is_refused(name: str) -> None:
    """A changed signature, digest or client, and another number of shares, are refused."""
    session = prepared()
    good, sealed = session.sent(1).manifest, session.sealed(1)[0]
    changed = {
        "signature": replace(good, signature=bytes([good.signature[0] ^ 1]) + good.signature[1:]),
        "digest": replace(good, digests=(good.digests[0], bytes(32))),
        "client": replace(good, client=2),
        "one digest fewer": bind.sign_manifest(session.context, client_identity(1), 1, good.digests * 2),
        "one digest more": bind.sign_manifest(session.context, client_identity(1), 1, (*good.digests, bytes(32))),
        "stranger": bind.sign_manifest(session.context, client_identity(9), 9, good.digests),
        "aggregator": bind.sign_manifest(session.context, identity(1), 4, good.digests),
    }[name]
    refused(session, 1, changed, sealed, "did not sign the manifest")


@pytest.mark.parametrize("facts", [{"plan": b"other"}, {"clients": 4}, {"m": 3}], ids=str)
def test_an_upload_of_another_session_is_refused(facts: dict[str, Any]) -> None:
    """An upload for another plan, session or set of aggregators is refused, even with the same session keys."""
    session = prepared()
    numbers = {"m": 2, "clients": 3} | facts
    context = shared_context(**numbers)
    if "clients" in facts:
        context = replace(context, session_id=bytes(32))
    other = Shared(context)
    other.prepare(1)
    refused(session, 1, other.sent(1).manifest, other.sealed(1)[0], "did not sign the manifest")
    shares = other.sealed(1)[:2]
    refused(session, 1, resigned(session, 1, shares), shares[0], "not sealed to this aggregator")


def test_shares_cannot_be_copied_or_swapped() -> None:
    """Another client's sealed share under one's own signature, and another aggregator's share, are refused."""
    session = prepared(m=3)
    refused(session, 2, resigned(session, 2, session.sealed(1)), session.sealed(1)[1], "not sealed to this aggregator")
    swapped = (session.sealed(1)[0], session.sealed(1)[2], session.sealed(1)[1])
    refused(session, 2, resigned(session, 1, swapped), swapped[1], "not sealed to this aggregator")
    refused(session, 2, session.sent(1).manifest, session.sealed(1)[2], "not the one that it signed")


@pytest.mark.parametrize(
    "changed", [{"binding": bytes(32)}, {"step": "Dealing"}, {"sender": 2}, {"receiver": 4}], ids=str
)
def test_a_share_with_another_address_is_refused(changed: dict[str, Any]) -> None:
    """A share that its client sealed for another round, step, sender or aggregator is refused, signed over or not."""
    session = prepared()
    address = replace(bind.share_address(session.context, 1, 2), **changed)
    sealed = seal_envelope(EnvelopeKey.from_bytes(session.states[2].secret).public, bytes(32), address)
    refused(session, 2, resigned(session, 1, (session.sealed(1)[0], sealed)), sealed, "not sealed to this aggregator")


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_seed_of_another_length_is_refused(length: int) -> None:
    """A well sealed and signed seed that has not 32 bytes is refused."""
    session = prepared()
    key = EnvelopeKey.from_bytes(session.states[2].secret).public
    sealed = seal_envelope(key, bytes(length), bind.share_address(session.context, 1, 2))
    shares = (session.sealed(1)[0], sealed)
    refused(session, 2, resigned(session, 1, shares), sealed, "not sealed to this aggregator")


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_a_share_made_with_a_key_of_small_order_is_refused(point: bytes) -> None:
    """An envelope whose encapsulated key holds a point of small order is refused."""
    session = prepared()
    honest = session.sealed(1)[1]
    sealed = honest[:1088] + point + honest[1120:]
    refused(session, 2, resigned(session, 1, (session.sealed(1)[0], sealed)), sealed, "not sealed to this aggregator")


def test_an_upload_may_be_repeated_but_not_replaced() -> None:
    """The same upload gives the same receipt; a second, different one, or other bytes for it, is refused."""
    session = prepared().upload(1, 2)
    state, receipts = session.states[1], dict(session.receipts[1])
    session.upload(1)
    assert (session.states[1], session.receipts[1]) == (state, receipts)
    manifest = session.sent(1).manifest
    refused(session, 1, manifest, session.sealed(2)[0], "not the one that it signed")
    session.seed = b"again"
    session.prepare(1)
    refused(session, 1, session.sent(1).manifest, session.sealed(1)[0], "second, different upload")
    assert session.sent(1).manifest != manifest


def test_nothing_is_taken_after_the_deadline() -> None:
    """An aggregator that has committed to its set has no step left that takes an upload, after a restart neither."""
    session = Shared(shared_context(2, 4)).upload(1, 2, 3)
    session.prepare(4)
    session.commit_sets()
    for restart in (False, True):
        if restart:
            session.restart(1)
        with pytest.raises(AttributeError, match="'SetCommitted' object has no attribute 'accept'"):
            session.submit(1, 4)
    assert session.finish("reveal set") == session.expected((1, 2, 3))


def test_only_an_accepted_upload_has_a_receipt() -> None:
    """A receipt for a client that has uploaded nothing is not made."""
    session = prepared()
    with pytest.raises(ProtocolViolation, match="party 1: has uploaded nothing"):
        session.states[1].receipt(session.context, session.parties[1], 1)


RECEIPTS: dict[str, Callable[[Any, Shared], Any]] = {
    "another client": lambda receipt, _: replace(receipt, client=2),
    "another manifest": lambda receipt, _: replace(receipt, manifest=bytes(32)),
    "another aggregator": lambda receipt, _: replace(receipt, aggregator=2),
    "no aggregator": lambda receipt, _: replace(receipt, aggregator=9),
    "signature": lambda receipt, _: replace(receipt, signature=bytes(64)),
    "for another client": lambda _, session: session.receipts[2][1],
}


@pytest.mark.parametrize("name", RECEIPTS)
def test_a_false_receipt_is_refused(name: str) -> None:
    """A client takes a receipt only if it is signed by its aggregator for this client's upload."""
    session = prepared().upload(1, 2)
    true = session.receipts[1][1]
    with pytest.raises(ProtocolViolation, match="receipt"):
        session.sent(1).check_receipt(session.context, RECEIPTS[name](true, session))
    session.sent(1).check_receipt(session.context, true)


def key_pledge(session: Shared, number: int, key: bytes, signer: int = 0) -> Any:
    """A signed session key of an aggregator's choice."""
    return bind.sign_pledge(session.context, identity(signer or number), number, KEY, key)


@pytest.mark.parametrize("point", SMALL_ORDER, ids=bytes.hex)
def test_a_session_key_of_small_order_is_refused(point: bytes) -> None:
    """Server and client refuse a key whose X25519 half is of small order or not canonical, and name its aggregator."""
    session = Shared(shared_context())
    honest = session.said[2].pledges[0].content
    false = key_pledge(session, 2, honest[:-32] + point)
    with pytest.raises(ProtocolViolation, match="party 7: its session key"):
        session.accept(2, SessionKeys((false,)))
    bundle = SessionKeys((session.said[1].pledges[0], false))
    with pytest.raises(ProtocolViolation, match="party 7: its session key"):
        AwaitingSessionKeys().advance(session.context, party(1), bundle)


def test_a_client_checks_every_session_key_before_it_draws_anything() -> None:
    """A missing, unsigned, doubled or foreign session key stops the client before it draws a seed."""
    session, other = Shared(shared_context()), Shared(shared_context(plan=b"other"))
    one, two = (said.pledges[0] for said in session.said.values())
    me = party(1)
    for pledges, problem in [
        ([one], "party 0: does not show one 'key' pledge of a1, a2"),
        ([two, one], "party 0: does not show"),
        ([one, two, two], "party 0: does not show"),
        ([one, two, replace(two, aggregator=3)], "party 0: does not show"),
        ([one, replace(two, signature=bytes(64))], "party 0: shows a 'key' pledge that a2 did not sign"),
        ([one, replace(two, content=one.content)], "party 0: shows"),
        ([one, key_pledge(session, 2, two.content, signer=1)], "party 0: shows"),
        ([one, key_pledge(session, 2, one.content)], "party 7: its session key"),
        ([one, other.said[2].pledges[0]], "party 0: shows"),
        ([one, bind.sign_pledge(session.context, identity(2), 2, "sum", two.content)], "party 0: shows"),
    ]:
        with pytest.raises(ProtocolViolation, match=problem):
            AwaitingSessionKeys().advance(session.context, me, SessionKeys(tuple(pledges)))
    ready = AwaitingSessionKeys().advance(session.context, me, SessionKeys((one, two))).state
    assert isinstance(ready, SharingReady)
    assert me.randomness.bytes(32) == party(1).randomness.bytes(32)


def test_only_members_take_part() -> None:
    """A stranger's key neither begins as an aggregator nor as a client; a vector must be the session's."""
    session = Shared(shared_context())
    context, stranger = session.context, SigningKey.generate(SeededRandomness(b"stranger", TOKEN))
    for me in (replace(aggregator(context, 1), identity=stranger), aggregator(context, 3), party(1)):
        with pytest.raises(BadInput, match=f"index {me.member}"):
            begin_aggregator(context, me)
    for me in (replace(party(1), identity=stranger), aggregator(context, 1)):
        with pytest.raises(BadInput, match=f"not that of client {me.member}"):
            begin_client(context, me)
    residues = context.ring.encode(session.vectors[1])
    ready = SharingReady(session.publish().keys.pledges)
    for wrong in (residues[:-1], residues.astype("<u8"), residues.reshape(2, 3)):
        with pytest.raises(BadInput, match="sums 6 uint32"):
            ready.protect(context, party(1), wrong)


def test_keys_of_an_aggregator_are_fresh() -> None:
    """Two sessions of one aggregator have different session keys; the same draws give the same key."""
    session, other = Shared(shared_context()), Shared(shared_context(), seed=b"other")
    assert session.said[1].pledges[0].content != other.said[1].pledges[0].content
    again = begin_aggregator(session.context, aggregator(session.context, 1))
    assert (again.state, again.outgoing) == (session.states[1], session.said[1])


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_manifest(content: bytes) -> None:
    """Whatever arrives as a manifest is refused, or is one whose encoding it is and which nobody signed."""
    try:
        manifest = decode(ShareManifest, content)
    except MalformedMessage:
        return
    assert encode(manifest) == content
    assert not bind.manifest_is_signed(shared_context(), manifest)
