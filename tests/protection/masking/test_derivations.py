"""Every labelled string of the masked protocol against an independent computation."""

from dataclasses import replace
from typing import Any

import pytest

from secagg.crypto.agreement import AgreementKey
from secagg.crypto.labels import digest, number
from secagg.crypto.signatures import SigningKey
from secagg.errors import MalformedMessage
from secagg.protection.interface import RemovableNoise
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.removal import NoiseKey
from secagg.protection.masking.tags import (
    no_words,
    pack_total,
    packed_size,
    residues_of,
    tags_of,
    unpack_total,
    words_of,
)
from tests.protection.rehearsal import context_for
from tests.vectors.files import load

VECTOR = load("derivations")


def test_all_derivations_are_those_of_the_vector() -> None:
    """Bindings, keys, commitments, hashes and the endorsement signature are those that were computed independently."""
    given = {name: bytes.fromhex(value) for name, value in VECTOR["inputs"].items()}
    members = VECTOR["members"]
    low, high = members["low"], members["high"]
    base = context_for()
    context = type(base)(
        **{
            **vars(base),
            "round_digest": given["round_digest"],
            "session_id": given["session_id"],
            "roster": given["roster"],
        }
    )
    binding, total = bind.session_binding(context, given["directory"]), given["total"]
    key, peer = AgreementKey.from_bytes(given["secret"]), AgreementKey.from_bytes(given["peer_secret"])
    parts = bind.endorsement_parts(context, given["directory"], members["dealers"], members["survivors"], total)
    challenge = bind.challenge(parts)
    found = {
        "session_binding": binding,
        "members_digest": bind.members_digest(members["dealers"]),
        "pairwise_key": bind.pairwise_key(key, low, high, given["peer_public"], binding),
        "self_mask_key": bind.self_mask_key(given["secret"], low, binding),
        "seed_coefficients_key": bind.coefficients_key(given["secret"], "seed", low, binding),
        "key_coefficients_key": bind.coefficients_key(given["secret"], "key", low, binding),
        "seed_commitment": bind.seed_commitment(given["secret"], low, context),
        "seed_share_hash": bind.share_hash("seed", given["share"], low, high, binding),
        "key_share_hash": bind.share_hash("key", given["share"], low, high, binding),
        "noise_share_hash": bind.share_hash(bind.SHARINGS[3], given["share"], low, high, binding),
        "noise_coefficients_key": bind.coefficients_key(given["secret"], bind.SHARINGS[2], low, binding),
        "noise_commitment": bind.noise_commitment(given["secret"], 1, low, context),
        "next_noise_seed": bind.next_noise_seed(given["secret"]),
        "noise_key": bind.noise_key(given["secret"], 2, low, binding),
        "share_info": bind.share_address(binding, low, high).info,
        "endorsement": SigningKey.from_bytes(given["secret"]).sign("survivors", *parts),
        "challenge": challenge,
        "tag_vector_key": bind.tag_vector_key(challenge, low),
        "tags_signature": bind.sign_tags(SigningKey.from_bytes(given["secret"]), low, given["tags"], parts).signature,
        "ring_place": digest("ring", given["directory"], number(low)),
    }
    assert {name: value.hex() for name, value in found.items()} == VECTOR["expected"]
    assert bind.pairwise_key(peer, high, low, key.public, binding) == found["pairwise_key"]


@pytest.mark.parametrize("case", VECTOR["sums"], ids=lambda case: f"{case['bits']} bits")
def test_sums_and_tags_are_those_of_the_vector(case: dict[str, Any]) -> None:
    """The packed sum of uploads and the tags of each, computed again in Python integers, are the same bytes."""
    given = {name: bytes.fromhex(value) for name, value in VECTOR["inputs"].items()}
    context = context_for(5, bits=case["bits"], length=9)
    context = replace(context, **{name: given[name] for name in ("round_digest", "session_id", "roster")})
    sets = VECTOR["members"]["dealers"], VECTOR["members"]["survivors"]
    parts = bind.endorsement_parts(context, given["directory"], *sets, given["total"])
    words = [words_of(context, bytes.fromhex(upload)) for upload in case["uploads"]]
    packed = pack_total(context, sum(words))
    assert packed.hex() == case["packed"]
    assert (unpack_total(context, packed) == sum(words)).all()
    assert [row.tobytes().hex() for row in tags_of(parts, [*words, sum(words)])] == case["tags"]


@pytest.mark.parametrize("bits", range(8, 65, 8))
@pytest.mark.parametrize("length", [1, 7, 32_767, 32_769])
def test_largest_sums_are_packed_and_opened(bits: int, length: int) -> None:
    """The sum of the largest uploads survives packing, has the stated size, and is the sum in the ring."""
    context = context_for(5, bits=bits, length=length)
    upload = b"\xff" * context.packed_bytes
    total = no_words(context)
    for _ in context.clients:
        total += words_of(context, upload)
    packed = pack_total(context, total)
    assert len(packed) == packed_size(context)
    assert (unpack_total(context, packed) == total).all()
    assert context.ring.decode(residues_of(context, total)).tolist() == [-5] * length
    for wrong in (packed[:-1], packed + b"\0", b""):
        with pytest.raises(MalformedMessage):
            unpack_total(context, wrong)


def test_every_derived_key_is_of_one_use() -> None:
    """Pairwise, coefficients and self-mask keys of one secret, and addresses, are all different, as are sessions."""
    given = {name: bytes.fromhex(value) for name, value in VECTOR["inputs"].items()}
    key, peer = AgreementKey.from_bytes(given["secret"]), given["peer_public"]
    found = []
    for plan in (b"one", b"two"):
        binding = bind.session_binding(context_for(plan=plan), given["directory"])
        found += [
            bind.pairwise_key(key, 1, 2, peer, binding),
            bind.pairwise_key(key, 1, 3, peer, binding),
            *(
                bind.coefficients_key(given["secret"], kind, dealer, binding)
                for kind in ("seed", "key")
                for dealer in (1, 2)
            ),
            bind.share_address(binding, 1, 2).info,
            bind.share_address(binding, 2, 1).info,
            bind.self_mask_key(given["secret"], 1, binding),
            bind.self_mask_key(given["secret"], 2, binding),
        ]
    assert len(set(found)) == len(found)


def test_removable_noise_is_that_of_the_vector() -> None:
    """The noise of a key is what an independent sampler draws from the same AES-256-CTR stream."""
    segments = tuple((sigma, count) for sigma, count in VECTOR["noise"]["segments"])
    context = replace(context_for(), removable=(RemovableNoise(0, ()), RemovableNoise(1, segments)))
    key = bytes.fromhex(VECTOR["expected"]["noise_key"])
    assert NoiseKey(2, key).draw(context).tolist() == VECTOR["noise"]["drawn"]
    assert NoiseKey(2, bytes([key[0] ^ 1]) + key[1:]).draw(context).tolist() != VECTOR["noise"]["drawn"]
