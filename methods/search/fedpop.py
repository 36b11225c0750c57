"""FedPop: settings of another method are tuned while it trains (Chen et al., "FedPop"), by secure sums of scores.

As published, members send their own validation losses. Here they are in fixed cohorts, each of at least colluders +
dropouts + 2 members, of which only sums are opened; records are chosen for validation by a hash of each; and every draw
comes from the digest of the public state, so that members repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from methods.method import Method, Parameters, SumSpec, Traits, UsualMethod
from methods.round import Round
from methods.search.population import Population, Search
from methods.search.population_round import LOSS, SCORED, PopulationRound
from methods.search.search_space import Space
from methods.search.training_space import TrainingSpace, trained_method
from methods.search.validation import LOSS_LEVELS, Chosen
from methods.training.chain import MAX_ROUNDS, require_room
from methods.training.trained_in_rounds import LEAST, MOST, require_within
from secagg.encoding import Block, Kind
from secagg.errors import BadInput
from secagg.heads import Artifact
from secagg.networks import read_tuned
from secagg.privacy import BlockSensitivity, BlockwiseSensitivity, Unit

SEARCHES = ("evolution", "random", "halving")
SCORE_SHARE = {LOSS: 0.15, SCORED: 0.05}
"""Of μ²: an error of the number moves a mean by its own size, a loss's by the largest."""
ROOM = 4
"""How much larger than a cohort's numbers of records noise of a member's own may make them before it is cut."""


