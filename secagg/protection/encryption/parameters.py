"""The choice of BFV parameters: the smallest ciphertexts that are secure and whose sum always decrypts.

Integers stand in the coefficients of a plaintext modulo t = 2^b, so that no batching prime is needed. All sets have
degree N = 4096: at 128 bits of security a smaller degree leaves no room for a data modulus, and a larger one has as
many bytes per value.

Security: Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption" (IACR CiC 1(4), 2025),
Table 5.2, uniform ternary secret, error σ = 3.19: log2 of the *whole* modulus, special prime included, is at most 106,
73 and 56 for 128, 192 and 256 bits at N = 4096. It is stricter than SEAL's own table (109, 75, 58; the HE standard of
2018).

Decryption: the bound is on the worst case, so that honest ciphertexts decrypt with certainty, whatever their
randomness. SEAL samples u and s ternary and errors |e| ≤ 21 (centred binomial of 42 bits; its clipped Gaussian stops at
19.2). Modulo q·p, a public-key encryption of zero has the phase −e·u + e₁ + e₂·s, at most 21·(2N + 1) in every
coefficient. Dropping the special prime p divides by p and rounds both polynomials: 21·(2N + 1)/p + 1/2 + N/2. With
21·(2N + 1) < p/2 that is less than N/2 + 1, and the phase is an integer: at most N/2. A client adds Δ·x, Δ = ⌊q/t⌋
(Fan & Vercauteren 2012, section 3), which is exact. The sum of n has the phase Δ·X + e, X = Σx and |e| ≤ n·N/2.
With r = q mod t, t·Δ = q − r, so that t times the phase is t·e − r·X away from q·X. t > 4·|X|: less than
t·(n·N/2 + r/4). SEAL rounds correctly when that is below q·(1/2 − k/γ), for k primes and γ > 2^60 (Bajard et al. 2016,
Lemma 2). Hence primes with a small r.

t is twice what centred residues need. An opening that is wrong is uniform modulo t, and each of its entries passes for
one of the sum with probability (2·largest + 1)/t < 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from secagg.crypto.labels import digest
from secagg.errors import BadInput, CapacityExceeded

DEGREE = 4096
LIMITS = {128: 106, 192: 73, 256: 56}  # security in bits → largest log2 of the whole modulus at N = 4096
LARGEST_ERROR = 21
MOST_PLAIN_BITS = 59  # SEAL takes plaintext moduli below 2^60

# The special prime is the largest of 25 bits that is 1 modulo 2N. One data prime of k = 40, 48, 56, 60 bits: the
# largest that is 1 modulo 2^(k−14), hence modulo every t that it has room for. Two primes, 1 modulo 2N each: of all
# pairs of 32 bits the one with room for most clients at t = 2^45, of all pairs of 40 bits the one at t = 2^59.
SPECIAL = 33538049
DATA = (
    (1098706321409,),
    (280684702728193,),
    (72031205758861313,),
    (1149754911118852097,),
    (3327385601, 3450904577),
    (944098885633, 987025801217),
)


@dataclass(frozen=True)
class HeParameters:
    """BFV parameters: degree N, primes of modulus q, special prime p, plaintext modulus t in bits, most summands n."""

    degree: int
    primes: tuple[int, ...]
    special: int
    plain_bits: int
    summands: int

    @property
    def modulus(self) -> int:
        """The ciphertext modulus q, the product of the data primes."""
        return math.prod(self.primes)

    @property
    def modulus_bits(self) -> int:
        """Log2 of the whole modulus q·p (data modulus times special prime), rounded up; security depends on it."""
        return (self.modulus * self.special).bit_length()

    @property
    def security(self) -> int:
        """Bits of security (0, 128, 192 or 256) by Table 5.2 of the HE security guidelines (Bossuat et al. 2025)."""
        return max((level for level, limit in LIMITS.items() if self.modulus_bits <= limit), default=0)

    @property
    def entry_bytes(self) -> int:
        """Size in bytes of one packed coefficient modulo one prime."""
        return -(-max(self.primes).bit_length() // 8)

    @property
    def bytes_per_value(self) -> int:
        """Ciphertext bytes for each encrypted value: one coefficient of two polynomials, modulo every data prime."""
        return 2 * len(self.primes) * self.entry_bytes

    @property
    def scale(self) -> int:
        """The factor Δ = ⌊q/t⌋ of encrypted integers: ciphertext modulus q over plaintext modulus t."""
        return self.modulus >> self.plain_bits

    @property
    def remainder(self) -> int:
        """The remainder r = q mod t = q − t·Δ of the ciphertext modulus q by the plaintext modulus t."""
        return self.modulus - (self.scale << self.plain_bits)

    @property
    def noise(self) -> int:
        """A worst-case bound on the decryption noise in a sum of n honest ciphertexts.

        It bounds |t·(phase of that sum) − q·X| / t, for every plaintext sum |X| < t/4.
        """
        return self.summands * (self.degree // 2) - (-self.remainder // 4)

    @property
    def always_decrypts(self) -> bool:
        """Whether every sum of up to `summands` honest ciphertexts decrypts, whatever their randomness."""
        small_errors = 2 * LARGEST_ERROR * (2 * self.degree + 1) < self.special
        return small_errors and (self.noise << (self.plain_bits + 1)) < self.modulus - (self.modulus >> 50)

    @property
    def noise_budget(self) -> int:
        """The least noise budget, in bits as SEAL counts them, that a sum of honest ciphertexts has left."""
        return max(0, self.modulus.bit_length() - (self.noise << self.plain_bits).bit_length() - 1)

    def ciphertexts(self, length: int) -> int:
        """Return the number of ciphertexts that hold `length` values."""
        return -(-length // self.degree)

    def packed_bytes(self, length: int) -> int:
        """Return the size in bytes of the packed ciphertexts of `length` values, which depends on nothing else."""
        return self.ciphertexts(length) * self.degree * self.bytes_per_value

    def digest(self) -> bytes:
        """Return a SHA-256 digest that identifies these parameters."""
        numbers = (self.degree, self.special, self.plain_bits, self.summands, *self.primes)
        return digest("BFV parameters", *(each.to_bytes(8, "big") for each in numbers))

    def explain(self) -> str:
        """Return one line for people with the parameters' figures, which can be checked by hand."""
        return (
            f"BFV of degree {self.degree} over {self.plain_bits}-bit integers, one bit to spare, "
            f"{self.bytes_per_value} bytes per value: {self.security}-bit secure, for its modulus has "
            f"{self.modulus_bits} of {LIMITS[self.security]} bits; {self.summands} honest ciphertexts always decrypt "
            f"(failure probability 0), for 2^{self.plain_bits + 1} · {self.noise} < q = 2^{math.log2(self.modulus):.1f}"
        )


def for_capacity(largest: int, summands: int, security: int = 128) -> HeParameters:
    """Return the smallest parameters for sums of up to `summands` vectors with every |entry of the sum| ≤ `largest`.

    2^plain_bits > 4·largest: centred residues are exact, with one bit to spare. Raises CapacityExceeded when no set has
    room, BadInput when none is so secure.
    """
    plain_bits = largest.bit_length() + 2
    sets = [HeParameters(DEGREE, primes, SPECIAL, plain_bits, summands) for primes in DATA]
    secure = [found for found in sets if found.security >= security]
    if not secure:
        raise BadInput(f"no ciphertexts here have {security} bits of security", remedy="ask for 128 or 192")
    for found in secure:
        if plain_bits <= MOST_PLAIN_BITS and found.always_decrypts:
            return found
    room = max(
        bits
        for found in secure
        for bits in range(MOST_PLAIN_BITS + 1)
        if replace(found, plain_bits=bits).always_decrypts
    )
    raise CapacityExceeded(
        f"the plaintext of a sum of {summands} ciphertexts at {security} bits of security (bits)",
        plain_bits,
        room,
        remedy="lower max_records, clients or levels",
    )
