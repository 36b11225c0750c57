"""FedPop: tune another method's hyperparameters by evolution while it trains, by secure sums of scores (Chen).

As published, members send their own validation losses. Here they are in fixed cohorts, each of at least colluders +
dropouts + 2 members, of which only sums are opened; records are chosen for validation by a hash of each; and every draw
comes from the digest of the public state, so that members repeat it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from methods import read_planned
from methods.method import Method, Parameters, SumSpec, Traits, UsualMethod
from methods.round import Round
from methods.search.population import Population, Search
from methods.search.round import LOSS, LOSS_LEVELS, SCORED, Chosen, PopulationRound
from methods.search.space import Space, TrainingSpace, trained_method
from methods.training.trained_in_rounds import LEAST, MOST, Count
from methods.training.training_round import MAX_ROUNDS, require_room
from secagg.encoding import Block, Kind
from secagg.errors import BadInput
from secagg.heads import Artifact
from secagg.networks.trained_model import read_tuned
from secagg.privacy import BlockSensitivity, BlockwiseSensitivity, Unit
from secagg.wire import Range, require_in_range

SCORE_SHARE = {LOSS: 0.15, SCORED: 0.05}
"""The scores' shares of μ²: an error of the number moves a mean by that mean, one of the loss by the largest loss."""
ROOM = 4
"""The factor by which a member's own noise may raise a cohort's numbers of records before they are cut."""


@dataclass(frozen=True)
class FedPop(UsualMethod):
    """The method FedPop: `rounds` sums train `population` hyperparameter configurations of `method` side by side.

    `fixed` are the method's parameters that stay ("model=mlp:32;clip=10"), `space` those that are tried
    ("rate=log:0.001:1;epochs=1:5;batch=8|16|32"). `search`: "evolution" replaces configurations every `interval` rounds
    (FedPop-G), and where `local` is above 1 tries so many settings of the members' own beside each (FedPop-L);
    "random" changes nothing, "halving" gives up two of three as it goes, and "evolution-in-halving" does so between
    replacements. `validation` of a member's records judge, at most `score_cap` of them, by losses no larger than
    `largest_loss`. `draw` numbers first populations.
    """

    name: ClassVar[str] = "fedpop"
    libraries: ClassVar[tuple[str, ...]] = ("torch",)
    method: Annotated[str, "Method that trains, and whose settings the search tries"] = "fedavg"
    fixed: Annotated[str, "Parameters of that method in all configurations: NAME=VALUE, joined by ;"] = ""
    space: Annotated[str, "Settings to try: NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A|B, joined by ;"] = (
        "batch=8|16|32|64|128;epochs=1:5;rate=log:0.001:1;server_rate=log:0.1:10"
    )
    search: Annotated[
        Literal["evolution", "random", "halving", "evolution-in-halving"],
        "How configurations change: the worst are replaced, none is, they are dropped, or replaced and dropped",
    ] = "evolution"
    rounds: Annotated[int, Range(1, MAX_ROUNDS)] = 30
    population: Annotated[Count, "Configurations that train side by side"] = 2
    local: Annotated[Count, "Settings that evolution tries for members of one configuration; 1: its own alone"] = 1
    interval: Annotated[Count, "Rounds between two replacements of configurations"] = 5
    validation: Annotated[
        float, Range(0, 1, above=True, below=True), "Share of a member's records that judge configurations"
    ] = 0.2
    largest_loss: Annotated[float, Range(LEAST, MOST), "Loss to which a record's larger loss is lowered"] = 3.0
    score_cap: Annotated[Count, "Most records by which a member judges"] = 100
    draw: Annotated[int, Range(0, (1 << 32) - 1), "Number of the public draw of the first configurations"] = 0

    def __post_init__(self) -> None:
        require_in_range(self)
        search = self._search  # refuses what cannot be
        if self.local > 1 and (not search.evolves or self.fixed_parameters.get("gradients")):
            problem = "settings beside a configuration's are for evolution, and for members that train by themselves"
            raise BadInput(problem, remedy="take local=1")

    @property
    def fixed_parameters(self) -> Parameters:
        """The tuned method's parameters that are the same in all configurations. Raises BadInput."""
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
        trained = self._trained.traits
        return Traits(
            reads_inputs=trained.reads_inputs,
            needs_unit_length=trained.needs_unit_length,
            shares_one_model=True,
            shows_last_sum=True,
            programs=trained.programs,
        )

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        training = self._training(dimension, classes, levels)
        return (self._spec(training.spec),)

    def begin(self, dimension: int, classes: int, levels: int) -> Round:
        training = self._training(dimension, classes, levels)
        chosen = Chosen(self.validation, self.score_cap)
        judged = {"chosen": chosen, "largest": self.largest_loss}
        return PopulationRound.start(self._search, training, self._spec(training.spec), self.draw, **judged)

    def read_artifact(self, content: bytes) -> tuple[Artifact, dict[str, str]]:
        return read_tuned(content)

    def _training(self, dimension: int, classes: int, levels: int) -> TrainingSpace:
        fixed = tuple(sorted(self.fixed_parameters.items()))
        training = TrainingSpace(self.method, fixed, self._search.space, dimension, classes, levels)
        inner, settings = training.at({}), sum(math.prod(each) for each in Population.shapes(self._search).values())
        require_room(self.population * inner.program.size + settings, inner.server)
        return training

    def _spec(self, inner: SumSpec) -> SumSpec:
        """Return the sum: each block has a row for each configuration, and the scores an entry for each cohort.

        A member fills one row, so that lengths stay; a record is trained on or judges, which these lengths, added up,
        more than cover.
        """
        rows = tuple(replace(each, shape=(self.population, *each.shape)) for each in inner.blocks)
        shares = inner.shares  # the scores have their part, the rest is divided as the method divides it
        if isinstance(shares, str):
            shares = {block.name: 1 / len(inner.blocks) for block in inner.blocks}
        rest = 1 - sum(SCORE_SHARE.values())
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
            shares={**{name: share * rest for name, share in shares.items()}, **SCORE_SHARE},
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
    """Return the sensitivity of the scores of so many cohorts to `most` records."""
    return (
        BlockSensitivity(LOSS, float(most * LOSS_LEVELS), cohorts),
        BlockSensitivity(SCORED, float(most), cohorts, scalable=True),
    )
