"""Envelopes against the working group's vector, opened by hand, and tampered with."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from Crypto.Cipher import ChaCha20_Poly1305
from cryptography.exceptions import UnsupportedAlgorithm
from hypothesis import given
from hypothesis import strategies as st

from secagg.crypto import envelopes
from secagg.crypto.agreement import WeakPublicKey
from secagg.crypto.envelopes import (
    ENVELOPE_BYTES,
    PUBLIC_KEY_BYTES,
    Address,
    EnvelopeKey,
    check_library,
    is_envelope_key,
    seal_envelope,
)
from secagg.crypto.sealing import SealBroken
from secagg.errors import BadInput
from secagg.federation.endpoints import Server
from secagg.protection import PROTECTIONS, UNPROTECTED
from secagg.randomness import OperatingSystem
from tests.vectors import independent as reference
from tests.vectors.files import load

VECTOR = {
    name: bytes.fromhex(value) for name, value in load("envelopes")["working_group"].items() if type(value) is str
}
STORED = load("envelopes")["stored"]
WEAK = [bytes.fromhex(case["public"]) for case in load("key_agreement")["weak"] if len(case["public"]) == 64]
KEY = EnvelopeKey.from_bytes(bytes(range(32)))
ADDRESS = Address(bytes(32), "Dealing", 1, 2)
MESSAGE = b"two shares".ljust(66)
ENVELOPE = seal_envelope(KEY.public, MESSAGE, ADDRESS)


def refused(envelope: bytes, key: EnvelopeKey = KEY, address: Address = ADDRESS) -> bool:
    """Whether an envelope is refused as broken."""
    with pytest.raises(SealBroken):
        key.open(envelope, address)
    return True


def test_the_hand_made_opening_is_that_of_the_working_group() -> None:
    """Key pair, X-Wing secret, key, nonce and message of draft-ietf-hpke-pq-04's vector come out of the formulas."""
    seed, enc = VECTOR["skRm"], VECTOR["enc"]
    assert EnvelopeKey.from_bytes(seed).public == VECTOR["pkRm"]
    assert reference.x_wing_secret(seed, enc) == VECTOR["shared_secret"]
    assert reference.key_schedule(VECTOR["shared_secret"], VECTOR["info"]) == (VECTOR["key"], VECTOR["base_nonce"])
    assert reference.open_envelope(seed, enc + VECTOR["ct"], VECTOR["info"], VECTOR["aad"]) == VECTOR["pt"]


def test_the_suite_opens_what_the_working_groups_key_and_nonce_seal() -> None:
    """Under the vector's encapsulated key and info the product's suite derives the vector's key and nonce."""
    private = EnvelopeKey.from_bytes(VECTOR["skRm"])._private
    cipher = ChaCha20_Poly1305.new(key=VECTOR["key"], nonce=VECTOR["base_nonce"])
    sealed = VECTOR["enc"] + b"".join(cipher.encrypt_and_digest(VECTOR["pt"]))
    assert envelopes._suite().decrypt(sealed, private, info=VECTOR["info"]) == VECTOR["pt"]


def test_the_stored_envelope_opens() -> None:
    """An envelope of an earlier release opens still, in the product and by hand, with the protocol's info."""
    seed, binding, message, envelope = (
        bytes.fromhex(STORED[name]) for name in ("seed", "binding", "message", "envelope")
    )
    told = binding, STORED["step"], STORED["sender"], STORED["receiver"]
    assert EnvelopeKey.from_bytes(seed).open(envelope, Address(*told)) == message
    assert Address(*told).info == reference.envelope_info(*told)
    assert reference.open_envelope(seed, envelope, reference.envelope_info(*told)) == message


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100), st.integers(0, 4113), st.integers(0, 4113))
def test_what_is_sealed_opens_in_the_product_and_by_hand(seed: bytes, message: bytes, sender: int, to: int) -> None:
    """Every key, message and address give an envelope of the message's length and 1,136 bytes, which opens twice."""
    key, address = EnvelopeKey.from_bytes(seed), Address(seed, "ShareManifest", sender, to)
    envelope = seal_envelope(key.public, message, address)
    assert (len(envelope), len(key.public)) == (len(message) + ENVELOPE_BYTES, PUBLIC_KEY_BYTES)
    assert key.open(envelope, address) == message
    assert (
        reference.open_envelope(seed, envelope, reference.envelope_info(seed, "ShareManifest", sender, to)) == message
    )


def test_no_envelope_is_made_twice() -> None:
    """Two envelopes of one message share neither encapsulated key nor a block of ciphertext."""
    again = seal_envelope(KEY.public, MESSAGE, ADDRESS)
    pieces = [{sealed[at : at + 16] for at in range(0, len(sealed), 16)} for sealed in (ENVELOPE, again)]
    assert not pieces[0] & pieces[1]


@pytest.mark.parametrize(
    "changed",
    [
        {"binding": b"\1" + bytes(31)},
        {"binding": bytes(31)},
        {"step": "ShareManifest"},
        {"step": ""},
        {"sender": 2},
        {"receiver": 1},
        {"sender": 2, "receiver": 1},
    ],
    ids=str,
)
def test_another_address_opens_nothing(changed: dict) -> None:
    """Another round, step, sender or receiver in the info, on the side of the receiver or the sender, is refused."""
    other = replace(ADDRESS, **changed)
    assert refused(ENVELOPE, address=other)
    assert refused(seal_envelope(KEY.public, MESSAGE, other))


