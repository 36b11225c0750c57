"""A population of hyperparameter configurations: settings, scores, evolution, and which clients try which setting.

All of it is public. Members are in *cohorts*, fixed for the whole plan; in each round a cohort tries the settings of
one configuration, or settings beside them, so that every number that is opened apart is a sum over whole cohorts.

Settings are drawn and evolve by FedPop's operators with their errata mended (Chen, Krompass, Gu & Tresp, "FedPop:
Federated Population-based Hyperparameter Tuning"), by arithmetic that everybody repeats. Whole numbers move to a
neighbour (Eq. 3 as printed moves them by ⌊δ⌋ = 0), and Eq. 5's decay is exponential. Only + − × ÷ of float64, so that
all have the same bits, and no draw but from public randomness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from methods.search.space import Setting, Space
from secagg.crypto.labels import digest, number

INTENSITY = 0.1
"""ε₀: the largest move of a setting at first, as a part of its interval's length."""
RESAMPLED = 0.1
"""p_re at first: the probability that a setting is drawn anew."""
BALL = 0.2
"""Δ: the largest distance of a cohort's settings from those of its configuration."""
RHO = 3
"""One configuration in so many is replaced."""
DISCOUNT = 0.9
"""γ: the weight of a round's score relative to the next round's."""
Floats = NDArray[np.float64]


class Draws:
    """A deterministic stream of pseudo-random numbers from a seed of 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._count = seed, 0

    def unit(self) -> float:
        """Return a pseudo-random float in [0, 1), from 53 bits of the next digest."""
        self._count += 1
        return (int.from_bytes(digest("a draw of evolution", self._seed, number(self._count))[:8], "big") >> 11) / 2**53

    def below(self, count: int) -> int:
        """Return a pseudo-random integer ≥ 0 and < `count` ≤ 2²⁰; probabilities differ by less than 2⁻³²."""
        return int(self.unit() * count)

    def shuffled(self, count: int) -> list[int]:
        """Return the integers 0 … count − 1 in a pseudo-random order (Fisher & Yates)."""
        order = list(range(count))
        for place in range(count - 1, 0, -1):
            other = self.below(place + 1)
            order[place], order[other] = order[other], order[place]
        return order


def annealed(first: float, done: int, of: int) -> float:
    """Return `first` after cosine annealing, `first`/2·(1 + cos(π·done/of)) (Eq. 4); 0 from `done` = `of` on.

    The cosine of 0 … π is by its series, to 10⁻¹⁵: libraries differ in the last bits.
    """
    if done >= of:
        return 0.0
    angle, term, cosine = math.pi * done / of, 1.0, 1.0
    for power in range(2, 42, 2):
        term *= -angle * angle / (power * (power - 1))
        cosine += term
    return first / 2 * (1 + cosine)


def draw_settings(space: Space, draws: Draws) -> tuple[float, ...]:
    """Draw each setting's position on its scale at random, uniformly over its interval or its list of values."""
    return tuple(_anywhere(each, draws) for each in space.settings)


def draw_beside(space: Space, places: Sequence[float], draws: Draws, moved: Sequence[str]) -> tuple[float, ...]:
    """Return the settings' positions redrawn from a small ball around `places`; those not named in `moved` stay."""
    return tuple(
        _near(each, place, BALL, draws) if each.name in moved else place
        for each, place in zip(space.settings, places, strict=True)
    )


def evolve(
    space: Space, places: Sequence[float], intensity: float, resampled: float, draws: Draws, moved: Sequence[str]
) -> tuple[float, ...]:
    """Redraw the positions of `moved` settings near the old ones or, with chance `resampled`, anywhere (Eq. 3)."""
    return tuple(
        place
        if each.name not in moved
        else _anywhere(each, draws)
        if draws.unit() < resampled
        else _near(each, place, intensity, draws)
        for each, place in zip(space.settings, places, strict=True)
    )


def extremes(scores: Sequence[float]) -> tuple[list[int], list[int]]:
    """Return the indices of the best (lowest) and of the worst scores: about one in `RHO` of all on each side.

    Of K scores ⌊(K − 1)/`RHO`⌋ + 1 on either side, none of a single one; equal ones in their order.
    """
    ranked = sorted(range(len(scores)), key=lambda place: scores[place])
    count = (len(scores) - 1) // RHO + 1 if len(scores) > 1 else 0
    return ranked[:count], ranked[len(scores) - count :]


def _anywhere(setting: Setting, draws: Draws) -> float:
    return float(draws.below(setting.last + 1)) if setting.is_whole else draws.unit()


