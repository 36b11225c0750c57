"""A census's signed proofs, and the sum of the blindings, as protections use them."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from secagg.crypto import bit_proofs
from secagg.crypto.bit_proofs import PROOF_BYTES, scalars_of
from secagg.crypto.signatures import SIGNATURE_BYTES
from secagg.crypto.stream import keystream
from secagg.encoding import Ring
from secagg.errors import BadInput, ProtocolViolation
from secagg.plan_facts import facts
from secagg.protection import protection_named
from secagg.protection.encryption import server as encryption_server
from secagg.protection.interface import SessionContext
from secagg.protection.masking import tags, unmasking
from secagg.protection.messages import Attachment
from secagg.protection.proven_bits import (
    Blindings,
    check_census,
    check_proofs,
    is_census_of,
    prove_entries,
    split_proofs,
)
from tests.protection.rehearsal import context_for, party
from tests.worlds.setups import make_setup

CONTEXT = context_for(3, dropouts=0, length=5, proves_bits=True)
ENTRIES = {1: (0, 1, 1, 0, 1), 2: (0, 1, 0, 1, 1), 3: (0, 1, 0, 0, 1)}
CENSUS = np.array([0, 3, 1, 1, 3])
KEYS = {member: bytes([member]) * 32 for member in ENTRIES}
CULPRIT = 7


def blindings_of(*keys: bytes) -> Blindings:
    """The sum of the blindings of these keys."""
    made = Blindings(CONTEXT)
    for key in keys:
        made.apply(key, 1)
    return made


@cache
def proofs_of(member: int) -> bytes:
    """A client's proofs."""
    return prove_entries(CONTEXT, party(member), ENTRIES[member], blindings_of(KEYS[member]))


def everybody() -> dict[int, bytes]:
    return {member: proofs_of(member) for member in ENTRIES}


def test_census_of_proven_entries_is_accepted() -> None:
    """The sum of all entries, with the sum of all blindings, passes; each client's proofs have the stated size."""
    check_census(CONTEXT, everybody(), CENSUS, blindings_of(*KEYS.values()), CULPRIT)
    assert {len(each) for each in everybody().values()} == {CONTEXT.proof_bytes}
    assert CONTEXT.proof_bytes == SIGNATURE_BYTES + 5 * PROOF_BYTES
    assert split_proofs(CONTEXT, (1, 2, 3), b"".join(everybody().values())) == everybody()


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("more", [-1, 1])
def test_any_other_census_is_refused(place: int, more: int) -> None:
    """One client more or less in any place is another sum, whatever the place, below 0 and above all clients too."""
    told = CENSUS + more * (np.arange(5) == place)
    with pytest.raises(ProtocolViolation, match="not the sum of the entries that clients proved") as caught:
        check_census(CONTEXT, everybody(), told, blindings_of(*KEYS.values()), CULPRIT)
    assert caught.value.culprit == CULPRIT


def test_census_of_other_clients_or_blindings_is_refused() -> None:
    """A client less, one twice, or blindings that lack a client's are not those of the sum."""
    true, of_all = everybody(), blindings_of(*KEYS.values())
    two = {1: true[1], 2: true[2]}
    assert is_census_of(CONTEXT, true.values(), CENSUS, of_all)
    assert not is_census_of(CONTEXT, two.values(), CENSUS, of_all)
    assert not is_census_of(CONTEXT, (true[1], true[1], true[2]), CENSUS, of_all)
    assert not is_census_of(CONTEXT, true.values(), CENSUS, blindings_of(KEYS[1], KEYS[2]))
    assert not is_census_of(CONTEXT, true.values(), CENSUS, Blindings(CONTEXT, bytes(CONTEXT.blinding_bytes)))


LIES: dict[str, Callable[[bytes], bytes]] = {
    "without a signature": lambda proofs: bytes(SIGNATURE_BYTES) + proofs[SIGNATURE_BYTES:],
    "signed by another": lambda proofs: proofs_of(2)[:SIGNATURE_BYTES] + proofs[SIGNATURE_BYTES:],
    "of another client": lambda proofs: proofs_of(2),
    "cut off": lambda proofs: proofs[:-1],
    "with a byte more": lambda proofs: proofs + b"\0",
    "of an entry less": lambda proofs: proofs[:-PROOF_BYTES],
    "of an entry more": lambda proofs: proofs + proofs[-PROOF_BYTES:],
    "empty": lambda proofs: b"",
}


@pytest.mark.parametrize("name", LIES)
def test_proofs_that_the_client_did_not_sign_are_refused(name: str) -> None:
    """The signature is the client's, over exactly these proofs; who shows others is named."""
    with pytest.raises(ProtocolViolation, match="proofs that member 1 did not sign for this census") as caught:
        check_proofs(CONTEXT, 1, LIES[name](proofs_of(1)), CULPRIT)
    assert caught.value.culprit == CULPRIT


@pytest.mark.parametrize("fact", ["round_digest", "session_id", "roster"])
def test_proofs_of_another_round_are_refused(fact: str) -> None:
    """Proofs are for one round of one plan and roster."""
    with pytest.raises(ProtocolViolation, match="did not sign"):
        check_proofs(replace(CONTEXT, **{fact: b"another".ljust(32, b".")}), 1, proofs_of(1), CULPRIT)