def test_another_receiver_opens_nothing() -> None:
    """Another key, and one that shares the lattice half or the curve half alone, are refused."""
    other = EnvelopeKey.generate(OperatingSystem())
    assert refused(ENVELOPE, key=other)
    for mixed in (KEY.public[:1184] + other.public[1184:], other.public[:1184] + KEY.public[1184:]):
        envelope = seal_envelope(mixed, MESSAGE, ADDRESS)
        assert refused(envelope)
        assert refused(envelope, key=other)


@pytest.mark.parametrize("size", [0, 1, 16, 1087, 1088, 1119, 1120, 1121, 1135, 1136, len(ENVELOPE) - 1])
def test_a_cut_envelope_is_refused(size: int) -> None:
    """An envelope that ends anywhere before its end, and one with a byte more, are refused."""
    assert refused(ENVELOPE[:size])
    assert refused(ENVELOPE + b"\0")


@pytest.mark.parametrize("place", [0, 500, 1087, 1088, 1100, 1119, 1120, 1150, -17, -16, -1])
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flipped_bit_is_refused(place: int, bit: int) -> None:
    """One bit of either half of the encapsulated key, of ciphertext or tag makes an envelope that is refused.

    Bit 255 of X25519's half too, which RFC 7748 masks away: the combiner hashes the bytes.
    """
    flipped = bytearray(ENVELOPE)
    flipped[place] ^= 1 << bit
    assert refused(bytes(flipped))


@pytest.mark.parametrize("point", WEAK, ids=bytes.hex)
def test_an_encapsulated_point_of_small_order_is_refused(point: bytes) -> None:
    """A point of small order in place of X25519's half is refused, whatever stands around it."""
    assert refused(ENVELOPE[:1088] + point + ENVELOPE[1120:])


@pytest.mark.parametrize("point", WEAK, ids=bytes.hex)
def test_a_public_key_of_small_order_is_none(point: bytes) -> None:
    """A key whose X25519 half is of small order, or not canonical, may not be advertised; nothing is sealed to it."""
    public = KEY.public[:1184] + point
    assert not is_envelope_key(public)
    with pytest.raises(WeakPublicKey):
        seal_envelope(public, MESSAGE, ADDRESS)


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda public: b"",
    "X25519's half alone": lambda public: public[1184:],
    "ML-KEM's half alone": lambda public: public[:1184],
    "a byte less": lambda public: public[:-1],
    "a byte more": lambda public: public + b"\0",
    "coefficients above 3328": lambda public: b"\xff" * 3 + public[3:],
    "halves swapped": lambda public: public[1184:] + public[:1184],
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_no_public_key_is_refused(name: str) -> None:
    """A key of another length, and one that fails ML-KEM's modulus check, may not be advertised nor sealed to."""
    spoilt = SPOILT[name](KEY.public)
    assert not is_envelope_key(spoilt)
    with pytest.raises(WeakPublicKey):
        seal_envelope(spoilt, MESSAGE, ADDRESS)
    assert is_envelope_key(KEY.public)


def test_only_the_canonical_point_may_be_advertised() -> None:
    """The other encodings of one X25519 half, with the prime added or the unused bit set, are no envelope key."""
    assert is_envelope_key(KEY.public[:1184] + (9).to_bytes(32, "little"))
    for other in (9 + 2**255 - 19, 9 + 2**255):
        assert not is_envelope_key(KEY.public[:1184] + other.to_bytes(32, "little"))


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_seed_has_32_bytes(size: int) -> None:
    """A seed of another length raises ValueError; a key gives back its seed, and never prints it."""
    with pytest.raises(ValueError, match="32 bytes"):
        EnvelopeKey.from_bytes(bytes(size))
    assert KEY.private_bytes() == bytes(range(32))
    assert repr(KEY.private_bytes())[2:-1] not in repr(KEY)


class Lacking:
    """ML-KEM in a `cryptography` that was built without it."""

    def __getattr__(self, name: str) -> Callable[[bytes], None]:
        def refuse(data: bytes) -> None:
            raise UnsupportedAlgorithm("ML-KEM is not supported")

        return refuse


def test_a_library_without_ml_kem_is_refused_before_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every protection's check and the server's start refuse it by name with a remedy, and so does every key."""
    check_library()
    for name in ("MLKEM768PrivateKey", "MLKEM768PublicKey"):
        monkeypatch.setattr(envelopes, name, Lacking())
    starts: list[Callable[[], object]] = [
        protection.check_machine for name, protection in PROTECTIONS.items() if name != UNPROTECTED
    ]
    starts += [lambda: Server("absent", state="absent", tls="absent"), lambda: is_envelope_key(KEY.public)]
    for start in starts:
        with pytest.raises(BadInput, match=r"cryptography \([\d.]+\) has no ML-KEM-768") as caught:
            start()
        assert "cryptography>=50" in caught.value.remedy
    assert len(starts) == 5


def test_an_older_library_is_refused_by_name() -> None:
    """Where `cryptography` has no HPKE at all a command ends with one line and the code of bad input."""
    program = "import sys; sys.modules['cryptography.hazmat.primitives.hpke'] = None; import secagg.cli as c; c.main()"
    command = [sys.executable, "-c", program, "plan", "show", "absent"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "has no ML-KEM-768" in ended.stderr
    assert "pip install 'cryptography>=50'" in ended.stderr
    assert "Traceback" not in ended.stderr
