"""The cryptographic pieces against vectors from independent implementations."""

import hashlib

import numpy as np
import pytest

from secagg.crypto.agreement import AgreementKey, WeakPublicKey, derive, is_usable
from secagg.crypto.labels import labelled
from secagg.crypto.sealing import SealBroken, seal, unseal
from secagg.crypto.sharing import SharesInconsistent, combine, share
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.crypto.stream import MaskStream
from tests.vectors.files import load, named

LABELS, STREAM, SHARES = load("labels"), load("mask_stream"), load("shares")
AGREEMENT, SIGNATURES, SEALING = load("key_agreement"), load("signatures"), load("sealing")


def parts_of(case: dict) -> list[bytes]:
    return [bytes.fromhex(part) for part in case["parts"]]


@pytest.mark.parametrize("case", LABELS["cases"], ids=lambda case: case["label"])
def test_labelled_joins_as_the_vectors_do(case: dict) -> None:
    """Label and parts are joined with 8-byte lengths."""
    assert labelled(case["label"], *parts_of(case)).hex() == case["joined"]


@pytest.mark.parametrize("case", LABELS["different"], ids=named)
def test_labelled_keeps_apart_what_looks_alike(case: dict) -> None:
    """Inputs that a plain concatenation would confuse give different bytes."""
    one, other = (labelled(label, *map(bytes.fromhex, parts)) for label, parts in (case["one"], case["other"]))
    assert one != other


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("case", STREAM["cases"], ids=lambda case: f"{case['entries']} of {case['word']} bytes")
def test_mask_stream_is_aes_ctr(case: dict, sign: int) -> None:
    """Adding (subtracting) the stream to zeros gives the (negated) AES-CTR keystream, across buffer borders too."""
    vector = np.zeros(case["entries"], dtype=f"<u{case['word']}")
    MaskStream().apply(vector, bytes.fromhex(case["key"]), sign)
    words = vector if sign == 1 else np.zeros_like(vector) - vector
    assert [str(word) for word in words[:5]] == case["first"]
    assert hashlib.sha256(words.tobytes()).hexdigest() == case["sha256"]


@pytest.mark.parametrize("case", SHARES["cases"], ids=lambda case: f"{case['threshold']} of {len(case['shares'])}")
def test_shares_are_values_of_the_polynomial(case: dict) -> None:
    """The same secret and key give the same shares, and any threshold of them give the secret back."""
    holders = [int(holder) for holder in case["shares"]]
    dealt = share(bytes.fromhex(case["secret"]), case["threshold"], holders, bytes.fromhex(case["key"]))
    assert {str(holder): value.hex() for holder, value in dealt.items()} == case["shares"]
    last = dict(list(dealt.items())[-case["threshold"] :])
    assert combine(last).hex() == case["secret"]


@pytest.mark.parametrize("case", SHARES["refused"], ids=named)
def test_shares_of_no_secret_are_refused(case: dict) -> None:
    """A share that is not canonical, or a value at zero above 32 bytes, raises SharesInconsistent."""
    with pytest.raises(SharesInconsistent):
        combine({int(holder): bytes.fromhex(value) for holder, value in case["shares"].items()})


@pytest.mark.parametrize("case", SHARES["another_secret"], ids=named)
def test_wrong_shares_never_give_the_secret(case: dict) -> None:
    """A wrong share, or one too few, gives another secret or none; the commitment catches it."""
    try:
        found = combine({int(holder): bytes.fromhex(value) for holder, value in case["shares"].items()})
    except SharesInconsistent:
        return
    assert found.hex() != case["secret"]


@pytest.mark.parametrize(("own", "peer"), [("alice", "bob"), ("bob", "alice")])
def test_both_sides_agree_on_the_vector(own: str, peer: str) -> None:
    """X25519 and HKDF give the key of the vector on both sides."""
    key = AgreementKey.from_bytes(bytes.fromhex(AGREEMENT[own]["private"]))
    expected = AGREEMENT["agreement"]
    agreed = key.agree(
        bytes.fromhex(AGREEMENT[peer]["public"]),
        bytes.fromhex(expected["context"]),
        expected["label"],
        *parts_of(expected),
    )
    assert key.public.hex() == AGREEMENT[own]["public"]
    assert agreed.hex() == expected["key"]


