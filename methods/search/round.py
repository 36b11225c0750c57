"""A search round: each cohort of clients trains and scores one configuration's settings, all of them in one sum.

A block of the training method becomes one of K rows, a row for each configuration, of which a member fills one: its
length is what it was, and so is what noise a promise takes. Beside them are the scores, (Σ min(loss, L), Σ n) for each
cohort, over records that nobody trains on. What is judged is the configuration's model as it was broadcast, which its
settings, the server's too, have made in the rounds before; where cohorts try several settings beside each other
(FedPop-L), it is that model moved by what the member sends, as published. So a record's score depends on that record
and on what was broadcast, or sent within the member's promise; never on what a member trained without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from methods.method import SumSpec
from methods.round import Contribution, Examples, Local, OpenedTotal, Round, Step
from methods.search.population import Draws, Population, Search
from methods.search.space import TrainingSpace, settings_text
from methods.slots.slots import MOST_SLOTS, slot_of
from methods.training.client_update import as_trained, program_inputs
from methods.training.training_round import MODEL, TrainingRound, for_unit_length, require_float32
from secagg.crypto.labels import digest, number
from secagg.encoding import Grid, Integers
from secagg.encoding.updates import State
from secagg.errors import BadInput, MalformedMessage
from secagg.networks import Program
from secagg.networks.trained_model import TunedModel
from secagg.networks.training import record_losses
from secagg.privacy import Unit, discrete_gaussian

LOSS_LEVELS = 1 << 10
"""The largest loss of a record, in integers."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Chosen:
    """A rule that picks validation records by a public hash: a fraction `share` of all, at most `most`.

    Both by rules under which a record more or less changes no other's lot but that of one at most: those beyond `most`
    have the largest hashes, and are neither judged by nor trained on.
    """

    share: float
    most: int

    def __call__(self, records: Integers) -> tuple[NDArray[np.bool_], Integers]:
        """Return the mask (n,) of the records (n, d) that may be trained on, and the places of those that judge."""
        slots = slot_of(records, MOST_SLOTS)
        trained = slots >= int(self.share * MOST_SLOTS)
        judging = np.flatnonzero(~trained)
        ranked = judging[np.argsort(slots[judging], kind="stable")]
        return trained, ranked[: self.most]


def score(
    program: Program,
    model: Floats,
    inputs: NDArray[np.float32],
    examples: Examples,
    largest: float,
    *,
    tolerant: bool = False,
) -> int:
    """Return the integer sum of records' losses, each cut at `largest`, truncated to units of `largest`/`LOSS_LEVELS`.

    A loss that is no number counts as the largest, and so, with `tolerant`, does that of a record on which the program
    fails. So a record adds 0 … `LOSS_LEVELS`, whatever the others are.
    """
    losses = record_losses(program, model, inputs, examples.labels, tolerant=tolerant).astype(np.float64)
    shortened = np.minimum(np.nan_to_num(losses, nan=largest, posinf=largest), largest)
    return int(np.trunc(np.maximum(shortened, 0.0) * (LOSS_LEVELS / largest)).sum())


