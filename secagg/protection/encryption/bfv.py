"""Brakerski/Fan–Vercauteren encryption by Microsoft SEAL, through TenSEAL's `sealapi`, which is used nowhere else.

The bindings read and write paths and no bytes, so each object passes through an anonymous file in memory (Linux's
memfd): no key and no plaintext reaches a disk. What SEAL loads is laid out here from checked coefficients; only the
secret key is in SEAL's own bytes, which its holder wrote itself. SEAL seeds a fresh Blake2xb generator with 64 bytes of
/dev/urandom for every key and every encryption.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from secagg.errors import BadInput, ExitCode, SecaggError
from secagg.protection.encryption.parameters import HeParameters
from secagg.protection.encryption.polynomials import Polynomials, pack, unpack
from secagg.system.extras import extra

_HEADER = struct.Struct("<HBBBBHQ")  # magic, header size, version, compression (0: none), reserved, total size
_PAIR = 2


class NoisyCiphertext(SecaggError):
    """Raised instead of decrypting a ciphertext with more noise than a sum of honest ciphertexts can have."""

    exit_code = ExitCode.ABORTED


@dataclass(frozen=True)
class _BfvKey:
    """A key pair that never prints: the public half packed for the wire, the secret half in SEAL's bytes."""

    public: bytes
    secret: bytes = field(repr=False)


def check_machine() -> None:
    """Raise BadInput, with a remedy, on a machine that cannot run BFV, so that no session fails in the middle."""
    _seal()


def generate(parameters: HeParameters) -> _BfvKey:
    """Return a fresh BFV key pair, made with the operating system's randomness."""
    seal, context = _seal(), _context(parameters)
    generator = seal.KeyGenerator(context)
    public = seal.PublicKey()
    generator.create_public_key(public)
    primes = _all_primes(parameters)
    coefficients = _read(public.data(), _PAIR * len(primes) * parameters.degree)
    packed = pack(coefficients.reshape(1, _PAIR, len(primes), parameters.degree), parameters.entry_bytes)
    with _file() as (descriptor, path):
        generator.secret_key().save(path)
        return _BfvKey(packed, os.pread(descriptor, os.fstat(descriptor).st_size, 0))


def check_public_key(parameters: HeParameters, public: bytes) -> Polynomials:
    """Unpack a public key's polynomials. Raises MalformedMessage unless they are two with reduced coefficients."""
    return unpack(public, 1, _all_primes(parameters), parameters.degree, parameters.entry_bytes)


def encrypt_zero(parameters: HeParameters, public: bytes, number: int) -> Polynomials:
    """Return `number` fresh encryptions of zero, as coefficients, to which the caller adds scaled plaintexts.

    Adding Δ·x to the first polynomial makes an encryption of x. Raises MalformedMessage for a public key that is none.
    """
    seal, context = _seal(), _context(parameters)
    key, ciphertext = seal.PublicKey(), seal.Ciphertext()
    encrypted = np.empty((number, _PAIR, len(parameters.primes), parameters.degree), dtype=np.uint64)
    with _file() as (descriptor, path):
        polynomials = check_public_key(parameters, public)
        _load(key, context, descriptor, path, _pair_bytes(context.key_parms_id(), polynomials, is_ntt=True))
    encryptor = seal.Encryptor(context, key)
    for place in encrypted:
        encryptor.encrypt_zero(ciphertext)  # BFV keeps ciphertexts in coefficient form
        place[:] = _read(ciphertext, place.size).reshape(place.shape)
    return encrypted


def decrypt(parameters: HeParameters, secret: bytes, ciphertexts: Polynomials) -> Polynomials:
    """Decrypt checked ciphertexts into one array of uint64 coefficients, in order, below the plaintext modulus t.

    Raises NoisyCiphertext, before anything is decrypted, when one has less noise budget left than every sum of honest
    ciphertexts has.
    """
    seal, context = _seal(), _context(parameters)
    key, plaintext = seal.SecretKey(), seal.Plaintext()
    loaded = [seal.Ciphertext() for _ in ciphertexts]
    with _file() as (descriptor, path):
        _load(key, context, descriptor, path, secret)
        for ciphertext, polynomials in zip(loaded, ciphertexts, strict=True):
            _load(
                ciphertext, context, descriptor, path, _pair_bytes(context.first_parms_id(), polynomials, is_ntt=False)
            )
    decryptor = seal.Decryptor(context, key)
    if any(decryptor.invariant_noise_budget(each) < parameters.noise_budget for each in loaded):
        raise NoisyCiphertext("a ciphertext has more noise than a sum of honest ciphertexts")
    values = np.zeros((len(loaded), parameters.degree), dtype=np.uint64)
    for row, ciphertext in zip(values, loaded, strict=True):
        decryptor.decrypt(ciphertext, plaintext)
        size = plaintext.coeff_count()  # without leading zeros
        row[:size] = _read(plaintext, size)
    return values.reshape(-1)


def _seal() -> Any:
    """Return the bindings of SEAL, loaded when first needed."""
    if not hasattr(os, "memfd_create"):
        raise BadInput("the encrypted protection needs Linux", remedy="choose another protection")
    with extra("encrypted", "the encrypted protection"):
        import tenseal.sealapi  # type: ignore[import-untyped]

    return tenseal.sealapi


@cache
def _context(parameters: HeParameters) -> Any:
    seal = _seal()
    chosen = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
    chosen.set_poly_modulus_degree(parameters.degree)
    chosen.set_coeff_modulus([seal.Modulus(prime) for prime in _all_primes(parameters)])
    chosen.set_plain_modulus(1 << parameters.plain_bits)
    context = seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)
    if not context.parameters_set():
        raise BadInput(f"SEAL refuses the parameters: {context.parameters_error_message()}")
    return context


def _all_primes(parameters: HeParameters) -> tuple[int, ...]:
    return (*parameters.primes, parameters.special)


@contextmanager
def _file() -> Iterator[tuple[int, str]]:
    """Yield an anonymous file in memory, and a path that leads to it."""
    descriptor = os.memfd_create("secagg")
    try:
        yield descriptor, f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _load(target: Any, context: Any, descriptor: int, path: str, content: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)
    target.load(context, path)


def _read(source: Any, count: int) -> Polynomials:
    """Return the first `count` words of a SEAL object; its array hands them out faster than the object itself."""
    return np.fromiter(map(source.dyn_array().__getitem__, range(count)), dtype=np.uint64, count=count)


def _pair_bytes(parameter_id: list[int], polynomials: Polynomials, *, is_ntt: bool) -> bytes:
    """Return a ciphertext or public key as SEAL 4 lays it out: shape, scale 1, correction factor 1, coefficients."""
    primes, degree = polynomials.shape[-2:]
    shape = struct.pack("<4Q?QQQdQ", *parameter_id, is_ntt, _PAIR, degree, primes, 1.0, 1)
    coefficients = struct.pack("<Q", polynomials.size) + polynomials.astype("<u8", copy=False).tobytes()
    return _frame(shape + _frame(coefficients))


def _frame(content: bytes) -> bytes:
    version = _seal().Serialization.SEALHeader()
    fields = (version.magic, _HEADER.size, version.version_major, version.version_minor, 0, 0)
    return _HEADER.pack(*fields, _HEADER.size + len(content)) + content