@pytest.mark.parametrize("case", AGREEMENT["derived"], ids=lambda case: case["label"])
def test_derivation_is_hkdf(case: dict) -> None:
    """HKDF-SHA-256 with the context as salt and the labelled parts as info gives the key of the vector."""
    secret, context = bytes.fromhex(case["secret"]), bytes.fromhex(case["context"])
    assert derive(secret, context, case["label"], *parts_of(case)).hex() == case["key"]


@pytest.mark.parametrize("case", AGREEMENT["weak"], ids=named)
def test_weak_public_keys_are_refused(case: dict) -> None:
    """A peer's key of small order, or of another length, raises WeakPublicKey."""
    key = AgreementKey.from_bytes(bytes.fromhex(AGREEMENT["alice"]["private"]))
    assert not is_usable(bytes.fromhex(case["public"]))
    with pytest.raises(WeakPublicKey):
        key.agree(bytes.fromhex(case["public"]), bytes(32), "share")


@pytest.mark.parametrize("more", [0, 2**255 - 19, 2**255], ids=["canonical", "prime_added", "unused_bit_set"])
def test_only_the_canonical_encoding_is_usable(more: int) -> None:
    """Of the encodings of one point, the base point nine, only that below the prime may be advertised."""
    assert is_usable((9 + more).to_bytes(32, "little")) == (more == 0)


@pytest.mark.parametrize("owner", ["alice", "bob"])
def test_honest_keys_are_usable(owner: str) -> None:
    """The public keys of RFC 7748 may be advertised."""
    assert is_usable(bytes.fromhex(AGREEMENT[owner]["public"]))


def test_signature_of_the_vector_verifies_and_is_made() -> None:
    """Signing gives the vector's signature (Ed25519 is deterministic), and it verifies."""
    valid = SIGNATURES["valid"]
    key = SigningKey.from_bytes(bytes.fromhex(SIGNATURES["private"]))
    assert key.public.hex() == valid["public"]
    assert key.sign(valid["label"], *parts_of(valid)).hex() == valid["signature"]
    assert is_signed(key.public, bytes.fromhex(valid["signature"]), valid["label"], *parts_of(valid))


@pytest.mark.parametrize("case", SIGNATURES["invalid"], ids=named)
def test_tampered_signatures_do_not_verify(case: dict) -> None:
    """A changed signature, key, label or part does not verify."""
    public, signature = bytes.fromhex(case["public"]), bytes.fromhex(case["signature"])
    assert not is_signed(public, signature, case["label"], *parts_of(case))


@pytest.mark.parametrize("case", load("signature_points")["cases"], ids=named)
def test_points_on_which_verifiers_disagree_are_refused(case: dict) -> None:
    """A key or a first half of a signature of small order, or in a second encoding, signs nothing."""
    public, signature = bytes.fromhex(case["public"]), bytes.fromhex(case["signature"])
    assert not is_signed(public, signature, case["label"], *parts_of(case))


@pytest.mark.parametrize("y", [2**255 - 19, 2**255 - 18, 2**255 - 16, 2**255 - 1])
def test_second_encodings_are_refused_wherever_they_stand(y: int) -> None:
    """No coordinate from the prime on is taken, as a key or in a signature; every sign of it is refused."""
    key = SigningKey.from_bytes(bytes(range(32)))
    good = key.sign("frame", b"x")
    assert is_signed(key.public, good, "frame", b"x")
    for sign in (0, 1):
        odd = (y | sign << 255).to_bytes(32, "little")
        assert not is_signed(odd, good, "frame", b"x")
        assert not is_signed(key.public, odd + good[32:], "frame", b"x")


def test_seal_of_the_vector_opens_and_is_made() -> None:
    """Sealing gives the vector's ciphertext, and it opens again."""
    good = {name: bytes.fromhex(value) for name, value in SEALING["good"].items()}
    assert seal(good["key"], good["message"], good["associated"]) == good["sealed"]
    assert unseal(good["key"], good["sealed"], good["associated"]) == good["message"]


@pytest.mark.parametrize("case", SEALING["broken"], ids=named)
def test_tampered_seals_do_not_open(case: dict) -> None:
    """A changed ciphertext, tag, key or associated data raises SealBroken."""
    with pytest.raises(SealBroken):
        unseal(*(bytes.fromhex(case[name]) for name in ("key", "sealed", "associated")))