LOSS, SCORED = "loss", "scored"
"""Names of the scores' blocks: the sum of records' losses and their number, for each cohort."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationRound(TrainingRound):
    """Round `number` of a search; its state holds K models, their optimiser moments, and a `Population` of settings.

    `training` gives the method's round at any settings, `spec` is what is summed. `chosen` says which records judge,
    and `largest` is the most that one of them can lose.
    """

    search: Search
    training: TrainingSpace
    spec: SumSpec
    chosen: Chosen
    largest: float

    @classmethod
    def start(cls, search: Search, training: TrainingSpace, spec: SumSpec, draw: int, **judged: object) -> Round:
        """Return the first round: models at public initial weights, settings drawn from the public number `draw`."""
        inner = training.at({})
        # the text of the space is protocol, the names of its classes included
        draws = Draws(digest("first population", repr(search.space).encode(), number(draw)))
        models = np.tile(inner.state.groups[MODEL], (search.configurations, 1))
        state = State({MODEL: models, **Population.first(search, draws).groups}, {}, 0)
        common = inner.program, inner.work, inner.server, search.rounds, state
        return cls(*common, search=search, training=training, spec=spec, **judged)  # type: ignore[arg-type]

    @cached_property
    def population(self) -> Population:
        """The `Population` of settings and scores in the round's public state."""
        names = Population.shapes(self.search)
        return Population.of({name: self.state.groups[name] for name in names})

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the state's arrays: K models (K, size), after round 1 also moments, and the population's arrays."""
        models = dict.fromkeys((MODEL, *self.server.moments), (self.search.configurations, self.program.size))
        return {**models, **Population.shapes(self.search)}

    @property
    def moments(self) -> tuple[str, ...]:
        """An empty tuple: the optimiser moments of each tried configuration lie in the model state itself."""
        return ()

    @property
    def model(self) -> TunedModel:
        """The best configuration's model, with its settings. Raises BadInput where float32 cannot hold it."""
        best = self.population.best
        scaled = for_unit_length(self.program, self.state.groups[MODEL][best])
        settings = settings_text(self._settings(self.population.places[best]))
        return TunedModel.tuned(self.program, scaled, settings, float(self.population.scores[best]))

    def contribute(self, local: Local) -> Contribution:
        further = local.further  # noise on the member's own two numbers, drawn before a record is touched
        noise = np.zeros(2, dtype=np.int64)
        if further:
            noise = discrete_gaussian([(further[LOSS], 1), (further[SCORED], 1)], local.randomness)
        arm = self.population.arm_of(local.member)
        config = arm // self.search.variants
        tried = self.population.tried.reshape(self.search.cohorts, -1)
        inner = self.training.at(self._settings(tried[arm]))
        trained, judging = local.examples.once(self.chosen)
        model = self.state.groups[MODEL][config]
        part = inner.work.contribute(model, _part(local, trained))
        if self.search.variants > 1:
            model = model + inner.work.mean(OpenedTotal(part.blocks, local.grid, members=(local.member,)))
        judged = _part(local, judging)
        inputs = program_inputs(judged, self.program)
        lost = score(self.program, as_trained(model), inputs, judged.examples, self.largest, tolerant=local.has_noise)
        rows = {name: (config, block) for name, block in part.blocks.items()}
        rows |= {LOSS: (arm, lost + noise[0]), SCORED: (arm, len(judging) + noise[1])}
        blocks = {}
        for block in self.spec.blocks:
            blocks[block.name] = np.zeros(block.shape, dtype=np.int64)
            place, row = rows[block.name]
            limit = np.iinfo(np.int64).max if self.spec.per is Unit.RECORD else block.bound
            blocks[block.name][place] = np.clip(row, -limit, limit)  # noise may make it larger
        return Contribution(blocks, part.state)

    def finalize(self, opened: OpenedTotal) -> Step:
        """Return the next round: all models updated, then new settings drawn from a digest of the public state.

        After the last round the model of the best.
        """
        found, of_arms = self._scores(opened)
        population = self.population.measured(found)
        groups, moments = self._move_models(opened)
        known = State({MODEL: groups, **moments, **population.groups}, {}, self.state.step + 1)
        if self.number == self.rounds:
            return Step(replace(self, state=known).model)
        draws = Draws(digest("next population", known.digest))
        population, parents = population.following(self.search, self.number, of_arms, draws)
        models = {name: known.groups[name][parents] for name in (MODEL, *self.server.moments)}
        state = State({**models, **population.groups}, {}, known.step)
        return Step(next_round=replace(self, number=self.number + 1, state=state))

    def _scores(self, opened: OpenedTotal) -> tuple[Floats, Floats]:
        """Return the mean loss of each configuration (K,), and of each of its cohorts (K, m): at most the largest.

        Where noise leaves a number of records below its σ, the mean is taken over σ; where there are none, it is the
        largest.
        """
        lost, count = (opened.blocks[name] / opened.multiplier(name) for name in (LOSS, SCORED))
        sigma = opened.noise[SCORED].of_record.sigma if opened.noise else 0.0
        arms = np.array([_mean_loss(*pair, sigma, self.largest) for pair in zip(lost, count, strict=True)])
        shape = self.search.configurations, self.search.variants
        lost, count = (each.reshape(shape).sum(axis=1) for each in (lost, count))
        whole = np.array([_mean_loss(*pair, sigma, self.largest) for pair in zip(lost, count, strict=True)])
        return whole, arms.reshape(shape)

    def _move_models(self, opened: OpenedTotal) -> tuple[Floats, dict[str, Floats]]:
        """Return every configuration's model and moments after its own step, (K, size) each.

        A model that leaves the numbers that programs compute with begins at the public start again, as if it were new.
        """
        states = [self._stepped(config, opened) for config in range(self.search.configurations)]
        models = np.array([each.groups[MODEL] for each in states])
        return models, {
            name: np.array([each.moments.get(name, np.zeros(self.program.size)) for each in states])
            for name in self.server.moments
        }

    def _stepped(self, config: int, opened: OpenedTotal) -> State:
        names = self.server.moments if self.number > 1 else ()
        moments = {name: self.state.groups[name][config] for name in names}
        state = State({MODEL: self.state.groups[MODEL][config]}, moments, self.state.step)
        if not self.population.alive[config]:
            return state
        inner = self.training.at(self._settings(self.population.places[config]))
        arms = {each: self.population.arm_of(each) for each in opened.members}
        members = tuple(each for each, arm in arms.items() if arm // self.search.variants == config)
        blocks = {each.name: opened.blocks[each.name][config] for each in self.training.spec.blocks}
        own = replace(opened, blocks=blocks, members=members, clients=max(1, len(members)))
        try:
            moved = inner.server.apply(state, inner.work.mean(own))
            require_float32(moved)
        except BadInput:
            zero = inner.server.apply(inner.state, np.zeros(self.program.size))
            return replace(zero, step=self.state.step + 1)
        return moved

    def decode_broadcast(self, broadcast: bytes, grid: Grid) -> Round:
        told = super().decode_broadcast(broadcast, grid)
        if not told.population.holds(self.search):  # type: ignore[attr-defined]  # it is another of these
            raise MalformedMessage("ModelState", "its population is none of the plan's search")
        return told

    def _settings(self, places: Floats) -> dict[str, str | float]:
        return self.search.space.at(tuple(places.tolist()))


def _part(local: Local, rows: NDArray[np.bool_] | Integers) -> Local:
    """Return the member's data with the records at `rows` alone."""
    inputs = None if local.inputs is None else local.inputs[rows]
    return replace(local, examples=local.examples.take(rows), inputs=inputs)


def _mean_loss(lost: float, count: float, sigma: float, largest: float) -> float:
    """Return (Σ loss)/(Σ n), cut to 0 … `largest`."""
    if count <= 0 and not sigma:
        return largest
    return float(min(max(lost / max(count, sigma, 1.0) * (largest / LOSS_LEVELS), 0.0), largest))
