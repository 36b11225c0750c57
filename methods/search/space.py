"""The search space: the hyperparameters of a training method that are tried; public and the same on all machines.

A setting has a *place*: in an interval a number from 0 to 1, among values the number of one of them, from 0. Places are
what evolution moves and what a state holds; the settings that belong to them are computed with decimals, whose ln and
exp are rounded correctly on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property, lru_cache
from typing import Protocol

from methods import METHODS, method_named
from methods.method import Method, Parameters, SumSpec
from methods.training.training_round import TrainingRound
from secagg.agreement.policy import NOTHING, Effort
from secagg.errors import BadInput


@dataclass(frozen=True)
class TrainingSpace:
    """A training method (`name` with `fixed` parameters), its records' shape, and the `space` of settings to try."""

    name: str
    fixed: tuple[tuple[str, str | float], ...]
    space: Space
    dimension: int
    classes: int
    levels: int

    def at(self, settings: Parameters) -> TrainingRound:
        """Return the method's first round with these settings, or with the space's first settings if none are given."""
        chosen = settings or self.space.corners[0]
        return _round_at(self, tuple(sorted(chosen.items())))

    @cached_property
    def spec(self) -> SumSpec:
        """The specification of the method's sum, with the largest sampling rate, steps and effort of all settings.

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
        training = None
        if trainings:  # both may be the most at once
            rate, steps = max(each.rate for each in trainings), max(each.steps for each in trainings)
            training = replace(trainings[0], rate=rate, steps=steps)
            most["epochs"] = max(most["epochs"], math.ceil(rate * steps))
        return replace(specs[0][0], training=training, effort=Effort(**most))

    @property
    def shape(self) -> tuple[int, int, int]:
        """The records' dimension, number of classes and largest L2 norm (`levels`), in the order of `Method.sums`."""
        return self.dimension, self.classes, self.levels

    def method(self, settings: Parameters) -> Method:
        """Return the training method with its fixed parameters and these settings of the space."""
        return trained_method(self.name, {**dict(self.fixed), **settings})


def trained_method(name: str, parameters: Parameters) -> Method:
    """Return the built-in method of this name. Raises BadInput for a plug-in, or if it has no settings to search.

    The name stands among a plan's parameters, where no policy looks for code that it would run.
    """
    method = method_named(name, parameters) if name in METHODS else None
    if method is None or not method.traits.hyperparameters:
        raise BadInput(f"no settings of {name} can be tried", remedy="choose a method that trains in rounds: fedavg")
    return method


@lru_cache(maxsize=256)
def _round_at(space: TrainingSpace, settings: tuple[tuple[str, str | float], ...]) -> TrainingRound:
    round_ = space.method(dict(settings)).begin(*space.shape)
    if not isinstance(round_, TrainingRound):
        raise BadInput(f"{space.name} moves no public state", remedy="choose a method that trains in rounds: fedavg")
    return round_


DIGITS = 6
"""Digits of a setting from an interval, so that it can be written down."""
MOST_VALUES = 1000
LOG = "log"
REMEDY = "write NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A|B|C"
_ARITHMETIC = Context(prec=30)
_ROUND = Context(prec=DIGITS)


class Setting(Protocol):
    """The interface of one hyperparameter that a search tries."""

    @property
    def name(self) -> str:
        """The name of the hyperparameter among the method's parameters."""

    @property
    def last(self) -> int:
        """The largest position on the setting's scale, which begins at 0."""

    @property
    def is_whole(self) -> bool:
        """Whether positions on the setting's scale are whole numbers, as they are for a list of values."""

    def value(self, place: float) -> str | float:
        """Return the hyperparameter's value at a position on its scale."""


@dataclass(frozen=True)
class Interval:
    """A setting with any value from `low` to `high`, on a linear scale or, with `is_log`, on a logarithmic one."""

    name: str
    low: Decimal
    high: Decimal
    is_log: bool
    last = 1
    is_whole = False

    def __post_init__(self) -> None:
        if not (self.low.is_finite() and self.high.is_finite() and self.low < self.high):
            raise BadInput(f"{self.name} cannot lie between {self.low} and {self.high}", remedy=REMEDY)
        if self.is_log and self.low <= 0:
            raise BadInput(f"{self.name} has no logarithm at {self.low}", remedy="give bounds above 0")

    def value(self, place: float) -> float:
        """Return the value at a position from 0 (`low`) to 1 (`high`), with `DIGITS` digits."""
        if place in (0.0, 1.0):
            return float(self.high if place else self.low)
        within = Decimal(place)
        low, high = (each.ln(_ARITHMETIC) if self.is_log else each for each in (self.low, self.high))
        found = _ARITHMETIC.fma(within, _ARITHMETIC.subtract(high, low), low)
        found = _ROUND.plus(found.exp(_ARITHMETIC) if self.is_log else found)
        return float(min(max(found, self.low), self.high))