@dataclass(frozen=True)
class FedPop(UsualMethod):
    """`rounds` sums in which `population` configurations of `method` train beside each other.

    `fixed` are the method's parameters that stay ("model=mlp:32;clip=10"), `space` those that are tried
    ("rate=log:0.001:1;epochs=1:5;batch=8|16|32"). `search`: "evolution" replaces configurations every `interval` rounds
    (FedPop-G), and where `local` is above 1 tries so many settings of the members' own beside each (FedPop-L);
    "random" changes nothing, "halving" gives up two of three as it goes. `validation` of a member's records judge, at
    most `score_cap` of them, by losses no larger than `largest_loss`. `draw` numbers first populations.
    """

    name: ClassVar[str] = "fedpop"
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    method: str = "fedavg"
    fixed: str = ""
    space: str = "batch=8|16|32|64|128;epochs=1:5;rate=log:0.001:1;server_rate=log:0.1:10"
    search: str = "evolution"
    rounds: int = 30
    population: int = 2
    local: int = 1
    interval: int = 5
    validation: float = 0.2
    largest_loss: float = 3.0
    score_cap: int = 100
    draw: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MAX_ROUNDS or self.search not in SEARCHES:
            problem = f"{self.rounds} rounds of the search {self.search!r}"
            raise BadInput(problem, remedy=f"give 1 to {MAX_ROUNDS} rounds, and one of {', '.join(SEARCHES)}")
        require_within(self, [(1, MOST, ("population", "local", "interval", "score_cap"))])
        if not (0 < self.validation < 1 and LEAST <= self.largest_loss <= MOST and 0 <= self.draw < 1 << 32):
            problem = f"validation is {self.validation}, largest_loss {self.largest_loss}, draw {self.draw}"
            raise BadInput(
                problem, remedy=f"the first is between 0 and 1, the second {LEAST:g} or more, the third no less than 0"
            )
        if self.local > 1 and (self.search != "evolution" or self.fixed_parameters.get("gradients")):
            problem = "settings beside a configuration's are for evolution, and for members that train by themselves"
            raise BadInput(problem, remedy="take local=1")
        self._search  # noqa: B018  # refuses what cannot be

    @property
    def fixed_parameters(self) -> Parameters:
        """The method's parameters that stay. Raises BadInput."""
        from methods import read_planned  # the registry knows this method, too

        return read_planned(self.method, trained_method(self.method, {}).parameters, self.fixed.replace(";", " "))

    @property
    def _trained(self) -> Method:
        return trained_method(self.method, self.fixed_parameters)

    @property
    def _search(self) -> Search:
        method, fixed = self._trained, self.fixed_parameters
        free = tuple(name for name in method.traits.hyperparameters if name not in fixed)
        space = Space.read(self.space, method.parameters, free)
        return Search(self.search, space, self.population, self.local, self.rounds, self.interval)

    @property
    def traits(self) -> Traits:
        """The trained method's."""
        trained = self._trained.traits
        return Traits(
            reads_inputs=trained.reads_inputs,
            needs_unit_length=trained.needs_unit_length,
            shares_one_model=True,
            shows_last_sum=True,
            programs=trained.programs,
        )

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """One kind of sum, `rounds` times. Raises BadInput for what does not fit records, messages or each other."""
        training = self._training(dimension, classes, levels)
        return (self._spec(training.spec),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        """The round of the first population, every model at the public start."""
        training = self._training(dimension, classes, levels)
        chosen = Chosen(self.validation, self.score_cap)
        judged = {"chosen": chosen, "largest": self.largest_loss}
        return PopulationRound.start(self._search, training, self._spec(training.spec), self.draw, **judged)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        """A trained program with the settings that it was trained with. Raises BadInput for anything else."""
        return read_tuned(content)

    def _training(self, dimension: int, classes: int, levels: int) -> TrainingSpace:
        fixed = tuple(sorted(self.fixed_parameters.items()))
        training = TrainingSpace(self.method, fixed, self._search.space, dimension, classes, levels)
        inner, settings = training.at({}), sum(math.prod(each) for each in Population.shapes(self._search).values())
        require_room(self.population * inner.program.size + settings, inner.server)
        return training

    def _spec(self, inner: SumSpec) -> SumSpec:
        """A row of each block for each configuration, and the scores of each cohort.

        A member fills one row, so that lengths stay; a record is trained on or judges, which these lengths, added up,
        more than cover.
        """
        rows = tuple(replace(each, shape=(self.population, *each.shape)) for each in inner.blocks)
        most = 1 if inner.per is Unit.RECORD else self.score_cap * (ROOM if inner.training else 1)
        scores = (
            Block(LOSS, (self._search.cohorts,), bound=most * LOSS_LEVELS, kind=Kind.SCORE),
            Block(SCORED, (self._search.cohorts,), bound=most, kind=Kind.SCORE),
        )
        training = inner.training and replace(
            inner.training,
            times=self.rounds,
            further=_scores_of(1, self._search.cohorts),
            share=sum(SCORE_SHARE.values()),
        )
        return replace(
            inner,
            blocks=(*rows, *scores),
            sensitivities=tuple(self._widened(each) for each in inner.sensitivities),  # type: ignore[arg-type]
            shares=_shares(inner),
            times=self.rounds,
            is_additive=False,
            keeps_state=True,
            training=training,
            groups=self._search.cohorts,
        )

    def _widened(self, known: BlockwiseSensitivity) -> BlockwiseSensitivity:
        rows = tuple(replace(each, size=self.population * each.size) for each in known.blocks)
        most = 1 if known.unit is Unit.RECORD else self.score_cap
        return BlockwiseSensitivity(known.unit, known.adjacency, (*rows, *_scores_of(most, self._search.cohorts)))


def _scores_of(most: int, cohorts: int) -> tuple[BlockSensitivity, ...]:
    """How far so many records move the scores."""
    return (
        BlockSensitivity(LOSS, float(most * LOSS_LEVELS), cohorts),
        BlockSensitivity(SCORED, float(most), cohorts, scalable=True),
    )


def _shares(inner: SumSpec) -> Mapping[str, float]:
    """The scores' part of μ², the rest as the method divides it."""
    names = [block.name for block in inner.blocks]
    known = inner.shares if isinstance(inner.shares, Mapping) else dict.fromkeys(names, 1 / len(names))
    rest = 1 - sum(SCORE_SHARE.values())
    return {**{name: share * rest for name, share in known.items()}, **SCORE_SHARE}