def _near(setting: Setting, place: float, reach: float, draws: Draws) -> float:
    """Draw evenly from within the reach, or from the place and its neighbours; beyond an end the end is taken."""
    moved = place + draws.below(3) - 1 if setting.is_whole else place + reach * (2 * draws.unit() - 1)
    return min(max(float(moved), 0.0), float(setting.last))


ACTIVE = 0.2
"""The part of an interval for which FedPop-L goes on after its configuration is new."""
ETA = 3
"""One in so many configurations is kept by successive halving."""
Tensors = Mapping[str, Floats]


@dataclass(frozen=True)
class Search:
    """The settings of a hyperparameter search: `kind`, `space`, numbers of configurations, of variants and of rounds.

    "evolution" is FedPop: every `interval` rounds the worst are replaced by neighbours of the best (FedPop-G), and
    beside each configuration its cohorts try settings of the members' own near it (FedPop-L), the names of the
    server's beginning with "server". "random" changes nothing, "halving" keeps one in three as it goes.
    "evolution-in-halving" does both, as the paper's "FedPop wrapped with SHA" (appendix, Algorithm 1).
    """

    kind: str
    space: Space
    configurations: int
    variants: int
    rounds: int
    interval: int

    @property
    def cohorts(self) -> int:
        """The number of fixed groups of clients: one for each variant of each configuration."""
        return self.configurations * self.variants

    @property
    def evolves(self) -> bool:
        """Whether the worst configurations are replaced by neighbours of the best (FedPop)."""
        return self.kind.startswith("evolution")

    @property
    def survivors(self) -> Mapping[int, int]:
        """The number of configurations that successive halving keeps, by the round after which it drops the others.

        One in three stays after each of equal parts of the rounds, until one is left. Empty for other kinds of search.
        """
        if not self.kind.endswith("halving"):
            return {}
        kept = [self.configurations]
        while kept[-1] > 1:
            kept.append(-(-kept[-1] // ETA))
        return {self.rounds * stage // len(kept): left for stage, left in enumerate(kept)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all hyperparameters that are searched."""
        return tuple(each.name for each in self.space.settings)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the searched hyperparameters that clients apply in training; the server applies the others."""
        return tuple(name for name in self.names if not name.startswith("server"))


@dataclass(frozen=True, eq=False)
class Population:
    """The public state of a search: K configurations of J settings, each tried by m cohorts (groups of clients).

    `places` (K, J) are their settings' and `tried` (K, m, J) those that their cohorts train with. `order` (K·m,): which
    of these each cohort tries, counted through. `scores` (K,) are the last known, the lowest the best; `totals` and
    `weights` (K,) add them up between two replacements. `age` (K,) counts rounds since a configuration was new, `alive`
    (K,) is 0 for those that were given up.
    """

    places: Floats
    tried: Floats
    order: Floats
    scores: Floats
    totals: Floats
    weights: Floats
    age: Floats
    alive: Floats

    @classmethod
    def first(cls, search: Search, draws: Draws) -> Population:
        """Return random configurations from the space, and the settings that each cohort of clients tries first."""
        places = [draw_settings(search.space, draws) for _ in range(search.configurations)]
        tried = [_ball(search, each, draws) for each in places]
        zeros, count = np.zeros(search.configurations), search.configurations
        order = np.arange(search.cohorts, dtype=np.float64)
        return cls(np.array(places), np.array(tried), order, zeros, zeros, zeros, zeros, np.ones(count))

    @classmethod
    def of(cls, groups: Tensors) -> Population:
        """Build a population from its arrays by name, as `groups` holds them."""
        return cls(**{name: groups[name] for name in cls.__dataclass_fields__})

    @property
    def groups(self) -> dict[str, Floats]:
        """The population's arrays by name, as a round's state stores them."""
        return dict(vars(self))

    @classmethod
    def shapes(cls, search: Search) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the population's arrays by name."""
        count, settings = search.configurations, len(search.names)
        vectors = dict.fromkeys(("scores", "totals", "weights", "age", "alive"), (count,))
        return {
            "places": (count, settings),
            "tried": (count, search.variants, settings),
            "order": (search.cohorts,),
            **vectors,
        }

    def holds(self, search: Search) -> bool:
        """Return whether these arrays are a valid population of the search, as a server may broadcast anything."""
        places = [*self.places, *self.tried.reshape(-1, len(search.names))]
        return (
            all(search.space.holds(tuple(each.tolist())) for each in places)
            and set(self.order.tolist()) <= set(map(float, range(search.cohorts)))
            and set(self.alive.tolist()) <= {0.0, 1.0}
            and bool(self.alive.any())
            and all(self.alive[int(arm) // search.variants] for arm in self.order)
        )

    def arm_of(self, member: int) -> int:
        """Return the index (0 … K·m − 1) of the settings assigned to a client's cohort, number `member` mod K·m."""
        return int(self.order[member % len(self.order)])

    @property
    def best(self) -> int:
        """The index of the configuration with the lowest score among those still tried; of equal scores the first."""
        return int(np.argmin(np.where(self.alive > 0, self.scores, np.inf)))

    def measured(self, found: Floats) -> Population:
        """Return the population with a round's scores (K,) added to its discounted mean scores (Eq. 5)."""
        alive = self.alive > 0
        totals = np.where(alive, DISCOUNT * self.totals + found, self.totals)
        weights = np.where(alive, DISCOUNT * self.weights + 1.0, self.weights)
        scores = np.where(alive, totals / np.where(alive, weights, 1.0), self.scores)
        return replace(self, totals=totals, weights=weights, scores=scores, age=self.age + 1.0)

    def following(self, search: Search, number: int, found: Floats, draws: Draws) -> tuple[Population, list[int]]:
        """Return the population after round `number`, and each configuration's parent, whose model it continues.

        `found` (K, m) are the scores of what the cohorts tried. After a round in which halving drops configurations
        evolution replaces none: those that it would replace have the worst scores, and are dropped.
        """
        population, parents = self, list(range(search.configurations))
        if search.evolves:
            population = _searched_beside(population, search, number, found, draws)
        if number in search.survivors:
            population = _halved(population, search.survivors[number])
        elif search.evolves and number % search.interval == 0:
            population, parents = _replaced(population, search, number, draws)
        return _assigned(population, search, draws), parents


def _searched_beside(population: Population, search: Search, number: int, found: Floats, draws: Draws) -> Population:
    """Move the worst cohorts of a new configuration near to the settings that its best cohorts tried (FedPop-L)."""
    if search.variants == 1:
        return population
    tried = population.tried.copy()
    resampled = annealed(RESAMPLED, number, search.rounds)
    for config in range(search.configurations):
        intensity = annealed(INTENSITY, int(population.age[config]) - 1, max(1, int(ACTIVE * search.interval)))
        if intensity and population.alive[config]:
            best, worst = extremes(found[config].tolist())
            for place in worst:
                origin = population.tried[config, best[draws.below(len(best))]].tolist()
                tried[config, place] = evolve(search.space, origin, intensity, resampled, draws, search.own_names)
    return replace(population, tried=tried)


def _replaced(population: Population, search: Search, number: int, draws: Draws) -> tuple[Population, list[int]]:
    """Replace the worst configurations by neighbours of the best, with the models of the best (FedPop-G)."""
    places, tried, scores, age = (
        each.copy() for each in (population.places, population.tried, population.scores, population.age)
    )
    intensity, resampled = (annealed(each, number, search.rounds) for each in (INTENSITY, RESAMPLED))
    parents, alive = list(range(search.configurations)), np.flatnonzero(population.alive).tolist()
    best, worst = extremes(population.scores[alive].tolist())
    for place in (alive[each] for each in worst):
        parent = alive[best[draws.below(len(best))]]
        origin = population.places[parent].tolist()
        places[place] = evolve(search.space, origin, intensity, resampled, draws, search.names)
        tried[place] = _ball(search, tuple(places[place].tolist()), draws)
        parents[place], scores[place], age[place] = parent, population.scores[parent], 0.0
    zeros = np.zeros(search.configurations)
    moved = replace(population, places=places, tried=tried, scores=scores, age=age, totals=zeros, weights=zeros)
    return moved, parents


def _halved(population: Population, left: int) -> Population:
    """Keep the `left` configurations with the lowest scores; scores are added up anew."""
    ranked = np.argsort(np.where(population.alive > 0, population.scores, np.inf), kind="stable")
    alive, zeros = np.zeros(len(ranked)), np.zeros(len(ranked))
    alive[ranked[:left]] = 1.0
    return replace(population, alive=alive, totals=zeros, weights=zeros)


def _assigned(population: Population, search: Search, draws: Draws) -> Population:
    """Deal the cohorts out anew among the settings tried, as evenly as their number allows."""
    arms = [arm for arm in range(search.cohorts) if population.alive[arm // search.variants]]
    order = np.empty(search.cohorts)
    for turn, cohort in enumerate(draws.shuffled(search.cohorts)):
        order[cohort] = arms[turn % len(arms)]
    return replace(population, order=order)


def _ball(search: Search, places: tuple[float, ...], draws: Draws) -> list[tuple[float, ...]]:
    """Return the settings that a new configuration's cohorts try: its own for one cohort, near ones for several."""
    if search.variants == 1:
        return [places]
    return [draw_beside(search.space, places, draws, search.own_names) for _ in range(search.variants)]
