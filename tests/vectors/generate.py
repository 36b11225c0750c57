"""Write tests/vectors/v1/*.json from independent implementations: python -m tests.vectors.generate.

Nothing of secagg is imported here. Each file names its source and this generator; the failing cases are named
after the tampering.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from tests.vectors import independent as reference
from tests.vectors.bit_proofs import bit_proofs
from tests.vectors.edwards import signature_points
from tests.vectors.protocol_cases import derivations, encryption
from tests.vectors.wire_cases import signed, wire

FOLDER = Path(__file__).parent / "v1"
GENERATOR = "tests/vectors/generate.py"


def fixed(name: str, size: int = 32) -> bytes:
    """Bytes that anybody can recompute."""
    return hashlib.shake_256(b"secagg vectors v1: " + name.encode()).digest(size)


def labels() -> dict[str, Any]:
    """Joined byte strings, and pairs that a naive joining would confuse."""
    inputs = [("frame", ["00"]), ("members", ["00000001", "00000002"]), ("context", ["", "ff" * 40]), ("é", [])]
    cases = [
        {"label": label, "parts": parts, "joined": reference.labelled(label, *map(bytes.fromhex, parts)).hex()}
        for label, parts in inputs
    ]
    moved = [
        {"name": "boundary_moved", "one": ["a", ["0102", "03"]], "other": ["a", ["01", "0203"]]},
        {"name": "parts_joined", "one": ["a", ["01", "02"]], "other": ["a", ["0102"]]},
        {"name": "empty_part_added", "one": ["a", ["01"]], "other": ["a", ["01", ""]]},
        {"name": "label_moved_into_part", "one": ["ab", []], "other": ["a", ["62"]]},
        {"name": "parts_swapped", "one": ["a", ["01", "02"]], "other": ["a", ["02", "01"]]},
    ]
    return {"source": "NIST SP 800-185 encode_string with byte lengths", "cases": cases, "different": moved}


def ring() -> dict[str, Any]:
    """Signed integers, packed, at and around the ends of every ring."""
    cases, failing = [], []
    for bits in range(8, 65, 8):
        half = 2 ** (bits - 1)
        values = [0, 1, -1, half - 1, -half, half // 3, -(half // 5)]
        cases.append({"bits": bits, "values": values, "packed": reference.pack_ring(values, bits).hex()})
        if bits < 64:
            failing += [
                {"name": f"one_above_the_largest_of_{bits}", "bits": bits, "values": [half]},
                {"name": f"one_below_the_least_of_{bits}", "bits": bits, "values": [-half - 1]},
            ]
    unpack = [
        {"name": "one_byte_cut_off", "bits": 24, "length": 2, "packed": "0102030405"},
        {"name": "one_byte_too_many", "bits": 24, "length": 2, "packed": "01020304050607"},
        {"name": "one_entry_missing", "bits": 24, "length": 2, "packed": "010203"},
        {"name": "nothing_at_all", "bits": 8, "length": 1, "packed": ""},
    ]
    source = "two's complement modulo 2^bits in little-endian bytes, from Python integers"
    return {"source": source, "cases": cases, "encode_refused": failing, "unpack_refused": unpack}


def mask_stream() -> dict[str, Any]:
    """Keystream words; long streams by their digest."""
    cases = []
    for name, word, entries in [("a", 4, 5), ("b", 8, 3), ("c", 4, 1), ("d", 4, 70_001), ("e", 8, 33_333)]:
        stream = reference.keystream(fixed(f"stream {name}"), word, entries)
        octets = b"".join(value.to_bytes(word, "little") for value in stream)
        first = [str(value) for value in stream[:5]]
        digest = hashlib.sha256(octets).hexdigest()
        cases.append({"key": fixed(f"stream {name}").hex(), "word": word, "entries": entries, "first": first})
        cases[-1]["sha256"] = digest
    return {"source": "AES-256-CTR of pycryptodome (NIST SP 800-38A), counter from zero", "cases": cases}


def shares() -> dict[str, Any]:
    """Values of polynomials, the first 49 bytes of the key's SHAKE-256 belonging to the highest power."""
    cases, refused = [], []
    for name, threshold, holders in [("2 of 3", 2, [1, 2, 3]), ("3 of 5", 3, [1, 2, 4, 7, 4096]), ("1 of 1", 1, [9])]:
        secret, key = fixed(f"secret {name}"), fixed(f"coefficients {name}")
        drawn = hashlib.shake_256(key).digest(49 * (threshold - 1))
        draws = [int.from_bytes(drawn[at : at + 49], "big") % reference.PRIME for at in range(0, len(drawn), 49)]
        polynomial = [int.from_bytes(secret, "big"), *reversed(draws)]
        dealt = {str(holder): reference.polynomial_share(polynomial, holder).hex() for holder in holders}
        cases.append({"threshold": threshold, "secret": secret.hex(), "key": key.hex(), "shares": dealt})
    good = {"1": cases[0]["shares"]["1"], "2": cases[0]["shares"]["2"]}
    prime_more = (int(good["1"], 16) + reference.PRIME).to_bytes(33, "big").hex()
    huge = [2**256 + 5, 77]
    outside = {str(holder): reference.polynomial_share(huge, holder).hex() for holder in (1, 2)}
    refused = [
        {"name": "share_plus_prime", "shares": good | {"1": prime_more}},
        {"name": "share_is_the_prime", "shares": good | {"1": reference.PRIME.to_bytes(33, "big").hex()}},
        {"name": "share_cut_short", "shares": good | {"1": good["1"][:-2]}},
        {"name": "share_with_a_leading_zero_byte", "shares": good | {"1": "00" + good["1"]}},
        {"name": "secret_above_32_bytes", "shares": outside},
    ]
    flipped = (int(good["1"], 16) ^ 1).to_bytes(33, "big").hex()
    of_three = {holder: cases[1]["shares"][holder] for holder in ("1", "2")}
    other = [
        {"name": "share_of_another_holder", "shares": {"1": good["2"], "2": good["1"]}, "secret": cases[0]["secret"]},
        {"name": "one_bit_flipped", "shares": good | {"1": flipped}, "secret": cases[0]["secret"]},
        {"name": "one_share_too_few", "shares": of_three, "secret": cases[1]["secret"]},
        {"name": "share_of_another_threshold", "shares": good | of_three | {"1": good["1"]}},
    ]
    other[-1]["secret"] = cases[0]["secret"]
    source = "Shamir 1979 over 2^256 + 297, coefficients from SHAKE-256, polynomial evaluated with Python integers"
    return {"source": source, "cases": cases, "refused": refused, "another_secret": other}