def test_signed_proofs_that_do_not_hold_are_refused() -> None:
    """A client that signs another's proofs, or its own in another order, has proven nothing."""
    mine, others = proofs_of(1)[SIGNATURE_BYTES:], proofs_of(2)[SIGNATURE_BYTES:]
    for proofs in (others, mine[PROOF_BYTES:] + mine[:PROOF_BYTES]):
        parts = (CONTEXT.round_digest, CONTEXT.session_id, CONTEXT.roster, (1).to_bytes(4, "big"), proofs)
        signed = party(1).identity.sign("proven bits", *parts) + proofs
        with pytest.raises(ProtocolViolation, match="a census entry of member 1 that is not proven to be 0 or 1"):
            check_proofs(CONTEXT, 1, signed, CULPRIT)


def test_stranger_proves_nothing() -> None:
    """A client that is not in the round has no proofs there."""
    with pytest.raises(ProtocolViolation, match="member 9 did not sign"):
        check_proofs(CONTEXT, 9, proofs_of(1), CULPRIT)


def test_blindings_come_after_the_mask_of_the_vector() -> None:
    """Blindings begin at the first whole block after the vector's mask: no part of a keystream is used twice."""
    whole = keystream(KEYS[1], 32 + 5 * 64, 0)
    assert blindings_of(KEYS[1]).scalars == scalars_of(whole[32:])
    wide = replace(CONTEXT, ring=Ring(64))
    made = Blindings(wide)
    made.apply(KEYS[1], 1)
    assert made.scalars == scalars_of(keystream(KEYS[1], 48 + 5 * 64, 0)[48:])


def test_opposite_signs_cancel() -> None:
    """What one of a pair adds the other takes off."""
    made = blindings_of(KEYS[1], KEYS[2])
    made.apply(KEYS[2], -1)
    assert made.packed == blindings_of(KEYS[1]).packed


@pytest.mark.parametrize("entry", [2, -1, 2**32 - 1])
def test_client_proves_no_entry_that_is_no_bit(entry: int) -> None:
    """An honest client's entry of 2 is an error of its method, before anything leaves."""
    with pytest.raises(BadInput, match="neither 0 nor 1"):
        prove_entries(CONTEXT, party(1), (0, 1, entry, 0, 1), blindings_of(KEYS[1]))


def test_other_sums_have_no_proofs() -> None:
    """Where nothing is proven nothing is added to an upload, and nothing is checked."""
    plain: SessionContext = replace(CONTEXT, proves_bits=False)
    blindings: Any = Blindings(plain)
    blindings.apply(KEYS[1], 1)
    assert (plain.proof_bytes, plain.blinding_bytes, blindings.packed) == (0, 0, b"")
    assert prove_entries(plain, party(1), (5, 6, 7, 8, 9), blindings) == b""
    check_proofs(plain, 1, b"", CULPRIT)
    assert is_census_of(plain, (), CENSUS, blindings)


RELEASES = {"masked": unmasking.check_lengths, "encrypted": encryption_server.check_lengths}


@pytest.mark.parametrize("name", RELEASES)
def test_proofs_in_a_release_have_the_length_of_the_plan(name: str) -> None:
    """Before anything is downloaded the file of all proofs has the length that clients and entries give."""
    size, of_server = CONTEXT.proof_bytes * 3, CONTEXT.blinding_bytes * (name == "encrypted")
    packed = tags.packed_size(CONTEXT) if name == "masked" else CONTEXT.packed_bytes
    others = (100,) * (name == "masked")
    check = RELEASES[name]
    check(CONTEXT, (1, 2, 3), [Attachment(each, bytes(32)) for each in (packed, *others, size + of_server)])
    for wrong in (size + of_server - 1, size + of_server + 1, CONTEXT.proof_bytes * 2 + of_server, 1 << 20):
        with pytest.raises(ProtocolViolation, match="another length than the plan's"):
            check(CONTEXT, (1, 2, 3), [Attachment(each, bytes(32)) for each in (packed, *others, wrong)])
    with pytest.raises(ProtocolViolation, match="another length than the plan's"):
        check(CONTEXT, (1, 2, 3), [Attachment(each, bytes(32)) for each in (packed, *others)])


def test_plan_whose_proofs_are_too_long_to_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs of all clients count for the largest file of a plan."""
    exact = {"epsilon": math.inf, "delta": None, "adjacency": None, "radius": 1.0}
    context = make_setup(4, class_gate=1, dropouts=0, colluders=0, **exact).context
    monkeypatch.setattr(facts, "MAX_ATTACHED", context.packed_bytes + context.blinding_bytes + 4 * context.proof_bytes)
    make_setup(4, class_gate=1, dropouts=0, colluders=0, **exact)
    monkeypatch.setattr(facts, "MAX_ATTACHED", context.packed_bytes + 4 * context.proof_bytes)
    with pytest.raises(BadInput, match="too long to be shown"):
        make_setup(4, class_gate=1, dropouts=0, colluders=0, **exact)


def test_library_with_a_broken_group_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A libsodium that takes G + (0, −1) for a point of the group (CVE-2025-69277) starts no party."""
    for protection in ("masked", "shared", "encrypted"):
        protection_named(protection).check_machine()
    monkeypatch.setattr(bit_proofs, "_is_point", lambda point: True)
    for protection in ("masked", "shared", "encrypted"):
        with pytest.raises(BadInput, match="CVE-2025-69277"):
            protection_named(protection).check_machine()
