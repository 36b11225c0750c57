"""The promise of a plan whose members train with noise of their own, recomputed from the plan; and that noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from methods.method import SampledTraining, SumSpec
from secagg.errors import BadInput
from secagg.plan import Plan, PlannedNoise
from secagg.privacy import Adjacency, SampledSteps, TrainingClaim, TrainingCost, Unit, multiplier_for
from secagg.privacy.shares import gap_of, sigma_for, variance_of

TRAINING = "training"
"""Name of this noise in a plan."""


def training_claim(plan: Plan, sums: Sequence[SumSpec]) -> TrainingClaim:
    """Raises BadInput when the noise in the plan does not keep it, or the method's members do not train so."""
    training, times = _trained(sums, Unit(plan.unit), Adjacency(plan.adjacency))
    if [each.block for each in plan.noises] != [TRAINING]:
        raise BadInput(f"the plan has noise for {[each.block for each in plan.noises]}, not for members' training")
    return TrainingClaim(_cost(training, times, plan.training_sigma), plan.epsilon, plan.delta)


def training_noise(
    sums: Sequence[SumSpec], unit: Unit, adjacency: Adjacency, epsilon: float, delta: float
) -> PlannedNoise:
    """The least noise of each step with which all steps keep (ε, δ). Raises BadInput as `training_claim` does."""
    training, times = _trained(sums, unit, adjacency)
    steps = training.steps * times
    gap = steps * gap_of([(float(training.levels), training.size)], 1)
    multiplier = multiplier_for(training.rate, steps, epsilon=epsilon, delta=delta, gap=gap)
    sigma = sigma_for((multiplier * training.levels) ** 2, 1) * (1 + 2.0**-40)
    return PlannedNoise(TRAINING, 1, sigma, 0.0)


def refuse_training(sums: Sequence[SumSpec]) -> None:
    """Raise BadInput for a method whose members' training adds noise, in a plan that has others add it."""
    if any(each.training is not None for each in sums):
        raise BadInput("here each member's own training adds the noise", remedy="let members add it (--noise member)")


def _cost(training: SampledTraining, times: int, sigma: float) -> TrainingCost:
    """What so many trainings cost: each step as `secagg.privacy.subsampled` has it, the clip being `levels`."""
    steps = training.steps * times
    multiplier = math.sqrt(variance_of(sigma, 1)) * (1 - 2.0**-50) / training.levels
    gap = steps * gap_of([(sigma, training.size)], 1)
    return TrainingCost(SampledSteps(training.rate, multiplier, steps), gap=gap)


def _trained(sums: Sequence[SumSpec], unit: Unit, adjacency: Adjacency) -> tuple[SampledTraining, int]:
    """What members do before each of how many sums. Raises BadInput where that is not all that the promise is about."""
    training = sums[0].training
    if training is None or len(sums) > 1:
        raise BadInput("this method's members do not train with noise of their own", remedy="let clients add noise")
    if (unit, adjacency) != (Unit.RECORD, Adjacency.ADD_REMOVE):
        raise BadInput(
            f"training on sampled records promises nothing for {unit} and {adjacency}",
            remedy="it hides that one record was added or removed: choose record and add-remove",
        )
    return training, sums[0].times
