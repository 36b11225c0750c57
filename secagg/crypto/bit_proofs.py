"""Commitments to bits, and zero-knowledge proofs that each is to 0 or 1.

After Pedersen 1991 (CRYPTO) and Cramer, Damgård & Schoenmakers 1994 (CRYPTO), the proof that one of two statements
holds. The group is that of prime order in edwards25519, written additively: C = b·G + r·H commits to the bit b with the
blinding r. H is the base point, G a point by hash, so that nobody knows its logarithm to H. A proof that b is 0 or 1
joins Schnorr's proofs of C = r·H and of C − G = r·H by "or", made non-interactive after Fiat & Shamir 1986. Whoever
opens the sum of commitments to another value than the sum of the bits knows that logarithm.

With u₀, u₁, e uniform, A₀ = u₀·H − b·e·G and A₁ = u₁·H + (1 − b)·e·G, c = hash(C, A₀, A₁), e₀ = c − e, or e where b is
1, e₁ = c − e₀, z_s = u_s + e_s·r. This is the prover of the paper in a form without a branch, as u_s is uniform on
either side. It holds that z₀·H = A₀ + e₀·C and z₁·H = A₁ + e₁·(C − G). Arithmetic on secrets is libsodium's, in
constant time; both values of a choice are computed, and bytes of one are taken by a mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from nacl.bindings import crypto_core_ed25519_add as _add
from nacl.bindings import crypto_core_ed25519_from_uniform as _map_to_point
from nacl.bindings import crypto_core_ed25519_is_valid_point as _is_point
from nacl.bindings import crypto_core_ed25519_scalar_add as _plus
from nacl.bindings import crypto_core_ed25519_scalar_mul as _times
from nacl.bindings import crypto_core_ed25519_scalar_reduce as _reduce
from nacl.bindings import crypto_core_ed25519_scalar_sub as _minus
from nacl.bindings import crypto_core_ed25519_sub as _subtract
from nacl.bindings import crypto_scalarmult_ed25519_base_noclamp as _multiple_of_h
from nacl.bindings import crypto_scalarmult_ed25519_noclamp as _multiple
from nacl.exceptions import CryptoError

from secagg.crypto.labels import digest, labelled, number
from secagg.errors import BadInput
from secagg.randomness import RandomSource

ORDER_OF_FIELD = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
SCALAR_BYTES = 32
WIDE_BYTES = 64
"""Uniform bytes that give a scalar with a bias below 2⁻²⁵⁹."""
PROOF_BYTES = 6 * SCALAR_BYTES
"""Bytes of one commitment and its proof: C, A₀, A₁, e₀, z₀, z₁."""
CHECK_SECONDS = 0.002
"""Seconds that a slow machine takes to check one commitment's proof: five times as long as measured."""
ZERO = bytes(SCALAR_BYTES)
_G = _map_to_point(digest("bit proof generator"))
_NEUTRAL = _subtract(_G, _G)


def check_library() -> None:
    """Raise BadInput, with the remedy, if libsodium takes other points for points of the group (CVE-2025-69277)."""
    of_order_2 = (ORDER_OF_FIELD - 1).to_bytes(SCALAR_BYTES, "little")  # (0, −1)
    if _is_point(_add(_G, of_order_2)):
        raise BadInput("PyNaCl's libsodium has the fault CVE-2025-69277", remedy="pip install -U 'pynacl>=1.6.2'")


def scalars_of(uniform: bytes) -> list[bytes]:
    """Return a scalar for each 64 uniform bytes."""
    places = range(0, len(uniform), WIDE_BYTES)
    return [_reduce(uniform[start : start + WIDE_BYTES]) for start in places]


def add_scalars(ones: Sequence[bytes], others: Sequence[bytes], sign: int = 1) -> list[bytes]:
    """Return one + sign·other for each pair of scalars, modulo the group's order."""
    combine = _plus if sign == 1 else _minus
    return [combine(one, other) for one, other in zip(ones, others, strict=True)]


def is_scalar(encoded: bytes) -> bool:
    """Return whether 32 bytes are the one encoding of a scalar: a little-endian number below the group's order."""
    return len(encoded) == SCALAR_BYTES and int.from_bytes(encoded, "little") < ORDER


