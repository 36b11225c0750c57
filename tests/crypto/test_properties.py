"""What holds for every key, secret and threshold."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.crypto.agreement import AgreementKey, derive
from secagg.crypto.labels import digest, labelled, number
from secagg.crypto.sealing import seal, unseal
from secagg.crypto.sharing import PRIME, SharesInconsistent, combine, is_canonical, share
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.crypto.stream import MaskStream
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.unsafe_for_tests import TOKEN

KEYS = st.binary(min_size=32, max_size=32)
PARTS = st.lists(st.binary(max_size=5), max_size=3).map(tuple)
LABEL = st.text(max_size=4)


@given(LABEL, PARTS, LABEL, PARTS)
def test_labelled_is_injective(label: str, parts: tuple, other_label: str, other_parts: tuple) -> None:
    """Two inputs give the same bytes, and the same digest, only when they are equal."""
    same = (label, parts) == (other_label, other_parts)
    assert (labelled(label, *parts) == labelled(other_label, *other_parts)) == same
    assert (digest(label, *parts) == digest(other_label, *other_parts)) == same


@given(KEYS, KEYS, KEYS, LABEL, PARTS)
def test_agreement_is_mutual(own: bytes, peer: bytes, context: bytes, label: str, parts: tuple) -> None:
    """Both sides derive one key, and another for every other context or label."""
    ours, theirs = AgreementKey.from_bytes(own), AgreementKey.from_bytes(peer)
    agreed = ours.agree(theirs.public, context, label, *parts)
    assert agreed == theirs.agree(ours.public, context, label, *parts)
    assert len(agreed) == 32
    assert agreed != ours.agree(theirs.public, bytes([context[0] ^ 1]) + context[1:], label, *parts)
    assert agreed != ours.agree(theirs.public, context, label + "x", *parts)


@given(KEYS)
def test_private_bytes_come_back(private: bytes) -> None:
    """Both kinds of key give back the private bytes that they were read from, unclamped."""
    assert AgreementKey.from_bytes(private).private_bytes() == private
    assert SigningKey.from_bytes(private).private_bytes() == private
    assert AgreementKey.from_bytes(AgreementKey.from_bytes(private).private_bytes()).public == (
        AgreementKey.from_bytes(private).public
    )


@pytest.mark.parametrize("size", [0, 31, 33])
@pytest.mark.parametrize("kind", [AgreementKey, SigningKey])
def test_keys_have_32_bytes(kind: type, size: int) -> None:
    """Private bytes of another length raise ValueError."""
    with pytest.raises(ValueError, match="32 bytes"):
        kind.from_bytes(bytes(size))


@given(KEYS, PARTS, PARTS)
def test_signatures_hold_for_their_parts_alone(private: bytes, parts: tuple, others: tuple) -> None:
    """A signature verifies for exactly the parts that were signed."""
    key = SigningKey.from_bytes(private)
    signature = key.sign("frame", *parts)
    assert is_signed(key.public, signature, "frame", *parts)
    assert is_signed(key.public, signature, "frame", *others) == (parts == others)


@given(KEYS, st.binary(max_size=100), st.binary(max_size=20))
def test_sealed_messages_open_again(key: bytes, message: bytes, associated: bytes) -> None:
    """A sealed message is one tag longer and opens under the same key and associated data."""
    sealed = seal(key, message, associated)
    assert len(sealed) == len(message) + 16  # the tag of Poly1305
    assert unseal(key, sealed, associated) == message


@given(KEYS, st.data())
def test_any_threshold_of_shares_recovers(secret: bytes, data: st.DataObject) -> None:
    """Every set of exactly t shares gives the secret, and every share is canonical."""
    holders = data.draw(st.lists(st.integers(1, 4096), min_size=1, max_size=9, unique=True))
    threshold = data.draw(st.integers(1, len(holders)))
    dealt = share(secret, threshold, holders, secret[::-1])
    assert set(dealt) == set(holders)
    assert all(is_canonical(value) for value in dealt.values())
    chosen = data.draw(st.permutations(holders))[:threshold]
    assert combine({holder: dealt[holder] for holder in chosen}) == secret


@given(KEYS, KEYS, KEYS, st.integers(2, 9))
def test_a_key_deals_one_sharing(secret: bytes, key: bytes, other: bytes, threshold: int) -> None:
    """The same secret and key give the same shares, in whatever order; another key gives every holder another one."""
    holders = tuple(range(1, threshold + 3))
    dealt = share(secret, threshold, holders, key)
    assert dealt == share(secret, threshold, holders[::-1], key)
    assert all((dealt[each] == share(secret, threshold, holders, other)[each]) == (key == other) for each in holders)


@given(KEYS, KEYS, st.integers(2, 6))
def test_too_few_shares_fit_every_secret(secret: bytes, other: bytes, threshold: int) -> None:
    """For t − 1 shares and any other secret there is a t-th share that leads to it: they tell nothing."""
    holders = tuple(range(1, threshold + 1))
    dealt = share(secret, threshold, holders, secret[::-1])
    known = {holder: dealt[holder] for holder in holders[:-1]}
    weight = _weight_of_last(holders)
    difference = int.from_bytes(other, "big") - int.from_bytes(secret, "big")
    last = (int.from_bytes(dealt[threshold], "big") + difference * pow(weight, -1, PRIME)) % PRIME
    assert combine({**known, threshold: last.to_bytes(33, "big")}) == other


def _weight_of_last(holders: tuple[int, ...]) -> int:
    weight = 1
    for holder in holders[:-1]:
        weight = weight * holder * pow(holder - holders[-1], -1, PRIME) % PRIME
    return weight


@pytest.mark.parametrize(
    ("secret", "threshold", "holders"),
    [
        (bytes(31), 1, (1, 2)),
        (bytes(33), 1, (1, 2)),
        (bytes(32), 0, (1, 2)),
        (bytes(32), 3, (1, 2)),
        (bytes(32), 1, ()),
        (bytes(32), 1, (1, 1)),
        (bytes(32), 1, (0, 1)),
        (bytes(32), 1, (-1, 1)),
    ],
)
def test_impossible_sharings_are_refused(secret: bytes, threshold: int, holders: tuple[int, ...]) -> None:
    """A secret of another length, an impossible threshold, or holders that repeat or are not positive are refused."""
    with pytest.raises(ValueError, match=r"secret has 32 bytes|cannot share"):
        share(secret, threshold, holders, bytes(32))


@pytest.mark.parametrize("largest", [bytes([255]) * 32, bytes(32)])
def test_extreme_secrets_come_back(largest: bytes) -> None:
    """The largest and the smallest 32-byte string are field elements like any other."""
    dealt = share(largest, 2, (1, 4096), bytes(32))
    assert combine(dealt) == largest


def test_no_shares_are_no_secret() -> None:
    """From no share at all nothing is recovered."""
    with pytest.raises(SharesInconsistent):
        combine({})


@pytest.mark.parametrize("word", ["<u4", "<u8"])
@given(KEYS, st.integers(0, 50), st.integers(0, 2**32))
def test_mask_added_and_taken_off_leaves_the_vector(word: str, key: bytes, entries: int, seed: int) -> None:
    """A stream added and subtracted again leaves every residue as it was."""
    vector = np.random.default_rng(seed).integers(0, 2**32, entries).astype(word)
    masked = vector.copy()
    stream = MaskStream()
    stream.apply(masked, key, 1)
    assert entries < 4 or not np.array_equal(masked, vector)
    stream.apply(masked, key, -1)
    assert np.array_equal(masked, vector)


def test_buffer_of_a_used_stream_leaves_no_trace() -> None:
    """A stream object that served other keys and lengths masks as a fresh one does."""
    used, fresh = MaskStream(), MaskStream()
    used.apply(np.zeros(50_000, dtype="<u8"), bytes([1]) * 32, 1)
    one, other = np.zeros(33_000, dtype="<u4"), np.zeros(33_000, dtype="<u4")
    used.apply(one, bytes([2]) * 32, -1)
    fresh.apply(other, bytes([2]) * 32, -1)
    assert np.array_equal(one, other)


@given(KEYS)
def test_keys_never_print(private: bytes) -> None:
    """Neither repr nor str of a key holds its private bytes in any spelling."""
    for key in (AgreementKey.from_bytes(private), SigningKey.from_bytes(private)):
        for shown in (repr(key), str(key)):
            assert private.hex() not in shown
            assert repr(private)[2:-1] not in shown


def test_numbers_are_fixed_width() -> None:
    """A member index takes 4 bytes; one that does not fit is refused."""
    assert number(4096) == b"\0\0\x10\0"
    with pytest.raises(OverflowError):
        number(2**32)


@given(KEYS, KEYS)
def test_derived_keys_depend_on_the_secret(secret: bytes, other: bytes) -> None:
    """Two secrets give one key only when they are equal."""
    same = derive(secret, bytes(32), "self mask") == derive(other, bytes(32), "self mask")
    assert same == (secret == other)


@pytest.mark.parametrize("count", [0, 1, 16, 32, 1000, 1 << 20])
def test_randomness_is_the_operating_systems(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Every byte is one that the system gave for this call: nothing is stretched from fewer, kept, or mixed in."""
    urandom, given = os.urandom, []

    def drawn(size: int) -> bytes:
        given.append(urandom(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", drawn)
    assert [OperatingSystem().bytes(count) for _ in range(3)] == given
    assert [len(each) for each in given] == [count] * 3


def test_sources_of_randomness() -> None:
    """The operating system never repeats itself; the seeded source repeats itself exactly, call by call."""
    system = OperatingSystem()
    assert len({system.bytes(32) for _ in range(100)}) == 100
    one, two = SeededRandomness(b"seed", TOKEN), SeededRandomness(b"seed", TOKEN)
    drawn = [one.bytes(size) for size in (1, 49, 32)]
    assert drawn == [two.bytes(size) for size in (1, 49, 32)]
    assert drawn[2] != one.bytes(32)
    assert SeededRandomness(b"other", TOKEN).bytes(32) != SeededRandomness(b"seed", TOKEN).bytes(32)


@pytest.mark.parametrize("token", [None, "TOKEN", object()])
def test_seeded_randomness_takes_the_token(token: object) -> None:
    """Who has not imported the token of the tests gets no predictable bytes."""
    with pytest.raises(TypeError, match="unsafe_for_tests"):
        SeededRandomness(b"seed", token)  # type: ignore[arg-type]
