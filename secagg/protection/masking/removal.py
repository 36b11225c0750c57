"""Removal of clients' surplus noise: the seeds of the removable parts, and the noise that follows from them.

A client's noise has one removable part for each of the plan's noise levels (`secagg.privacy.noise_levels`), drawn by
the exact sampler from the keystream of a seed of its own. The seeds are a hash chain, so that the seed of a level gives
those of all higher ones, and of no lower one. Each is committed to in the directory and dealt like the self-mask seed.
Once the survivors are endorsed, honest clients open their shares of the survivors' seeds of one level, or none, as the
number of missing clients says: colluders then hold too few shares of any seed whose noise is to stay. The part that
always stays is drawn by the operating system and has no seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from secagg.crypto.stream import KeystreamBytes
from secagg.encoding import Integers, Residues
from secagg.privacy import discrete_gaussian
from secagg.protection.interface import SessionContext
from secagg.protection.masking import derivations as bind


@dataclass(frozen=True)
class NoiseKey:
    """The key from which a client's removable noise of a level, 1 or 2, is drawn."""

    level: int
    key: bytes = field(repr=False)

    def draw(self, context: SessionContext) -> Integers:
        """Return the noise, int64, as long as the vector."""
        return discrete_gaussian(context.removable[self.level - 1].segments, KeystreamBytes(self.key))


def seeds_from(context: SessionContext, seed: bytes, first: int = 1) -> dict[int, bytes]:
    """Return the noise seeds of level `first`, which is `seed`, and of all higher ones, by level; none without levels.

    Levels count from 1.
    """
    seeds = {}
    for level in range(first, len(context.removable) + 1):
        seeds[level], seed = seed, bind.next_noise_seed(seed)
    return seeds


def keys_from(context: SessionContext, seed: bytes, member: int, binding: bytes, first: int = 1) -> list[NoiseKey]:
    """Return the keys of a client's noise of level `first`, whose seed is `seed`, and of all higher levels."""
    seeds = seeds_from(context, seed, first)
    return [NoiseKey(level, bind.noise_key(each, level, member, binding)) for level, each in seeds.items()]


def removed_level(context: SessionContext, survivors: Sequence[int]) -> int | None:
    """Return the lowest level whose noise is removed from the survivors' sum, with all higher ones; None: none is.

    Levels count from 1. It follows from the plan and from how many of its clients the sum lacks.
    """
    missing = len(context.identities) - len(survivors)
    levels = enumerate(context.removable, start=1)
    return next((level for level, each in levels if missing <= each.missing), None)


def add_noise(context: SessionContext, residues: Residues, keys: Sequence[NoiseKey], sign: int) -> None:
    """Add the noise of all keys to a vector or sum (sign 1), or take it off (sign −1), in place."""
    combine = np.add if sign == 1 else np.subtract
    for each in keys:
        combine(residues, context.ring.encode(each.draw(context)), out=residues)