def key_agreement() -> dict[str, Any]:
    """RFC 7748, section 6.1, carried on through HKDF; points of small order. RFC 5869 checks the reference itself."""
    okm = HKDF(bytes([11] * 22), 42, bytes(range(13)), SHA256, context=bytes(range(0xF0, 0xFA)))
    if okm.hex() != "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865":
        raise ValueError("this HKDF is not that of RFC 5869, appendix A.1")
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    shared = reference.x25519(alice, reference.x25519_public(bob))
    if shared.hex() != "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742":
        raise ValueError("this X25519 is not that of RFC 7748, section 6.1")
    context, parts = fixed("context"), [b"", bytes(4)]
    agreed = reference.derive(shared, context, "share", *parts)
    derived = []
    for label, given in [("self mask", [b"\0\0\0\1"]), ("client state", []), ("x", [fixed("part", 70), b""])]:
        key = reference.derive(fixed(label), context, label, *given)
        derived.append({"secret": fixed(label).hex(), "context": context.hex(), "label": label, "key": key.hex()})
        derived[-1]["parts"] = [part.hex() for part in given]
    field = 2**255 - 19
    order_eight = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
    order_eight_twin = "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"
    points = {"zero": 0, "one": 1, "prime_minus_one": field - 1, "prime": field, "prime_plus_one": field + 1}
    weak = [{"name": name, "public": value.to_bytes(32, "little").hex()} for name, value in points.items()]
    weak += [{"name": "order_eight", "public": order_eight}, {"name": "order_eight_twin", "public": order_eight_twin}]
    weak += [{"name": "zero_with_the_unused_bit", "public": (1 << 255).to_bytes(32, "little").hex()}]
    weak += [{"name": "cut_short", "public": "09" + "00" * 30}, {"name": "too_long", "public": "09" + "00" * 32}]
    keys = {
        name: {"private": key.hex(), "public": reference.x25519_public(key).hex()}
        for name, key in [("alice", alice), ("bob", bob)]
    }
    agreement = {"context": context.hex(), "label": "share", "parts": [part.hex() for part in parts]}
    source = "RFC 7748 section 6.1, RFC 5869 through pycryptodome; small-order points of Curve25519"
    return {"source": source, **keys, "agreement": agreement | {"key": agreed.hex()}, "derived": derived, "weak": weak}


