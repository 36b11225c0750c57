"""A member's contribution to a round: its records' integers as one flat vector, with its share of the noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from methods.round import Local
from secagg.agreement.plan import NoiseFrom
from secagg.encoding import Integers
from secagg.plan_facts.records import LocalRecords
from secagg.privacy import discrete_gaussian, rounded_gaussian
from secagg.randomness import RandomSource
from secagg.session.round_setup import RoundSetup


def contribution_of(
    setup: RoundSetup, records: LocalRecords, randomness: RandomSource, member: int = 0, state: bytes = b""
) -> tuple[Integers, bytes]:
    """A client's flat vector (int64) for the round, its share of the noise in it, and its state for the next round.

    The vector may leave, protected; the state never does.
    `member` is its roster index, `state` what the round before left it. The noise is drawn before the records are
    touched: how long that takes then says nothing of them.
    """
    plan, calibration = setup.plan, setup.sum.calibration
    noise = None
    if calibration is not None and plan.noise == NoiseFrom.CLIENT:
        noise = discrete_gaussian(calibration.segments, randomness)
    made = setup.round.contribute(local_of(setup, records, randomness, member, state))
    vector = setup.sum.layout.flatten(made.blocks)
    return (vector if noise is None else vector + noise), made.state


def local_of(
    setup: RoundSetup, records: LocalRecords, randomness: RandomSource, member: int = 0, state: bytes = b""
) -> Local:
    """Input of a member's contribution: its records, and the `state` that the round before left."""
    plan, own = setup.plan, records.counted
    of_plan = plan.training_sigma, plan.further_sigmas, plan.has_noise
    return Local(own, len(plan.classes), plan.grid, member, state, randomness, own.inputs, own.feature_map, *of_plan)


def opening_noise_of(setup: RoundSetup, randomness: RandomSource) -> Callable[[], Integers] | None:
    """Sampler of the noise of one party that opens the sum; None where the plan has it add none."""
    calibration = setup.sum.calibration
    if calibration is None or setup.plan.noise != NoiseFrom.AGGREGATOR:
        return None
    return partial(rounded_gaussian, calibration.segments, randomness)
