"""BFV parameters by rule: the smallest ciphertexts that are secure and whose sum always decrypts.

Integers stand in the coefficients of a plaintext modulo t = 2^b, so that sums, masks and residues share one ring and no
batching prime is needed. All sets have degree N = 4096: at 128 bits of security a smaller degree leaves no room for
a data modulus, and a larger one has as many bytes per value.

Security: Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption" (IACR CiC 1(4), 2025),
Table 5.2, uniform ternary secret, error σ = 3.19: log2 of the *whole* modulus, special prime included, is at most 106,
73 and 56 for 128, 192 and 256 bits at N = 4096. It is stricter than SEAL's own table (109, 75, 58; the HE standard of
2018).

Decryption: the bound is on the worst case, so that honest ciphertexts decrypt with certainty, whatever their
randomness. SEAL samples u and s ternary and errors |e| ≤ 21 (centred binomial of 42 bits; its clipped Gaussian stops at
19.2). Modulo q·p, a public-key encryption of zero has the phase −e·u + e₁ + e₂·s, at most 21·(2N + 1) in every
coefficient. Dropping the special prime p divides by p and rounds both polynomials: 21·(2N + 1)/p + 1/2 + N/2. Adding
round(q·m/t) costs 1/2 more. With 21·(2N + 1) < p one ciphertext is thus less than N/2 + 2 away from q·m/t, and a sum
of n less than n·(N/2 + 2) from q·Σm/t: multiples of q vanish modulo q, so that wrapping modulo t costs nothing. SEAL
rounds correctly when t times that distance is below q·(1/2 − k/γ), for k primes and γ > 2^60 (Bajard et al. 2016,
Lemma 2).
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

# The largest primes of 25 (special), 40, 48, 56, 60, 32 and 40 bits that are 1 modulo 2N, from the smallest q up.
SPECIAL = 33538049
DATA = (
    (1099511480321,),
    (281474976694273,),
    (72057594037641217,),
    (1152921504606830593,),
    (4294729729, 4294828033),
    (1099511390209, 1099511480321),
)


@dataclass(frozen=True)
class HeParameters:
    """Degree N, the primes of the data modulus q, the special prime p, t = 2^plain_bits and the most summands n."""

    degree: int
    primes: tuple[int, ...]
    special: int
    plain_bits: int
    summands: int

    @property
    def modulus(self) -> int:
        """Q, the modulus of a ciphertext."""
        return math.prod(self.primes)

    @property
    def modulus_bits(self) -> int:
        """Log2 of the whole modulus q·p, rounded up; security depends on it."""
        return (self.modulus * self.special).bit_length()

    @property
    def security(self) -> int:
        """Bits of security by the guideline's table (0, 128, 192 or 256)."""
        return max((level for level, limit in LIMITS.items() if self.modulus_bits <= limit), default=0)

    @property
    def entry_bytes(self) -> int:
        """Bytes of one packed coefficient modulo one prime."""
        return -(-max(self.primes).bit_length() // 8)

    @property
    def bytes_per_value(self) -> int:
        """Bytes of two polynomials per coefficient."""
        return 2 * len(self.primes) * self.entry_bytes

    @property
    def noise(self) -> int:
        """Largest distance of the phase of a sum of n honest ciphertexts from q·Σm/t."""
        return self.summands * (self.degree // 2 + 2)

    @property
    def always_decrypts(self) -> bool:
        """Whether every sum of up to n honest ciphertexts decrypts, whatever their randomness."""
        small_errors = LARGEST_ERROR * (2 * self.degree + 1) < self.special
        return small_errors and (self.noise << (self.plain_bits + 1)) < self.modulus - (self.modulus >> 50)

    @property
    def noise_budget(self) -> int:
        """Least invariant noise budget, in bits as SEAL counts them, that every honest sum has left."""
        return max(0, self.modulus.bit_length() - (self.noise << self.plain_bits).bit_length() - 1)

    def ciphertexts(self, length: int) -> int:
        """How many ciphertexts hold `length` values."""
        return -(-length // self.degree)

    def packed_bytes(self, length: int) -> int:
        """Size of the packed ciphertexts of `length` values; it depends on nothing else."""
        return self.ciphertexts(length) * self.degree * self.bytes_per_value

    def digest(self) -> bytes:
        """SHA-256 that names these parameters."""
        numbers = (self.degree, self.special, self.plain_bits, self.summands, *self.primes)
        return digest("BFV parameters", *(each.to_bytes(8, "big") for each in numbers))

    def explain(self) -> str:
        """One line with the numbers that a reader can check by hand."""
        return (
            f"BFV of degree {self.degree} over {self.plain_bits}-bit integers, {self.bytes_per_value} bytes per value: "
            f"{self.security}-bit secure, for its modulus has {self.modulus_bits} of {LIMITS[self.security]} bits; "
            f"{self.summands} honest ciphertexts always decrypt (failure probability 0), "
            f"for 2^{self.plain_bits + 1} · {self.noise} < q = 2^{math.log2(self.modulus):.1f}"
        )


def for_capacity(largest: int, summands: int, security: int = 128) -> HeParameters:
    """The smallest ciphertexts for sums of up to `summands` vectors with every |entry of the sum| ≤ `largest`.

    2^plain_bits > 2·largest, so that centred residues are exact. Raises CapacityExceeded when no set has room, BadInput
    when none is so secure.
    """
    plain_bits = largest.bit_length() + 1
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