@dataclass(frozen=True)
class Values:
    """A setting with one of several listed values, ordered so that neighbours are alike."""

    name: str
    values: tuple[str | float, ...]
    is_whole = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.values) <= MOST_VALUES or len(set(self.values)) != len(self.values):
            raise BadInput(f"{self.name} has {len(self.values)} values", remedy=f"give 1 to {MOST_VALUES}, each once")

    @property
    def last(self) -> int:
        """The index of the last value."""
        return len(self.values) - 1

    def value(self, place: float) -> str | float:
        """Return the value at this index of the list."""
        return self.values[int(place)]


@dataclass(frozen=True)
class Space:
    """The hyperparameters that a search tries, in the order of their names."""

    settings: tuple[Setting, ...]

    @classmethod
    def read(cls, text: str, known: Parameters, tunable: tuple[str, ...]) -> Space:
        """Parse a space of hyperparameters like "rate=log:0.001:1;epochs=1:5 batch=8|16|32".

        A semicolon or a space separates settings; `known` holds their defaults.
        A setting whose default is a whole number takes whole numbers. Raises BadInput for one that is not `tunable`.
        """
        found: dict[str, Setting] = {}
        for word in text.replace(";", " ").split():
            name, equals, values = word.partition("=")
            if not equals or name in found:
                raise BadInput(f"no settings are read from {word!r}", remedy=f"{REMEDY}, each once")
            if name not in tunable:
                problem = f"{name} is no setting that may be tried"
                raise BadInput(problem, remedy=f"choose among {', '.join(tunable) or 'none: this method has none'}")
            found[name] = _read(name, values, known[name])
        if not found:
            raise BadInput("there are no settings to try", remedy=REMEDY)
        return cls(tuple(found[name] for name in sorted(found)))

    def at(self, places: tuple[float, ...]) -> Parameters:
        """Return each setting's value at its position in `places`, by name."""
        return {each.name: each.value(place) for each, place in zip(self.settings, places, strict=True)}

    def holds(self, places: tuple[float, ...]) -> bool:
        """Return whether `places` holds one valid position for each setting."""
        return len(places) == len(self.settings) and all(
            0 <= place <= each.last and (place == int(place) or not each.is_whole)
            for each, place in zip(self.settings, places, strict=True)
        )

    @property
    def corners(self) -> tuple[Parameters, ...]:
        """Combinations of settings to check: all first values, then one setting at a time at its other bounds.

        A list's values are in any order: the largest may be in the middle.
        """
        first = {each.name: each.value(0.0) for each in self.settings}
        return (first, *({**first, name: value} for name, values in self.bounds().items() for value in values[1:]))

    def bounds(self) -> Mapping[str, tuple[str | float, ...]]:
        """Return each setting's values to check: all values of a list, both ends of an interval."""
        return {
            each.name: each.values if isinstance(each, Values) else (each.value(0.0), each.value(1.0))
            for each in self.settings
        }


def _read(name: str, text: str, default: str | float) -> Setting:
    try:
        if "|" in text or ":" not in text:
            return Values(name, tuple(type(default)(each) for each in text.split("|")))
        *kind, low, high = text.split(":")
        if kind not in ([], [LOG]) or isinstance(default, str):
            raise BadInput(f"{name} cannot be {text!r}", remedy=REMEDY)
        if isinstance(default, int):
            if kind or not 0 <= int(high) - int(low) < MOST_VALUES:
                raise BadInput(f"{name} cannot be {text!r}", remedy="give whole numbers as LOW:HIGH, or as A|B|C")
            return Values(name, tuple(range(int(low), int(high) + 1)))
        return Interval(name, Decimal(low), Decimal(high), bool(kind))
    except (ValueError, InvalidOperation):
        raise BadInput(f"{name} cannot be {text!r}", remedy=REMEDY) from None


def settings_text(parameters: Parameters) -> str:
    """Format parameters as a text: "epochs=2 rate=0.05"."""
    return " ".join(f"{name}={value}" for name, value in parameters.items())
