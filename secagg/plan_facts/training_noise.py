"""Privacy cost of members' own noisy training, and the noise that keeps a promise with it, from the plan alone.

**Alone.** Where training is all that a sum depends on, what leaves a member is private by it: one composition of steps.

**With sums that are further releases** the two share the promise's budget by one rule, fixed in the plan before anyone
looks at a record: the sums get the share s of μ², μ being that of a Gaussian release with the plan's (ε, δ), and their
noise is calibrated for it as in any other plan; the training gets the least noise with which all of it together, the
steps' losses convolved with those of a Gaussian release of the sums' own μ², keeps (ε, δ). What a member checks is that
composition (`Releases.whole`), not the rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from methods.method import SampledTraining, SumSpec
from secagg.agreement.plan import TRAINING, Plan, PlannedNoise
from secagg.errors import BadInput
from secagg.privacy import Adjacency, GaussianCost, SampledSteps, TrainingClaim, TrainingCost, Unit, multiplier_for
from secagg.privacy.gaussian import mu_of
from secagg.privacy.shares import gap_of, sigma_for, variance_of


def training_of(sums: Sequence[SumSpec]) -> SampledTraining | None:
    """The noisy training that members do before some of a method's sums; None where there is none."""
    found = [each.training for each in sums if each.training is not None]
    return found[0] if found else None


def training_claim(plan: Plan, sums: Sequence[SumSpec]) -> TrainingClaim:
    """Raises BadInput when the noise in the plan does not keep it, or the method's members do not train so."""
    training = _all_that_leaves(sums)
    _refuse_others(plan.unit, Adjacency(plan.adjacency))
    if [each.block for each in plan.noises] != [TRAINING, *(block.name for block in training.further)]:
        beside = "".join(f" and {block.name}" for block in training.further)
        raise BadInput(f"the plan has noise for {[e.block for e in plan.noises]}, not for members' training{beside}")
    alone, releases = _cost(training, plan.training_sigma), _cost_beside(training, plan.noises[1:])
    cost = replace(alone, squared_mu=releases[0], gap=alone.gap + releases[1])
    return TrainingClaim(cost, plan.epsilon, plan.delta)


def training_beside(plan: Plan, sums: Sequence[SumSpec]) -> TrainingCost | None:
    """Cost of the training by itself in a plan whose sums have noise too; None where members do not train so.

    Raises BadInput where the plan lacks its noise or has some for nothing, and for what promises nothing of it.
    """
    training = training_of(sums)
    if (training is not None) != plan.has_training_noise:
        raise BadInput(
            f"the plan has noise for {[each.block for each in plan.noises]}, other than what its method does"
        )
    if training is None:
        return None
    _refuse_others(plan.unit, Adjacency(plan.adjacency))
    return _cost(training, plan.training_sigma)


def training_noise(
    sums: Sequence[SumSpec], unit: Unit, adjacency: Adjacency, epsilon: float, delta: float
) -> tuple[PlannedNoise, ...]:
    """The least noise of each step with which all steps keep (ε, δ), and that of what members measure beside them.

    This has its share of μ², divided as the sums divide it. Raises BadInput as `training_claim` does.
    """
    training = _all_that_leaves(sums)
    _refuse_others(unit, adjacency)
    shares, squared_mu = _shares_beside(training, sums[0]), training.share * mu_of(epsilon, delta) ** 2
    variances = (
        training.times * block.l2**2 / (share * squared_mu)
        for block, share in zip(training.further, shares, strict=True)
    )
    further = tuple(
        PlannedNoise(block.name, 1, sigma_for(variance, 1) * (1 + 2.0**-40), 0.0)
        for block, variance in zip(training.further, variances, strict=True)
    )
    return (_least_noise(training, epsilon, delta, *_cost_beside(training, further)), *further)


def noise_beside(
    training: SampledTraining, unit: Unit, adjacency: Adjacency, releases: GaussianCost, epsilon: float, delta: float
) -> PlannedNoise:
    """The least noise of each step with which all steps and these releases keep (ε, δ). Raises BadInput."""
    _refuse_others(unit, adjacency)
    return _least_noise(training, epsilon, delta, releases.squared_mu, releases.gap)


def refuse_training_alone(sums: Sequence[SumSpec]) -> None:
    """Raise BadInput for a method whose members' training adds all the noise, in a plan that has others add some."""
    training = training_of(sums)
    if training is not None and not training.sums:
        raise BadInput("here each member's own training adds the noise", remedy="let members add it (--noise member)")


def _least_noise(
    training: SampledTraining, epsilon: float, delta: float, squared_mu: float = 0.0, gap: float = 0.0
) -> PlannedNoise:
    steps = training.steps * training.times
    gap += steps * gap_of([(float(training.levels), training.size)], 1)
    rate = training.rate
    multiplier = multiplier_for(rate, steps, epsilon=epsilon, delta=delta, squared_mu=squared_mu, gap=gap)
    sigma = sigma_for((multiplier * training.levels) ** 2, 1) * (1 + 2.0**-40)
    return PlannedNoise(TRAINING, 1, sigma, 0.0)


def _cost(training: SampledTraining, sigma: float) -> TrainingCost:
    """Cost of all trainings: each step as `secagg.privacy.subsampled` has it, the clip being `levels`."""
    steps = training.steps * training.times
    multiplier = math.sqrt(variance_of(sigma, 1)) * (1 - 2.0**-50) / training.levels
    gap = steps * gap_of([(sigma, training.size)], 1)
    return TrainingCost(SampledSteps(training.rate, multiplier, steps), gap=gap)


def _cost_beside(training: SampledTraining, noises: Sequence[PlannedNoise]) -> tuple[float, float]:
    """μ² and T of all that members measure beside their steps, by noise of their own; both 0 for nothing.

    Each is a Gaussian release of one number, of which a record moves all together by their lengths.
    """
    parts = zip(training.further, noises, strict=True)
    squared_mu = training.times * math.fsum(block.l2**2 / variance_of(noise.sigma, 1) for block, noise in parts)
    gap = training.times * gap_of([(noise.sigma, 1) for noise in noises], 1)
    return squared_mu * (1 + 2.0**-40), gap


def _shares_beside(training: SampledTraining, kind: SumSpec) -> list[float]:
    """Of what is measured beside training, in proportion to what the sum gives these blocks."""
    if not isinstance(kind.shares, Mapping):
        return [1 / len(training.further) for _ in training.further]
    whole = math.fsum(kind.shares[block.name] for block in training.further)
    return [kind.shares[block.name] / whole for block in training.further]


def _all_that_leaves(sums: Sequence[SumSpec]) -> SampledTraining:
    """The training of a method whose sums tell nothing beside it. Raises BadInput for any other."""
    training = training_of(sums)
    if training is None:
        raise BadInput(
            "members do not train with noise of their own here", remedy="say how (sampling=0.1), or let clients add it"
        )
    if len(sums) > 1 or training.sums:
        raise BadInput(
            "beside their noisy training members open sums about the same records, which takes noise in the sums too",
            remedy="let clients or an aggregator add that (--noise client), and no gate where training is all",
        )
    return training


def _refuse_others(unit: Unit, adjacency: Adjacency) -> None:
    """Raise BadInput for neighbours of which sampling says nothing."""
    if (unit, adjacency) != (Unit.RECORD, Adjacency.ADD_REMOVE):
        raise BadInput(
            f"training on sampled records promises nothing for {unit} and {adjacency}",
            remedy="it hides that one record was added or removed: choose record and add-remove",
        )
