"""Reproducible noise for papers: the one place in the package that takes the token of `secagg.unsafe_for_tests`.

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
    """Where a run's noise, identities and local training draw from: the operating system, or a seed for noise.

    One seed for noise gives runs of different `seed` different streams, and those of the same `seed` the same: what a
    sweep varies beside is compared under the same draws.
    """

    noise_seed: int | None
    seed: int

    def source(self, purpose: str, *numbers: int) -> RandomSource:
        """A stream for one purpose: the same bytes for the same seeds, purpose and numbers, where there is a seed."""
        if self.noise_seed is None:
            return OperatingSystem()
        from secagg.unsafe_for_tests import TOKEN

        named = [value.to_bytes(8, "big") for value in (self.noise_seed, self.seed, *numbers)]
        return SeededRandomness(digest("reproducible noise", purpose.encode(), *named), TOKEN)
