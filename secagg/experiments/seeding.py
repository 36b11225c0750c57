"""Seeded, reproducible noise for papers: no other module of the package uses `secagg.unsafe_for_tests.TOKEN`.

Whoever knows the seed takes the noise off again, so that what was released under it protects nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from secagg.crypto.labels import digest
from secagg.randomness import OperatingSystem, RandomSource, SeededRandomness

REPRODUCIBLE = "reproducible noise: no privacy"
SEEDS = 1 << 63


@dataclass(frozen=True)
class Randomness:
    """The source of a run's randomness (noise, identities, local training): the operating system, or a seed.

    One seed for noise gives runs of different `seed` different streams, and those of the same `seed` the same: what a
    sweep varies beside is compared under the same draws.
    """

    noise_seed: int | None
    seed: int

    def source(self, purpose: str, *numbers: int) -> RandomSource:
        """Return a random source for one purpose; if seeded, equal seeds, purpose and `numbers` give the same bytes."""
        if self.noise_seed is None:
            return OperatingSystem()
        from secagg.unsafe_for_tests import TOKEN

        named = [value.to_bytes(8, "big") for value in (self.noise_seed, self.seed, *numbers)]
        return SeededRandomness(digest("reproducible noise", purpose.encode(), *named), TOKEN)
