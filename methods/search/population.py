"""A population of configurations: their settings, their scores, who tries which, and how that goes on after a round.

All of it is public. Members are in *cohorts*, fixed for the whole plan; in each round a cohort tries the settings of
one configuration, or settings beside them, so that every number that is opened apart is a sum over whole cohorts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from methods.search.evolution import (
    DISCOUNT,
    INTENSITY,
    RESAMPLED,
    Draws,
    annealed,
    beside,
    drawn,
    evolved,
    extremes,
)
from methods.search.search_space import Space

ACTIVE = 0.2
"""For which part of an interval FedPop-L goes on after its configuration is new."""
ETA = 3
"""One in so many configurations is kept by successive halving."""
Floats = NDArray[np.float64]
Tensors = Mapping[str, Floats]


@dataclass(frozen=True)
class Search:
    """What a search is given: its `kind`, the `space`, how many configurations, cohorts of each, rounds and interval.

    "evolution" is FedPop: every `interval` rounds the worst are replaced by neighbours of the best (FedPop-G), and
    beside each configuration its cohorts try settings of the members' own near it (FedPop-L), the names of the
    server's beginning with "server". "random" changes nothing, "halving" keeps one in three as it goes.
    """

    kind: str
    space: Space
    configurations: int
    variants: int
    rounds: int
    interval: int

    @property
    def cohorts(self) -> int:
        """How many there are."""
        return self.configurations * self.variants

    @property
    def names(self) -> tuple[str, ...]:
        """Of all settings."""
        return tuple(each.name for each in self.space.settings)

    @property
    def own_names(self) -> tuple[str, ...]:
        """Of the members' settings."""
        return tuple(name for name in self.names if not name.startswith("server"))


