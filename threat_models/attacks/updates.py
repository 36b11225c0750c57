"""Model updates that an adversary sees: each round's public state, and single members' or summed model changes.

It goes by what training rounds say themselves (`methods/training/training_round.py`): a program, a state, and the work
that makes a move of an opened total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from methods import method_of, sums_of
from methods.round import Local, OpenedTotal, Round
from methods.search.round import PopulationRound
from methods.training.client_update import Scaled
from methods.training.training_round import MODEL, TrainingRound
from secagg.agreement.plan import Plan
from secagg.encoding import Grid
from secagg.networks import Adapted, TrainedModel, record_gradients
from threat_models.attacks.targets import subtract, sums_in
from threat_models.session import AuditRecords, Blocks, Floats, Session
from threat_models.views import View

ONE_MEMBER = "one member's update"
DIFFERENCE = "the difference of two rounds' sums"
NO_UPDATES = "Its sums hold no updates of a model from a public state."
NO_ADAPTER = "No rounds move an adapter."


@dataclass(frozen=True, eq=False)
class Moved:
    """A member's model update, or a sum of updates: the records' owners, and the parameters' change `move` (size,)."""

    name: str
    owners: frozenset[str]
    round: TrainingRound
    move: Floats = field(repr=False)

    @classmethod
    def by(cls, name: str, owners: frozenset[str], round_: TrainingRound, opened: OpenedTotal) -> Moved:
        """Make the update that follows from an opened sum: the change of the model's parameters in a round."""
        return cls(name, owners, round_, round_.state.with_flat(round_.work.mean(opened)).groups[MODEL])

    @property
    def way(self) -> Floats:
        """The direction of the model's update, scaled to length 1."""
        return self.move / max(float(np.linalg.norm(self.move)), 1e-300)


def rounds_in(view: View, *, of_adapters: bool = False) -> tuple[TrainingRound, ...]:
    """Return, in order, the training rounds that an adversary sees; empty where the plan trains no model by rounds.

    Those of a model of features, or, in their place, those of an adapter in an encoder.
    """
    shown = (each.round for each in (*view.earlier, view))
    return tuple(each for each in shown if is_one_chain(each) and is_adapter(each) == of_adapters)


def trains_nothing(session: Session) -> str:
    """Return why attacks on model updates do not apply; "" if the plan's rounds train a model of features."""
    return "" if may_move(session, lambda round_: not is_adapter(round_)) else NO_UPDATES


def may_move(session: Session, is_such: Callable[[TrainingRound], bool]) -> bool:
    """Return whether a training round that the adversary sees (if none, any of the plan) satisfies `is_such`."""
    shown = [each.round for each in (*session.earlier, session)]
    if chains := [round_ for round_ in shown if is_one_chain(round_)]:
        return any(map(is_such, chains))
    return method_of(session.plan).traits.shares_one_model


def is_one_chain(round_: Round | None) -> TypeGuard[TrainingRound]:
    """Return whether a round trains one model, unlike rounds of a population search, which train several."""
    return isinstance(round_, TrainingRound) and not isinstance(round_, PopulationRound)


def is_adapter(round_: TrainingRound) -> bool:
    """Return whether a round trains an adapter in an encoder."""
    return isinstance(round_.program, Adapted)


def moves_in(view: View, *, of_adapters: bool = False) -> tuple[Moved, ...]:
    """Return the model updates that an adversary sees: of single members, of sums of them, of differences of sums."""
    found, shown = [], (*view.earlier, view)
    if not rounds_in(view, of_adapters=of_adapters):
        return ()
    for each in shown:
        if is_one_chain(each.round):
            for target in sums_in(each):
                is_alone = len(target.owners) == 1 and set(each.in_clear) >= set(each.members)
                opened = as_opened(target.blocks, each, sum(owner in each.members for owner in target.owners))
                found.append(Moved.by(ONE_MEMBER if is_alone else target.name, target.owners, each.round, opened))
    return (*found, *(moved for pair in pairwise(shown) for moved in _differ(*pair)))


