"""Ciphertexts and public keys as arrays: packed, checked and added without the homomorphic library.

An array of polynomials is uint64 of shape (number, 2, primes, N) with every coefficient below its prime. What comes
from elsewhere enters only through `unpack`, so that no foreign byte reaches the library's own loader.

A client's additions to its encryptions of zero: Δ·x, and a mask uniform modulo q that the key holder can take off.

A mask is uniform modulo each prime of q, hence modulo q, and covers whole ciphertexts, the padding of the last one too.
Each prime has a key, and a residue is the next 64-bit word of that key's stream that lies below the largest multiple of
the prime, reduced: exactly uniform, by rejection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg.crypto.stream import MaskStream
from secagg.encoding import Integers, Ring
from secagg.errors import MalformedMessage
from secagg.protection.encryption.parameters import HeParameters

Polynomials = NDArray[np.uint64]


def pack(polynomials: Polynomials, entry_bytes: int) -> bytes:
    """Serialise polynomials: all coefficients in order, `entry_bytes` little-endian bytes each."""
    return Ring(8 * entry_bytes).pack(polynomials.reshape(-1))


def unpack(packed: bytes, number: int, primes: Sequence[int], degree: int, entry_bytes: int) -> Polynomials:
    """Undo `pack`: return `number` pairs of polynomials, with coefficients modulo each prime.

    Raises MalformedMessage for another length, a coefficient that is not below its prime, and a pair whose second
    polynomial is zero: anyone could read such a ciphertext.
    """
    shape = (number, 2, len(primes), degree)
    words = Ring(8 * entry_bytes).unpack(packed, number * 2 * len(primes) * degree)
    polynomials: Polynomials = words.astype(np.uint64, copy=False).reshape(shape)
    if (polynomials >= _columns(primes)).any():
        raise MalformedMessage("ciphertext", "a coefficient is not reduced")
    if not polynomials[:, 1].any(axis=(1, 2)).all():
        raise MalformedMessage("ciphertext", "a ciphertext is transparent")
    return polynomials


def add(total: Polynomials, other: Polynomials, primes: Sequence[int]) -> None:
    """Add `other` to `total` in place, with coefficients modulo each prime."""
    np.add(total, other, out=total)  # primes stay below 2^61
    np.minimum(total, total - _columns(primes), out=total)  # below its prime it wraps, to far above


def subtract(total: Polynomials, other: Polynomials, primes: Sequence[int]) -> None:
    """Subtract `other` from `total` in place, with coefficients modulo each prime."""
    np.subtract(total, other, out=total)  # wraps below 0
    np.minimum(total, total + _columns(primes), out=total)


def multiples(integers: Integers, factor: int, primes: Sequence[int], degree: int) -> Polynomials:
    """Return `factor` times the integers modulo each prime, as polynomials of shape (number, primes, degree).

    The quotient comes from double precision and is off by one at most, so that the rest is exact in words that wrap and
    lies between −prime and 2·prime (Shoup's NTL, MulMod). That takes integers below 2^50 in size, or primes below 2^50.
    """
    rows = np.empty((len(primes), len(integers)), dtype=np.uint64)
    for row, prime in zip(rows, primes, strict=True):
        small, residue, modulus = np.fmod(integers, prime), factor % prime, np.uint64(prime)
        quotient = np.floor(small * (residue / prime)).astype(np.int64)
        rest = (small * np.int64(residue) - quotient * np.int64(prime)).view(np.uint64)
        rest = np.minimum(rest, rest + modulus)
        np.minimum(rest, rest - modulus, out=row)
    return rows.reshape(len(primes), -1, degree).transpose(1, 0, 2)


def _columns(primes: Sequence[int]) -> Polynomials:
    return np.array(primes, dtype=np.uint64).reshape(-1, 1)


def scaled(parameters: HeParameters, integers: Integers) -> Polynomials:
    """Return the integers, times Δ = ⌊q/t⌋, modulo each prime: zero-padded polynomials (number, primes, degree).

    Every |x| < t/4, and x is not reduced modulo t.
    """
    padded = np.zeros(parameters.ciphertexts(len(integers)) * parameters.degree, dtype=np.int64)
    padded[: len(integers)] = integers
    return multiples(padded, parameters.scale, parameters.primes, parameters.degree)


def mask_of(parameters: HeParameters, number: int, keys: Sequence[bytes]) -> Polynomials:
    """Return the mask of `number` ciphertexts, of shape (number, primes, degree), from one key for each prime."""
    rows = [
        _residues(key, prime, number * parameters.degree) for prime, key in zip(parameters.primes, keys, strict=True)
    ]
    return np.stack(rows).reshape(len(rows), number, parameters.degree).transpose(1, 0, 2)


def centre(parameters: HeParameters, values: Polynomials) -> Integers:
    """Convert values modulo the plaintext modulus t to the signed integers −t/2 ≤ v < t/2."""
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