@dataclass(frozen=True, eq=False)
class Population:
    """What is known of K configurations, with m cohorts for each and J settings.

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
        """Configurations drawn from the space; each cohort has its own number's."""
        places = [drawn(search.space, draws) for _ in range(search.configurations)]
        tried = [_ball(search, each, draws) for each in places]
        zeros, count = np.zeros(search.configurations), search.configurations
        order = np.arange(search.cohorts, dtype=np.float64)
        return cls(np.array(places), np.array(tried), order, zeros, zeros, zeros, zeros, np.ones(count))

    @classmethod
    def of(cls, groups: Tensors) -> Population:
        """Undo `groups`."""
        return cls(**{name: groups[name] for name in cls.__dataclass_fields__})

    @property
    def groups(self) -> dict[str, Floats]:
        """The arrays by name, as a state holds them."""
        return dict(vars(self))

    @classmethod
    def shapes(cls, search: Search) -> dict[str, tuple[int, ...]]:
        """Of `groups`."""
        count, settings = search.configurations, len(search.names)
        vectors = dict.fromkeys(("scores", "totals", "weights", "age", "alive"), (count,))
        return {
            "places": (count, settings),
            "tried": (count, search.variants, settings),
            "order": (search.cohorts,),
            **vectors,
        }

    def holds(self, search: Search) -> bool:
        """Whether this can be a population of the search: a state that was told may say anything."""
        places = [*self.places, *self.tried.reshape(-1, len(search.names))]
        return (
            all(search.space.holds(tuple(each.tolist())) for each in places)
            and set(self.order.tolist()) <= set(map(float, range(search.cohorts)))
            and set(self.alive.tolist()) <= {0.0, 1.0}
            and bool(self.alive.any())
            and all(self.alive[int(arm) // search.variants] for arm in self.order)
        )

    def arm_of(self, member: int) -> int:
        """Which of the settings tried, counted through, a member has: its cohort's, that of its index modulo K·m."""
        return int(self.order[member % len(self.order)])

    @property
    def best(self) -> int:
        """The configuration with the lowest score of those that are alive, the first of equal ones."""
        return int(np.argmin(np.where(self.alive > 0, self.scores, np.inf)))

    def measured(self, found: Floats) -> Population:
        """After a round in which the configurations scored `found` (K,): discounted means over the interval (Eq. 5)."""
        alive = self.alive > 0
        totals = np.where(alive, DISCOUNT * self.totals + found, self.totals)
        weights = np.where(alive, DISCOUNT * self.weights + 1.0, self.weights)
        scores = np.where(alive, totals / np.where(alive, weights, 1.0), self.scores)
        return replace(self, totals=totals, weights=weights, scores=scores, age=self.age + 1.0)

    def following(self, search: Search, number: int, found: Floats, draws: Draws) -> tuple[Population, list[int]]:
        """Return the population of the round after `number`, and for each configuration whose model it goes on with.

        `found` (K, m) are the scores of what the cohorts tried.
        """
        population, parents = self, list(range(search.configurations))
        if search.kind == "evolution":
            population = _searched_beside(population, search, number, found, draws)
            if number % search.interval == 0:
                population, parents = _replaced(population, search, number, draws)
        if search.kind == "halving":
            population = _halved(population, search, number)
        return _assigned(population, search, draws), parents


def _searched_beside(population: Population, search: Search, number: int, found: Floats, draws: Draws) -> Population:
    """FedPop-L: what the worst cohorts of a new configuration tried becomes a neighbour of what the best did."""
    if search.variants == 1:
        return population
    tried = population.tried.copy()
    resampled = annealed(RESAMPLED, number, search.rounds)
    for config in range(search.configurations):
        intensity = annealed(INTENSITY, int(population.age[config]) - 1, max(1, int(ACTIVE * search.interval)))
        if intensity:
            best, worst = extremes(found[config].tolist())
            for place in worst:
                origin = population.tried[config, best[draws.below(len(best))]].tolist()
                tried[config, place] = evolved(search.space, origin, intensity, resampled, draws, search.own_names)
    return replace(population, tried=tried)


def _replaced(population: Population, search: Search, number: int, draws: Draws) -> tuple[Population, list[int]]:
    """FedPop-G: the worst configurations become neighbours of the best, and go on with their models."""
    places, tried, scores, age = (
        each.copy() for each in (population.places, population.tried, population.scores, population.age)
    )
    intensity, resampled = (annealed(each, number, search.rounds) for each in (INTENSITY, RESAMPLED))
    parents = list(range(search.configurations))
    best, worst = extremes(population.scores.tolist())
    for place in worst:
        parent = best[draws.below(len(best))]
        origin = population.places[parent].tolist()
        places[place] = evolved(search.space, origin, intensity, resampled, draws, search.names)
        tried[place] = _ball(search, tuple(places[place].tolist()), draws)
        parents[place], scores[place], age[place] = parent, population.scores[parent], 0.0
    zeros = np.zeros(search.configurations)
    moved = replace(population, places=places, tried=tried, scores=scores, age=age, totals=zeros, weights=zeros)
    return moved, parents


def _halved(population: Population, search: Search, number: int) -> Population:
    """Successive halving: after equal parts of the rounds one configuration in three stays, until one is left."""
    kept = [search.configurations]
    while kept[-1] > 1:
        kept.append(-(-kept[-1] // ETA))
    ends = {search.rounds * stage // len(kept): left for stage, left in enumerate(kept)}
    if number not in ends:
        return population
    ranked = np.argsort(np.where(population.alive > 0, population.scores, np.inf), kind="stable")
    alive = np.zeros(search.configurations)
    alive[ranked[: ends[number]]] = 1.0
    zeros = np.zeros(search.configurations)
    return replace(population, alive=alive, totals=zeros, weights=zeros)


def _assigned(population: Population, search: Search, draws: Draws) -> Population:
    """Cohorts are dealt out anew among what is tried, as evenly as their number allows."""
    arms = [arm for arm in range(search.cohorts) if population.alive[arm // search.variants]]
    order = np.empty(search.cohorts)
    for turn, cohort in enumerate(draws.shuffled(search.cohorts)):
        order[cohort] = arms[turn % len(arms)]
    return replace(population, order=order)


def _ball(search: Search, places: tuple[float, ...], draws: Draws) -> list[tuple[float, ...]]:
    """What the cohorts of a new configuration try: its own settings, or, where there are several, some beside them."""
    if search.variants == 1:
        return [places]
    return [beside(search.space, places, draws, search.own_names) for _ in range(search.variants)]
