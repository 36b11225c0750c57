"""Liars about an exact census, for sessions and federations: what clients prove, what servers and helpers make of it.

Each takes a monkeypatch, by which the party at fault runs other code than the product's; all others run the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from secagg.crypto import bit_proofs
from secagg.protection import proven_bits
from secagg.protection.encryption import client as encryption_client
from secagg.protection.encryption import server as encryption_server
from secagg.protection.masking import client as masking_client
from secagg.protection.masking import server as masking_server
from secagg.protection.masking import unmasking
from secagg.protection.sharing import aggregator, release
from secagg.protection.sharing import client as sharing_client
from secagg.protection.sharing import server as sharing_server

PLUS = 2
"""What a liar adds to an entry: with it a bit keeps its parity, from which `true_bits` tells it again."""
Proven = Callable[[Any, list[int], Any], tuple[list[int], Any]]
"""From (context, entries, blindings) to the entries and blindings that are proven in their place."""


def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the server show what its own check of the census refuses."""
    for module in (unmasking, release, encryption_server):
        monkeypatch.setattr(module, "is_census_of", lambda *shown: True)


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have server and aggregators accept every proof."""
    for module in (masking_server, aggregator, sharing_server, encryption_server):
        monkeypatch.setattr(module, "check_proofs", lambda *shown: None)


def another_prover(monkeypatch: pytest.MonkeyPatch, liar: int, change: Proven) -> None:
    """Have the lying client prove other entries, or with other blindings."""

    def proven(context: Any, me: Any, entries: Any, blindings: Any) -> bytes:
        if me.member == liar and context.proves_bits:
            entries, blindings = change(context, list(entries), blindings)
        return proven_bits.prove_entries(context, me, entries, blindings)

    for module in (masking_client, sharing_client, encryption_client):
        monkeypatch.setattr(module, "prove_entries", proven)


def true_bits(context: Any, entries: list[int], blindings: Any) -> tuple[list[int], Any]:
    """The bits of a client that adds `PLUS` to its vector alone."""
    return [entry % PLUS for entry in entries], blindings


def changed_blindings(context: Any, entries: list[int], blindings: Any) -> tuple[list[int], Any]:
    """Other blindings than those that follow from the keys."""
    other = proven_bits.Blindings(context, blindings.packed)
    other.apply(bytes(32), 1)
    return entries, other


def proves_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients commit to an entry above 1 as it stands, and prove it by the equations of 1."""
    prove = bit_proofs.prove_bits

    def proven(bits: Any, blindings: Any, randomness: Any, binding: bytes) -> bytes:
        entries = np.array(list(bits))
        made = prove(np.minimum(entries, 1).tolist(), blindings, randomness, binding)
        parts = [made[start : start + bit_proofs.PROOF_BYTES] for start in range(0, len(made), bit_proofs.PROOF_BYTES)]
        for place in np.flatnonzero(entries > 1):
            for _ in range(entries[place] - 1):
                parts[place] = bit_proofs._add(parts[place][:32], bit_proofs._G) + parts[place][32:]
        return b"".join(parts)

    monkeypatch.setattr(proven_bits, "prove_bits", proven)


def with_more(context: Any, packed: bytes, place: int, more: int) -> bytes:
    """A packed vector with more in one entry, and unchanged what follows it: a sum share, or an opened sum."""
    words = context.ring.unpack(packed[: context.packed_bytes], context.length).copy()
    words[place] += words.dtype.type(more)
    return bytes(context.ring.pack(words)) + packed[context.packed_bytes :]


def exchanged(context: Any, proofs: bytes, clients: int, place: int) -> bytes:
    """Bytes that end with all clients' proofs, with those of the first of them in another one's place."""
    size = context.proof_bytes
    begun = len(proofs) - clients * size
    first, at = proofs[begun : begun + size], begun + place * size
    return proofs[:at] + first + proofs[at + size :]
