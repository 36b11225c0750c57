"""Every labelled string, signature and sealed share of the shared protection against an independent computation."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from secagg.crypto.envelopes import EnvelopeKey
from secagg.crypto.signatures import SigningKey
from secagg.encoding import Ring
from secagg.protection import LocalParty
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.client import AwaitingSessionKeys, SharingReady, deliveries
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.derivations import open_share
from secagg.protection.sharing.messages import AcceptedUploads, SessionKeys
from secagg.randomness import SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.protection.sharing.rehearsal import shared_context
from tests.protection.sharing.vectors import TARGET, text
from tests.vectors import independent as reference

VECTOR = json.loads(TARGET.read_text(encoding="utf-8"))
GIVEN, CLIENT = VECTOR["inputs"], VECTOR["client"]
IDENTITIES = [SigningKey.from_bytes(bytes.fromhex(each)) for each in GIVEN["aggregator_identities"]]
SECRETS = [EnvelopeKey.from_bytes(bytes.fromhex(each)) for each in GIVEN["session_secrets"]]
SIGNER = SigningKey.from_bytes(bytes.fromhex(GIVEN["client_identity"]))


def context_of_the_vector() -> SharedContext:
    """The session of the vector."""
    return SharedContext(
        *(bytes.fromhex(GIVEN[name]) for name in ("round_digest", "session_id", "roster")),
        {CLIENT: SIGNER.public},
        {0: "server", CLIENT: "c", **{CLIENT + place: f"a{place}" for place in (1, 2, 3)}},
        Ring(VECTOR["bits"]),
        len(VECTOR["values"]),
        0,
        0,
        1,
        helpers={CLIENT + place: IDENTITIES[place - 1].public for place in (1, 2, 3)},
    )


def test_the_file_is_what_its_generator_writes() -> None:
    """The independent implementation gives exactly the committed bytes."""
    assert TARGET.read_text(encoding="utf-8") == text()


def test_an_upload_is_that_of_the_vector() -> None:
    """Split with the vector's draws, the vector's integers give its shares, in envelopes that open by hand as well."""
    context = context_of_the_vector()
    pledges = [
        bind.sign_pledge(context, IDENTITIES[place], place + 1, "key", SECRETS[place].public) for place in range(3)
    ]
    me = LocalParty(CLIENT, SIGNER, SeededRandomness(bytes.fromhex(GIVEN["client_draws"]), TOKEN))
    ready = AwaitingSessionKeys().advance(context, me, SessionKeys(tuple(pledges))).state
    assert isinstance(ready, SharingReady)
    shared = ready.protect(context, me, context.ring.encode(np.array(VECTOR["values"], dtype=np.int64)))
    vector, manifest = shared.vector, shared.outgoing
    assert vector is not None
    sealed = [vector[part.start : part.start + part.size] for part in deliveries(context)]
    infos = [bytes.fromhex(each) for each in VECTOR["infos"]]
    seeds = [bytes.fromhex(each) for each in GIVEN["session_secrets"]]
    by_hand = [reference.open_envelope(*each) for each in zip(seeds, sealed, infos, strict=True)]
    assert [each.hex() for each in by_hand] == VECTOR["shares"]
    assert sum(part.size for part in deliveries(context)) == len(vector) == context.upload_bytes
    assert [part.receiver for part in deliveries(context)] == list(context.helpers)
    assert manifest.digests == tuple(hashlib.sha256(each).digest() for each in sealed)
    assert bind.manifest_is_signed(context, manifest)
    assert pledges[1].signature.hex() == VECTOR["expected"]["key_pledge"]
    for place in (1, 2, 3):
        opened = open_share(context, SECRETS[place - 1], CLIENT, place, sealed[place - 1])
        assert (opened.vector + opened.seed).hex() == VECTOR["shares"][place - 1]


def test_all_derivations_are_those_of_the_vector() -> None:
    """Binding, digests, commitments, receipts and pledges are those that were computed independently."""
    context, nonce = context_of_the_vector(), bytes.fromhex(GIVEN["nonce"])
    digests = [bytes.fromhex(each) for each in VECTOR["digests"]]
    manifest = bind.sign_manifest(context, SIGNER, CLIENT, digests)
    listed = bind.set_digest(context, [manifest])
    accepted = bind.set_commitment(context, 2, nonce, [manifest])
    sum_share = bind.sum_commitment(context, 2, listed, nonce, digests[0])
    identity = IDENTITIES[1]
    seen = tuple(bind.sign_pledge(context, identity, 2, "accepted", content) for content in (accepted, sum_share))
    shown = AcceptedUploads(2, nonce, (manifest,), seen, bind.UNSIGNED)
    found = {
        "binding": context.binding,
        "manifest_signature": manifest.signature,
        "manifest_digest": bind.manifest_digest(context, manifest),
        "receipt_signature": bind.sign_receipt(context, identity, 2, manifest).signature,
        "set_digest": listed,
        "set_commitment": accepted,
        "sum_commitment": sum_share,
        "key_pledge": bind.sign_pledge(context, identity, 2, "key", SECRETS[1].public).signature,
        "accepted_pledge": bind.sign_pledge(context, identity, 2, "accepted", accepted).signature,
        "sum_pledge": bind.sign_pledge(context, identity, 2, "sum", sum_share).signature,
        "list_signature": bind.sign_list(context, identity, shown).signature,
    }
    assert {name: value.hex() for name, value in found.items()} == VECTOR["expected"]


@pytest.mark.parametrize(
    "facts", [{"plan": b"other"}, {"m": 3}, {"session_id": bytes(32)}, {"roster": bytes(32)}], ids=str
)
def test_everything_is_bound_to_the_session(facts: dict) -> None:
    """Another plan, session, roster or set of aggregators changes the binding that all strings start from."""
    base = shared_context()
    is_field = set(facts) <= {"session_id", "roster"}
    changed = replace(base, **facts) if is_field else shared_context(**facts)
    assert changed.binding != base.binding


def test_every_derived_key_is_of_one_use() -> None:
    """Stream keys of one seed differ between clients, aggregators and sessions, as does what seals are bound to."""
    contexts = (shared_context(), shared_context(plan=b"other"))
    pairs = [(1, 1), (1, 2), (2, 1), (2, 2)]
    streams = {bind.stream_key(context, bytes(32), *pair) for context in contexts for pair in pairs}
    infos = {bind.share_address(context, *pair).info for context in contexts for pair in pairs}
    assert len(streams) == len(infos) == 8