def signatures() -> dict[str, Any]:
    """One Ed25519 signature over labelled parts, and what must not pass for it."""
    private, parts = fixed("identity"), [b"\1\2", b"", b"\3"]
    public = reference.ed25519_public(private)
    signature = reference.ed25519_sign(private, reference.labelled("survivors", *parts))
    valid = {"public": public.hex(), "signature": signature.hex(), "label": "survivors", "parts": ["0102", "", "03"]}
    group = 2**252 + 27742317777372353535851937790883648493
    more = signature[:32] + (int.from_bytes(signature[32:], "little") + group).to_bytes(32, "little")
    stranger = reference.ed25519_public(fixed("stranger"))
    bare = reference.ed25519_sign(private, b"".join(parts))
    invalid = {
        "first_bit_flipped": {"signature": bytes([signature[0] ^ 1, *signature[1:]]).hex()},
        "last_byte_cut_off": {"signature": signature[:-1].hex()},
        "group_order_added": {"signature": more.hex()},
        "not_labelled": {"signature": bare.hex()},
        "all_zero": {"signature": bytes(64).hex()},
        "another_label": {"label": "frame"},
        "parts_swapped": {"parts": ["0102", "03", ""]},
        "boundary_moved": {"parts": ["01", "02", "03"]},
        "another_signer": {"public": stranger.hex()},
        "public_key_cut_short": {"public": public[:-1].hex()},
        "no_public_key": {"public": ""},
    }
    failing = [{"name": name, **valid, **change} for name, change in invalid.items()]
    return {
        "source": "Ed25519 of pycryptodome (RFC 8032)",
        "private": private.hex(),
        "valid": valid,
        "invalid": failing,
    }


def sealing() -> dict[str, Any]:
    """One sealed message, and what must not open."""
    key, message, associated = fixed("seal"), fixed("message", 66), reference.labelled("sealed share", fixed("binding"))
    sealed = reference.seal(key, message, associated)
    good = {"key": key.hex(), "sealed": sealed.hex(), "associated": associated.hex()}
    broken = {
        "first_byte_flipped": {"sealed": bytes([sealed[0] ^ 128, *sealed[1:]]).hex()},
        "tag_flipped": {"sealed": bytes([*sealed[:-1], sealed[-1] ^ 1]).hex()},
        "tag_cut_off": {"sealed": sealed[:-16].hex()},
        "last_byte_cut_off": {"sealed": sealed[:-1].hex()},
        "byte_added": {"sealed": sealed.hex() + "00"},
        "nothing": {"sealed": ""},
        "another_key": {"key": fixed("other").hex()},
        "another_associated": {"associated": associated[:-1].hex()},
        "no_associated": {"associated": ""},
    }
    failing = [{"name": name, **good, **change} for name, change in broken.items()]
    source = "ChaCha20-Poly1305 of pycryptodome (RFC 8439), nonce zero"
    return {"source": source, "good": good | {"message": message.hex()}, "broken": failing}


VECTORS: dict[str, Callable[[], dict[str, Any]]] = {
    "labels": labels,
    "ring": ring,
    "mask_stream": mask_stream,
    "shares": shares,
    "key_agreement": key_agreement,
    "signatures": signatures,
    "signature_points": signature_points,
    "sealing": sealing,
    "bit_proofs": bit_proofs,
    "derivations": derivations,
    "encryption": encryption,
    "wire": wire,
    "signed": signed,
}


def text(name: str) -> str:
    """The content of one vector file."""
    content = VECTORS[name]()
    return json.dumps({"source": content.pop("source"), "generator": GENERATOR, **content}, indent=1) + "\n"


if __name__ == "__main__":
    for vector in VECTORS:
        (FOLDER / f"{vector}.json").write_text(text(vector), encoding="utf-8")
