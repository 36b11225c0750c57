"""A client's additions to its encryptions of zero: Δ·x, and a mask uniform modulo q that the key holder can take off.

A mask is uniform modulo each prime of q, hence modulo q, and covers whole ciphertexts, the padding of the last one too.
Each prime has a key, and a residue is the next 64-bit word of that key's stream that lies below the largest multiple of
the prime, reduced: exactly uniform, by rejection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers
from secagg.protection.encryption.parameters import HeParameters
from secagg.protection.encryption.polynomials import Polynomials, multiples


def scaled(parameters: HeParameters, integers: Integers) -> Polynomials:
    """Δ·x modulo each prime, (number, primes, N), zeros after the last integer; |x| < t/4, not reduced modulo t."""
    padded = np.zeros(parameters.ciphertexts(len(integers)) * parameters.degree, dtype=np.int64)
    padded[: len(integers)] = integers
    return multiples(padded, parameters.scale, parameters.primes, parameters.degree)


def mask_of(parameters: HeParameters, number: int, keys: Sequence[bytes]) -> Polynomials:
    """The mask of `number` ciphertexts, (number, primes, N), from one key for each prime."""
    rows = [
        _residues(key, prime, number * parameters.degree) for prime, key in zip(parameters.primes, keys, strict=True)
    ]
    return np.stack(rows).reshape(len(rows), number, parameters.degree).transpose(1, 0, 2)


def centre(parameters: HeParameters, values: Polynomials) -> Integers:
    """The signed integers −t/2 ≤ v < t/2 that values below t stand for."""
    shift = np.int64(64 - parameters.plain_bits)
    return np.asarray((values.view(np.int64) << shift) >> shift, dtype=np.int64)


def _residues(key: bytes, prime: int, count: int) -> Polynomials:
    size, stream = count + count // 64 + 64, MaskStream()
    while True:
        words = np.zeros(size, dtype=np.uint64)
        stream.apply(words, key, 1)
        kept = words[words < np.uint64((1 << 64) // prime * prime)]
        if len(kept) >= count:
            return np.asarray(kept[:count] % np.uint64(prime), dtype=np.uint64)
        size *= 2
