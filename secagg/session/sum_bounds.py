"""Bounds that every opened sum of honest vectors meets, with the tails of its noise.

They follow from the plan and the opened sum alone (post-processing), so that each party which is shown the sum refuses
the same ones. A sum beyond them was made by a client that sent more than it may, or by whoever opened it: nobody can
tell which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from secagg.encoding import Integers, Kind
from secagg.privacy import Mechanism
from secagg.session.round_setup import RoundSetup

FALSE_ALARM_BITS = 40
"""Honest sums break a bound with probability at most 2⁻⁴⁰, over all blocks and rounds of a plan."""
SLACK = 1e-9
"""Relative room for the float64 rounding of a length."""


def broken_bounds(setup: RoundSetup, clients: int, blocks: Mapping[str, Integers]) -> tuple[str, ...]:
    """Complaints about the opened int64 `blocks` of so many clients, multipliers and noise included; none if honest.

    One unit (a client, or each of its at most max_records records) adds at most `bound` to an entry of a block, and to
    an update at most the L2 length l2 that its sensitivity states. So with K units |X_j| ≤ K·bound, 0 ≤ X_j for counts,
    and ‖X‖ ≤ K·l2 by the triangle inequality, times the multiplier and plus the noise of `noise_tails`.
    """
    failures = []
    lengths, opened = setup.sum.spec.unit_lengths, setup.sum.opened_noise(clients) or {}
    for block in setup.sum.layout.blocks:
        values, units = blocks[block.name], block.multiplier * clients * setup.sum.capacity.records
        sigma = opened[block.name].sigma if block.name in opened else 0.0
        entry, length = noise_tails(sigma, block.size, 2 * len(setup.sum.layout.blocks) * setup.rounds, _rounded(setup))
        most = math.floor(units * block.bound + entry)
        least = -math.floor(entry) if block.kind in (Kind.CENSUS, Kind.COUNTS) else -most
        if int(values.max()) > most or int(values.min()) < least:
            failures.append(
                f"an entry of {block.name} is outside {least} to {most}, which {clients} honest clients cannot reach"
            )
        longest = (units * lengths.get(block.name, math.inf) + length) * (1 + SLACK)
        if block.kind is Kind.UPDATE and (found := float(np.linalg.norm(values.astype(np.float64)))) > longest:
            failures.append(
                f"{block.name} has length {found:.6g}, above {longest:.6g}, which {clients} honest clients cannot reach"
            )
    return tuple(failures)


def noise_tails(sigma: float, size: int, tests: int, rounded: int) -> tuple[float, float]:
    """Largest |E_j| and ‖E‖₂ of the noise E on `size` entries; each exceeded with probability ≤ 2⁻⁴⁰/`tests`.

    Entries are independent with E e^(λE_j) ≤ e^(λ²σ²/2): so is a discrete Gaussian (Canonne, Kamath & Steinke 2020,
    arXiv 2004.00010), hence the sum of shares with total `sigma`. With t = ln(tests·2⁴⁰):
    P(max |E_j| > σ√(2(t + ln 2d))) ≤ e^(−t) (Chernoff, union over d entries), and P(‖E‖² > σ²(d + 2√(dt) + 2t)) ≤
    e^(−t) (Laurent & Massart 2000, lemma 1, for the chi-square; Hsu, Kakade & Zhang 2012, theorem 2.1, for every
    sub-Gaussian E). Rounding a Gaussian moves an entry by at most ½ for each of the `rounded` parties that add one.
    """
    t = math.log(tests) + FALSE_ALARM_BITS * math.log(2)
    entry = sigma * math.sqrt(2 * (t + math.log(2 * size))) + rounded / 2
    return entry, sigma * math.sqrt(size + 2 * math.sqrt(size * t) + 2 * t) + rounded / 2 * math.sqrt(size)


def _rounded(setup: RoundSetup) -> int:
    """Count the parties that add a rounded Gaussian to the sum."""
    calibration = setup.sum.calibration
    return calibration.parties if calibration is not None and calibration.mechanism is Mechanism.GAUSSIAN else 0