def prove_bits(bits: Iterable[int], blindings: Sequence[bytes], randomness: RandomSource, binding: bytes) -> bytes:
    """Return a commitment to each bit with its blinding, and a proof, `PROOF_BYTES` each; `binding` names the prover.

    In another's name, or in another place, it is no proof. Raises BadInput for what is no bit.
    """
    proofs = []
    for place, (bit, r) in enumerate(zip(bits, blindings, strict=True)):
        if bit not in (0, 1):
            raise BadInput("an entry that is to be proven a bit is neither 0 nor 1")
        u0, u1, e = scalars_of(randomness.bytes(3 * WIDE_BYTES))
        of_g = _multiple(e, _G)
        c = _add(_multiple_of_h(r), _choose(bit, _G, _NEUTRAL))
        a0 = _add(_multiple_of_h(u0), _choose(bit, _subtract(_NEUTRAL, of_g), _NEUTRAL))
        a1 = _add(_multiple_of_h(u1), _choose(bit, _NEUTRAL, of_g))
        challenge = _challenge(binding, place, c, a0, a1)
        e0 = _choose(bit, e, _minus(challenge, e))
        e1 = _minus(challenge, e0)
        proofs += [c, a0, a1, e0, _plus(u0, _times(e0, r)), _plus(u1, _times(e1, r))]
    return b"".join(proofs)


def are_bits(proofs: bytes, binding: bytes) -> bool:
    """Return whether each commitment in `proofs` is proven to be to 0 or 1, by the prover that `binding` names.

    All equations are checked as one, with weights that a hash of all proofs gives (Bellare, Garay & Rabin 1998,
    EUROCRYPT, section 3.3): a false one passes with probability 2⁻²⁵² for each trial.
    """
    if not proofs or len(proofs) % PROOF_BYTES:
        return False
    seed, of_h, of_g, points = digest("bit proof weights", binding, proofs), ZERO, ZERO, _NEUTRAL
    try:  # the library refuses points that are not of this group, or not in their one encoding, and multiples of 0
        for place in range(len(proofs) // PROOF_BYTES):
            c, a0, a1, e0, z0, z1 = _parts_of(proofs, place)
            if not all(map(is_scalar, (e0, z0, z1))):
                return False
            e1 = _minus(_challenge(binding, place, c, a0, a1), e0)
            w0, w1 = scalars_of(b"".join(hashlib.sha512(seed + number(2 * place + side)).digest() for side in (0, 1)))
            of_h = _plus(of_h, _plus(_times(w0, z0), _times(w1, z1)))
            of_g = _plus(of_g, _times(w1, e1))
            for scalar, point in ((w0, a0), (w1, a1), (_plus(_times(w0, e0), _times(w1, e1)), c)):
                points = _add(points, _multiple(scalar, point))
        return _add(_multiple_of_h(of_h), _multiple(of_g, _G)) == points
    except CryptoError:
        return False


def add_up_to(all_proofs: Sequence[bytes], values: Sequence[int], blindings: Sequence[bytes]) -> bool:
    """Return whether in each place the commitments in `all_proofs` add up to the one to this value with this blinding.

    `all_proofs` are those of several provers, each accepted by `are_bits`.
    """
    for place, (value, blinding) in enumerate(zip(values, blindings, strict=True)):
        if not (0 <= value <= len(all_proofs) and is_scalar(blinding) and blinding != ZERO):
            return False
        opened = _multiple_of_h(blinding)
        if value:
            opened = _add(opened, _multiple(value.to_bytes(SCALAR_BYTES, "little"), _G))
        total = _NEUTRAL
        for proofs in all_proofs:
            total = _add(total, _parts_of(proofs, place)[0])
        if total != opened:
            return False
    return True


def _parts_of(proofs: bytes, place: int) -> list[bytes]:
    begun = place * PROOF_BYTES
    return [proofs[start : start + SCALAR_BYTES] for start in range(begun, begun + PROOF_BYTES, SCALAR_BYTES)]


def _choose(bit: int, of_one: bytes, of_zero: bytes) -> bytes:
    """Return `of_one` for the bit 1, `of_zero` for 0, without a branch or an index that depends on it."""
    mask = -bit & 255
    return bytes(zero ^ (mask & (one ^ zero)) for one, zero in zip(of_one, of_zero, strict=True))


def _challenge(binding: bytes, place: int, *points: bytes) -> bytes:
    return _reduce(hashlib.sha512(labelled("bit proof", binding, number(place), *points)).digest())
