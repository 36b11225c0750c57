"""Updates in a view of training: each round's public state, and the moves by members' updates and their sums.

It goes by what the rounds of a chain say themselves (`chain.py`): a program, a state, and the work that makes a
move of an opened total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeGuard

import numpy as np

from methods import method_of, sums_of
from methods.round import Local, Opened, Round
from methods.search.round import PopulationRound
from methods.training.client_update import Scaled
from methods.training.training_round import MODEL, TrainingRound
from secagg.agreement.plan import Plan
from secagg.encoding import Grid
from secagg.networks import Adapted, TrainedModel, record_gradients
from threat_models.attacks.targets import Target, subtract, sums_in
from threat_models.session import AuditRecords, Blocks, Floats, Session
from threat_models.views import View

ONE_MEMBER = "one member's update"
DIFFERENCE = "the difference of two rounds' sums"


@dataclass(frozen=True, eq=False)
class Moved:
    """One update, or a sum of updates: whose records are behind it, and the `move` (size,) of its round's model."""

    name: str
    owners: frozenset[str]
    round: TrainingRound
    move: Floats = field(repr=False)


def rounds_in(view: View, *, of_adapters: bool = False) -> tuple[TrainingRound, ...]:
    """The rounds of a chain that a view shows, in order; none where its plan trains nothing by rounds.

    Those of a model of features, or, in their place, those of an adapter in an encoder.
    """
    shown = (each.round for each in (*view.earlier, view))
    return tuple(each for each in shown if is_one_chain(each) and _is_adapter(each) == of_adapters)


def trains_nothing(session: Session) -> str:
    """Why attacks on updates of a model have nothing to work on; "" where the plan's rounds move one of features."""
    why = "Its sums hold no updates of a model from a public state."
    return "" if may_move(session, lambda round_: not _is_adapter(round_)) else why


def tunes_nothing(session: Session) -> str:
    """Why attacks on adapters have nothing to work on; "" where the plan's rounds move one."""
    return "" if may_move(session, _is_adapter) else "No rounds move an adapter."


def may_move(session: Session, is_such: Callable[[TrainingRound], bool]) -> bool:
    """Whether the plan's rounds move something by which `is_such`; they may where none of them is at hand."""
    shown = [each.round for each in (*session.earlier, session)]
    if chains := [round_ for round_ in shown if is_one_chain(round_)]:
        return any(map(is_such, chains))
    return method_of(session.plan).traits.shares_one_model


def is_one_chain(round_: Round | None) -> TypeGuard[TrainingRound]:
    """Whether a round moves one model: the sums of a population's are of one each, which these attacks do not part."""
    return isinstance(round_, TrainingRound) and not isinstance(round_, PopulationRound)


def _is_adapter(round_: TrainingRound) -> bool:
    return isinstance(round_.program, Adapted)


def moves_in(view: View, *, of_adapters: bool = False) -> tuple[Moved, ...]:
    """Moves of the model that a view shows, round by round: by each member, by their sum, and differences of sums."""
    found, shown = [], (*view.earlier, view)
    if len(rounds_in(view, of_adapters=of_adapters)) < 1:
        return ()
    for each in shown:
        if is_one_chain(each.round):
            found += [_move_of(target, each.round, each) for target in sums_in(each)]
    return (*found, *(moved for pair in pairwise(shown) for moved in _differ(*pair)))


def _differ(one: View, other: View) -> Iterator[Moved]:
    """Yield the difference of two rounds' sums where one member is in one of them alone: nearly that member's update.

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
            blocks = subtract(owned.blocks, [left.blocks])
            yield Moved(DIFFERENCE, frozenset(apart), more.round, _move(more.round, _as_opened(blocks, more, 1)))


def sums_of_rounds(view: View) -> tuple[Moved, ...]:
    """Of each round of a chain that a view shows, the sum of most members' updates; () where one shows none."""
    moves = moves_in(view)
    found = [[move for move in moves if move.round is each] for each in rounds_in(view)]
    return tuple(max(each, key=lambda move: len(move.owners)) for each in found) if all(found) else ()


def _move_of(target: Target, round_: TrainingRound, view: View) -> Moved:
    name = ONE_MEMBER if len(target.owners) == 1 and set(view.in_clear) >= set(view.members) else target.name
    clients = sum(owner in view.members for owner in target.owners)
    return Moved(name, target.owners, round_, _move(round_, _as_opened(target.blocks, view, clients)))


def _move(round_: TrainingRound, opened: Opened) -> Floats:
    """Which way an opened total moves the model's part of the state."""
    return round_.state.with_flat(round_.work.mean(opened)).groups[MODEL]


def _as_opened(blocks: Blocks, view: View, clients: int) -> Opened:
    return Opened(blocks, view.plan.grid, view.noise, clients)


def count_rounds(plan: Plan) -> int:
    """Count the rounds that a plan has in all."""
    return sum(kind.times for kind in sums_of(plan))


def states_in(view: View) -> tuple[TrainedModel, ...]:
    """The models before each round that a view shows, and after the last. Raises BadInput where one is none."""
    rounds = rounds_in(view)
    found = [each.model for each in rounds]
    if rounds and "release" in view.sees:
        step = rounds[-1].finalize(_as_opened(view.release, view, len(view.members)))
        after = step.next_round.model if isinstance(step.next_round, TrainingRound) else step.artifact
        found += [after] if isinstance(after, TrainedModel) else []
    return tuple(found)


def gradients_of(round_: TrainingRound, records: AuditRecords, grid: Grid) -> Iterator[Floats]:
    """Yield the gradients of the records' losses at the state that a round begins at, some rows (…, size) at a time."""
    inputs = Scaled(grid.unit(records.integers.shape[1]), round_.program.scale)(records.integers)
    for rows in record_gradients(round_.program, round_.state.groups[MODEL], inputs, records.labels):
        yield rows.astype(np.float64)


def inputs_of(records: AuditRecords, grid: Grid) -> Floats:
    """Records (n, d) as trained models take them: in units of a record's length."""
    return records.integers / grid.unit(records.integers.shape[1])


def beyond_class(measure: Callable[[AuditRecords], Floats], records: AuditRecords, public: AuditRecords) -> Floats:
    """A measure of records (n,), less its mean over public ones of their class; over all where there is none."""
    usual = measure(public)
    means = {label: usual[public.labels == label].mean() for label in np.unique(public.labels)}
    beyond: Floats = measure(records) - np.array([means.get(label, usual.mean()) for label in records.labels])
    return beyond


def play(round_: TrainingRound, own: AuditRecords, rounds: int, grid: Grid) -> TrainingRound:
    """Play so many rounds over one member's records, exactly: the round after."""
    for _ in range(rounds):
        made = round_.contribute(Local(own.examples, round_.program.classes, grid))
        move = round_.work.mean(Opened(made.blocks, grid))
        round_ = replace(round_, state=round_.server.apply(round_.state, move))
    return round_
