"""From flat vectors to blocks in the units of one record, and what is known of their noise in these units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from secagg.encoding import Integers
from secagg.parties import SessionSetup
from secagg.privacy import OpenedNoise
from threat_models.session import Blocks


def blocks_of(setup: SessionSetup, vector: Integers) -> Blocks:
    """The blocks of a vector, multipliers divided out (float64 where there is one)."""
    blocks = setup.layout.split(vector)
    factors = {block.name: block.multiplier for block in setup.layout.blocks}
    return {name: block if factors[name] == 1 else block / factors[name] for name, block in blocks.items()}


def noise_of(setup: SessionSetup, members: int) -> Mapping[str, OpenedNoise] | None:
    """The noise on the opened blocks in the same units; None without noise."""
    noise = setup.opened_noise(members)
    if noise is None:
        return None
    return {name: replace(each, sigma=each.sigma / each.multiplier, multiplier=1) for name, each in noise.items()}
