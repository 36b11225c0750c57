"""A method that trains, at any settings of a space: its round, and what all of them sum."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

from methods.method import Method, Parameters, SampledTraining, SumSpec
from methods.search.search_space import Space
from methods.training.chain import ChainRound
from secagg.agreement.policy import NOTHING, Effort
from secagg.errors import BadInput


@dataclass(frozen=True)
class TrainingSpace:
    """The method of this `name` with `fixed` parameters, over records of such a shape, and the `space` tried."""

    name: str
    fixed: tuple[tuple[str, str | float], ...]
    space: Space
    dimension: int
    classes: int
    levels: int

    def at(self, settings: Parameters) -> ChainRound:
        """Its first round with these settings of the space; for none with the first."""
        chosen = settings or self.space.corners[0]
        return _round_at(self, tuple(sorted(chosen.items())))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the blocks of its sums."""
        return tuple(block.name for block in self.spec.blocks)

    @cached_property
    def spec(self) -> SumSpec:
        """Its sum at any settings, with the largest sampling rate and the most steps and effort that there are.

        Raises BadInput where settings would change what is summed, or how far anybody moves it.
        """
        specs = [self.method(corner).sums(*self.shape) for corner in self.space.corners]
        trainings = [kind.training for kinds in specs for kind in kinds if kind.training is not None]
        same = {repr([replace(kind, training=None, effort=NOTHING) for kind in kinds]) for kinds in specs}
        if len(same) > 1 or any(len(kinds) > 1 for kinds in specs) or len(trainings) not in (0, len(specs)):
            problem = f"settings that are tried would change what {self.name} sums"
            raise BadInput(problem, remedy="fix those that do; a sampling rate is above 0 everywhere, or not tried")
        efforts = [kinds[0].effort for kinds in specs]
        most = {each.name: max(getattr(effort, each.name) for effort in efforts) for each in fields(Effort)}
        training = _costliest(trainings) if trainings else None
        if training is not None:  # both may be the most at once
            most["epochs"] = max(most["epochs"], math.ceil(training.rate * training.steps))
        return replace(specs[0][0], training=training, effort=Effort(**most))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Dimension, classes and levels, as methods take them."""
        return self.dimension, self.classes, self.levels

    def method(self, settings: Parameters) -> Method:
        """The method with these settings of the space."""
        return trained_method(self.name, {**dict(self.fixed), **settings})


def trained_method(name: str, parameters: Parameters) -> Method:
    """Return the method. Raises BadInput for one of which no settings can be tried, or that is code of others.

    The name stands among a plan's parameters, where no policy looks for code that it would run.
    """
    from methods import METHODS, method_named  # the registry knows this method, too

    method = method_named(name, parameters) if name in METHODS else None
    if method is None or not method.traits.hyperparameters:
        raise BadInput(f"no settings of {name} can be tried", remedy="choose a method that trains in rounds: fedavg")
    return method


def _costliest(trainings: list[SampledTraining]) -> SampledTraining:
    rate, steps = max(each.rate for each in trainings), max(each.steps for each in trainings)
    return replace(trainings[0], rate=rate, steps=steps)


@lru_cache(maxsize=256)
def _round_at(space: TrainingSpace, settings: tuple[tuple[str, str | float], ...]) -> ChainRound:
    round_ = space.method(dict(settings)).begin(*space.shape)
    if not isinstance(round_, ChainRound):
        raise BadInput(f"{space.name} moves no public state", remedy="choose a method that trains in rounds: fedavg")
    return round_