def _differ(one: View, other: View) -> Iterator[Moved]:
    """Yield the difference of two rounds' sums where one member is in only one of the two: nearly that member's update.

    The others' parts differ as much as the state moved between the rounds. Cosine with the member's own update (digits,
    no noise, rate 0.1): sums of records' gradients 1.00, 0.998 and 0.98 among 5, 20 and 100 members; an epoch's updates
    0.94 to 0.98, 0.4 to 0.6 and 0.7 to 0.8 where the member was away in the later round, far less where in the earlier.
    """
    apart = set(one.members) ^ set(other.members)
    more, fewer = (one, other) if len(one.members) > len(other.members) else (other, one)
    if len(apart) != 1 or not is_one_chain(more.round):
        return
    for owned, left in zip(sums_in(more)[-1:], sums_in(fewer)[-1:], strict=False):
        if owned.owners - left.owners == apart:
            opened = as_opened(subtract(owned.blocks, [left.blocks]), more, 1)
            yield Moved.by(DIFFERENCE, frozenset(apart), more.round, opened)


def as_opened(blocks: Blocks, view: View, clients: int) -> OpenedTotal:
    """Return blocks (named arrays) as the opened sum of a round with this number of clients."""
    return OpenedTotal(blocks, view.plan.grid, view.noise, clients)


def count_rounds(plan: Plan) -> int:
    """Count all rounds of a plan."""
    return sum(kind.times for kind in sums_of(plan))


def states_in(view: View) -> tuple[TrainedModel, ...]:
    """Return the visible models before each round and after the last. Raises BadInput where float32 cannot hold one."""
    rounds = rounds_in(view)
    found = [each.model for each in rounds]
    if rounds and "release" in view.sees:
        step = rounds[-1].finalize(as_opened(view.release, view, len(view.members)))
        last = step.next_round.model if isinstance(step.next_round, TrainingRound) else step.artifact
        found += [last] if isinstance(last, TrainedModel) else []
    return tuple(found)


def gradients_of(round_: TrainingRound, records: AuditRecords, grid: Grid) -> Iterator[Floats]:
    """Yield, in batches, the gradients (…, size) of records' losses at the model with which the round begins."""
    inputs, parameters = inputs_for(round_, records, grid), round_.state.groups[MODEL]
    for rows in record_gradients(round_.program, parameters, inputs, records.labels):
        yield rows.astype(np.float64)


def inputs_of(records: AuditRecords, grid: Grid) -> Floats:
    """Return records (n, d) as inputs of a trained model: scaled so that the quantisation radius has length 1."""
    return records.integers / grid.unit(records.integers.shape[1])


def beyond_class(measure: Callable[[AuditRecords], Floats], records: AuditRecords, public: AuditRecords) -> Floats:
    """Compute records' `measure` (n,) minus its mean over public records of their class (of all if it has none)."""
    usual = measure(public)
    means = {label: usual[public.labels == label].mean() for label in np.unique(public.labels)}
    return np.asarray(measure(records) - np.array([means.get(label, usual.mean()) for label in records.labels]))


def play(round_: TrainingRound, own: AuditRecords, rounds: int, grid: Grid) -> TrainingRound:
    """Simulate `rounds` training rounds on one member's records, without noise, and return the next round."""
    for _ in range(rounds):
        made = round_.contribute(Local(own.examples, round_.program.classes, grid))
        round_ = after(round_, OpenedTotal(made.blocks, grid))
    return round_


def after(round_: TrainingRound, opened: OpenedTotal) -> TrainingRound:
    """Return the next round, with the model state that the server computes from an opened sum."""
    return replace(round_, state=round_.server.apply(round_.state, round_.work.mean(opened)))


def inputs_for(round_: TrainingRound, records: AuditRecords, grid: Grid) -> NDArray[np.float32]:
    """Return records (n, d) as inputs of the model that a round trains, in its scale."""
    return Scaled(grid.unit(records.integers.shape[1]), round_.program.scale)(records.integers)
