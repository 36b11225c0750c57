"""The promise of a plan whose members train with noise of their own, recomputed from the plan; and that noise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from methods.method import SampledTraining, SumSpec
from secagg.errors import BadInput
from secagg.plan import Plan, PlannedNoise
from secagg.privacy import Adjacency, SampledSteps, TrainingClaim, TrainingCost, Unit, multiplier_for
from secagg.privacy.gaussian import mu_of
from secagg.privacy.shares import gap_of, sigma_for, variance_of

TRAINING = "training"
"""Name of this noise in a plan."""
_SLACK = 1 + 2.0**-40
"""Room for rounding."""


def training_claim(plan: Plan, sums: Sequence[SumSpec]) -> TrainingClaim:
    """Raises BadInput when the noise in the plan does not keep it, or the method's members do not train so."""
    training, times = _trained(sums, Unit(plan.unit), Adjacency(plan.adjacency))
    names = [TRAINING, *(block.name for block in training.further)]
    if [each.block for each in plan.noises] != names:
        beside = "".join(f" and {name}" for name in names[1:])
        raise BadInput(f"the plan has noise for {[e.block for e in plan.noises]}, not for members' training{beside}")
    sigmas = [each.sigma for each in plan.noises]
    return TrainingClaim(_cost(training, times, sigmas), plan.epsilon, plan.delta)


def training_noise(
    sums: Sequence[SumSpec], unit: Unit, adjacency: Adjacency, epsilon: float, delta: float
) -> tuple[PlannedNoise, ...]:
    """The least noise of each step with which all steps keep (ε, δ), and that of what members measure beside them.

    This has its share of μ², divided as the sums divide it. Raises BadInput as `training_claim` does.
    """
    training, times = _trained(sums, unit, adjacency)
    steps = training.steps * times
    shares = _further_shares(training, sums[0])
    squared_mu = training.share * mu_of(epsilon, delta) ** 2
    further = [
        PlannedNoise(block.name, 1, sigma_for(times * block.l2**2 / (share * squared_mu), 1) * _SLACK, 0.0)
        for block, share in zip(training.further, shares, strict=True)
    ]
    gap = steps * gap_of([(float(training.levels), training.size)], 1) + times * _gap_beside(further)
    spent = squared_mu * _SLACK if further else 0.0
    multiplier = multiplier_for(training.rate, steps, epsilon=epsilon, delta=delta, squared_mu=spent, gap=gap)
    sigma = sigma_for((multiplier * training.levels) ** 2, 1) * _SLACK
    return (PlannedNoise(TRAINING, 1, sigma, 0.0), *further)


def refuse_training(sums: Sequence[SumSpec]) -> None:
    """Raise BadInput for a method whose members' training adds noise, in a plan that has others add it."""
    if any(each.training is not None for each in sums):
        raise BadInput("here each member's own training adds the noise", remedy="let members add it (--noise member)")


def _cost(training: SampledTraining, times: int, sigmas: Sequence[float]) -> TrainingCost:
    """What so many trainings cost, and what is measured beside: `sigmas` of a step, then of what is measured.

    Each step as `secagg.privacy.subsampled` has it, the clip being `levels`; a number that is measured is a Gaussian
    release of one entry, of which a record moves all by their lengths together.
    """
    first, *others = sigmas
    steps = training.steps * times
    multiplier = math.sqrt(variance_of(first, 1)) * (1 - 2.0**-50) / training.levels
    gap = steps * gap_of([(first, training.size)], 1)
    further = [PlannedNoise(TRAINING, 1, sigma, 0.0) for sigma in others]
    beside = (block.l2**2 / variance_of(sigma, 1) for block, sigma in zip(training.further, others, strict=True))
    squared_mu = times * math.fsum(beside) * _SLACK
    return TrainingCost(SampledSteps(training.rate, multiplier, steps), squared_mu, gap + times * _gap_beside(further))


def _gap_beside(further: Sequence[PlannedNoise]) -> float:
    """T of what one round measures: a number of each."""
    return gap_of([(each.sigma, 1) for each in further], 1)


def _further_shares(training: SampledTraining, kind: SumSpec) -> list[float]:
    """Of what is measured beside training, in proportion to what the sum gives these blocks."""
    if not isinstance(kind.shares, Mapping):
        return [1 / len(training.further) for _ in training.further]
    whole = math.fsum(kind.shares[block.name] for block in training.further)
    return [kind.shares[block.name] / whole for block in training.further]


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
