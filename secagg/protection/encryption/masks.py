"""The mask of one client over the ring of the plaintexts: uniform modulo t, from a key of its own.

t is a power of two, so that the keystream's words taken modulo t are uniform without rejection. The mask covers whole
ciphertexts, the padding of the last one too.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers, Residues
from secagg.protection.encryption.parameters import HeParameters
from secagg.protection.encryption.polynomials import Polynomials


def widen(parameters: HeParameters, residues: Residues) -> Polynomials:
    """Residues of a ring of at least t elements, reduced modulo t and padded with zeros to whole ciphertexts."""
    values = np.zeros(parameters.ciphertexts(len(residues)) * parameters.degree, dtype=np.uint64)
    np.bitwise_and(residues, _low_bits(parameters), out=values[: len(residues)], dtype=np.uint64)
    return values


def apply_mask(parameters: HeParameters, values: Polynomials, key: bytes, sign: Literal[1, -1]) -> None:
    """Values ← values + sign · mask(key) modulo t, in place."""
    MaskStream().apply(values, key, sign)
    np.bitwise_and(values, _low_bits(parameters), out=values)


def centre(parameters: HeParameters, values: Polynomials, length: int) -> Integers:
    """The signed integers −t/2 ≤ v < t/2 that the first `length` values stand for."""
    shift = np.int64(64 - parameters.plain_bits)
    return np.asarray((values[:length].view(np.int64) << shift) >> shift, dtype=np.int64)


def _low_bits(parameters: HeParameters) -> np.uint64:
    return np.uint64((1 << parameters.plain_bits) - 1)
