"""What a client adds to its encryptions of zero, and what binds it, against an independent computation."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from secagg.encoding import Ring
from secagg.protection.encryption import derivations as bind
from secagg.protection.encryption.polynomials import mask_of, scaled
from tests.protection.encryption.sessions import context_for
from tests.vectors.files import load, named

VECTOR = load("encryption")
SEED = bytes.fromhex(VECTOR["seed"])


def context_of(case):
    """A session of the vector's plan and parameters."""
    given = {name: bytes.fromhex(value) for name, value in VECTOR["inputs"].items()}
    identities = dict.fromkeys(range(1, case["parameters"]["summands"] + 1), bytes(32))
    largest = 2 ** (case["parameters"]["plain_bits"] - 2) - 1
    seconds = {len(identities) + 1: bytes(32)}
    return replace(
        context_for(), **given, identities=identities, helpers=seconds, largest=largest, ring=Ring(64), length=6
    )


@pytest.mark.parametrize("case", VECTOR["cases"], ids=named)
def test_masks_and_scaled_integers_are_those_of_the_vector(case):
    """Parameters, binding, keys, every residue of a mask and Δ·x modulo each prime were computed independently."""
    context = context_of(case)
    parameters = context.parameters
    assert [str(prime) for prime in parameters.primes] == case["primes"]
    assert {name: getattr(parameters, name) for name in case["parameters"]} == case["parameters"]
    assert (parameters.digest().hex(), context.binding.hex()) == (case["digest"], case["binding"])
    assert bind.seed_address(context, VECTOR["member"]).info.hex() == case["seed_info"]
    keys = bind.mask_keys(context, SEED, VECTOR["member"])
    assert [each.hex() for each in keys] == case["mask_keys"]
    mask = mask_of(parameters, 1, keys)[0]
    assert [[str(value) for value in row[:4].tolist()] for row in mask] == case["mask_begins"]
    assert [hashlib.sha256(row.astype("<u8").tobytes()).hexdigest() for row in mask] == case["mask_sha256"]
    found = scaled(parameters, np.array([int(value) for value in case["integers"]], dtype=np.int64))[0]
    assert [[str(value) for value in row[:6].tolist()] for row in found] == case["scaled"]


def test_every_mask_key_is_of_one_use():
    """Another session, member, prime or seed gives other keys."""
    one, other = context_of(VECTOR["cases"][0]), context_of(VECTOR["cases"][2])
    again = replace(other, session_id=bytes(32))
    keys = [
        key
        for context in (one, other, again)
        for member in (1, 2)
        for seed in (SEED, bytes(32))
        for key in bind.mask_keys(context, seed, member)
    ]
    assert len(set(keys)) == len(keys) == 4 * (1 + 2 + 2)
