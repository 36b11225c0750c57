"""Infer class shares of a cohort from the mean losses that a search opens (FedPop).

The mean loss of a group of members at a known model is the mean of the classes' losses, weighted by the group's class
shares; what a class loses at a model public records tell. Rounds at different models are equations about the same
shares, solved for those nearest to the public ones. A group is a cohort, whose scores are opened, or a member, where
its own part is to be seen. Where cohorts try settings beside each other (FedPop-L) scores are of models that members
have moved, and the attack takes them for those that were broadcast: there it withstands nothing, as of fewer rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from methods import sums_of
from methods.search.round import LOSS, LOSS_LEVELS, SCORED, PopulationRound
from methods.training.client_update import Scaled
from methods.training.training_round import MODEL
from secagg.encoding import Kind
from secagg.networks import TrainedModel
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.disclosure.label_counts import (
    class_shares,
    compare_errors,
    records_of_adversary,
    split_by_class,
)
from threat_models.attacks.updates import count_rounds
from threat_models.estimation.intervals import Interval
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Blocks, Floats, Knowledge
from threat_models.views import View

_GOOD = "no less than {baseline}, by public records"
SHARES = Metric("class_shares.scores", "error of a class share, by scores", SHARE, _GOOD, leads=True)
ROUNDS = Metric("scored_rounds", "rounds whose scores were used", "rounds")
PRIOR = 0.3
"""How far a group's class share is supposed to be from the public one, as a standard deviation."""
FIRM = 1e3
"""Weight of the equation that shares add up to 1."""


@dataclass(frozen=True, eq=False)
class Equation:
    """One round's scores of one group: `loss` the mean, known to ± `error`, at a model where classes lose `means` (C,).

    In units of the largest loss.
    """

    loss: float
    error: float
    means: Floats = field(repr=False)


@dataclass(frozen=True, eq=False)
class LossesAtModel:
    """Losses of records at one model: `means` (C,) and the `spread` within classes, in units of the largest loss."""

    means: Floats
    spread: float


def losses_at(view: View, config: int, records: AuditRecords) -> Floats:
    """Return the clipped losses (n,) of records at the model of a configuration, in units of the largest."""
    round_ = _round_of(view)
    inputs = Scaled(view.plan.grid.unit(records.integers.shape[1]), round_.program.scale)(records.integers)
    model = TrainedModel.of(round_.program, round_.state.groups[MODEL][config])
    scores = model.scores(inputs.astype(np.float64))
    top = scores.max(axis=1, keepdims=True)
    found = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0] - scores[np.arange(len(records)), records.labels]
    return np.asarray(np.minimum(found, round_.largest) / round_.largest)


def shares_from(equations: Sequence[Equation], prior: Floats) -> Floats:
    """Return the class shares (C,) that explain the scores: least squares, none below 0, near the public ones."""
    classes = len(prior)
    rows = [each.means / each.error for each in equations] + [np.eye(classes) / PRIOR, np.full((1, classes), FIRM)]
    right = [np.array([each.loss / each.error]) for each in equations] + [prior / PRIOR, np.array([FIRM])]
    found, _ = nnls(np.vstack(rows), np.concatenate(right))
    return class_shares(found)


def _round_of(view: View) -> PopulationRound:
    """The round of a view; `_run` takes no others."""
    return cast("PopulationRound", view.round)


class _Models:
    """Losses of the adversary's records at every model of every round, computed once."""

    def __init__(self, views: Sequence[View], records: AuditRecords, classes: int) -> None:
        self._views, self._records, self._classes = views, records, classes
        self._known: dict[tuple[int, int], LossesAtModel] = {}

    def at(self, place: int, config: int) -> LossesAtModel:
        """At the model of a configuration in the round of the view at this place."""
        if (place, config) not in self._known:
            losses, labels = losses_at(self._views[place], config, self._records), self._records.labels
            counts = np.maximum(np.bincount(labels, minlength=self._classes), 1)
            means = np.bincount(labels, losses, minlength=self._classes) / counts
            self._known[place, config] = LossesAtModel(means, float((losses - means[labels]).std()))
        return self._known[place, config]

    def equation(self, place: int, config: int, lost: float, count: float, noise: tuple[float, float]) -> Equation:
        """Of a sum of losses, a number of records, and the σ of both."""
        judged, number = self.at(place, config), max(count, noise[1], 1.0)
        loss = min(max(lost / LOSS_LEVELS / number, 0.0), 1.0)
        error = math.hypot(judged.spread / math.sqrt(number), noise[0] / LOSS_LEVELS / number, loss * noise[1] / number)
        return Equation(loss, max(error, 1 / LOSS_LEVELS), judged.means)


def _groups(views: Sequence[View], models: _Models) -> Iterator[tuple[tuple[str, ...], list[Equation]]]:
    """Every group's members, and its equations: members alone where all parts are in clear, else cohorts."""
    first = views[0]
    alone = set(first.in_clear) >= set(first.members)
    cohorts = _round_of(first).search.cohorts
    places = range(len(first.clients)) if alone else range(cohorts)
    for group in places:
        members = (first.clients[group],) if alone else first.clients[(group - 1) % cohorts :: cohorts]
        equations = []
        for place, view in enumerate(views):
            seen: Blocks = view.in_clear.get(members[0], {}) if alone else view.release
            if not seen:
                continue
            arm = _round_of(view).population.arm_of(group + alone)
            sigma = _sigma(view, alone)
            lost, count = float(seen[LOSS][arm]), float(seen[SCORED][arm])
            config = arm // _round_of(view).search.variants
            equations.append(models.equation(place, config, lost, count, sigma))
        if equations:
            yield tuple(members), equations


def _sigma(view: View, alone: bool) -> tuple[float, float]:
    """σ of the noise on a group's two numbers, in their own units; a member's own where that is what is seen."""
    if view.plan.further_sigmas:
        members = 1 if alone else -(-len(view.members) // _round_of(view).search.cohorts)
        return tuple(math.sqrt(members) * view.plan.further_sigmas[name] for name in (LOSS, SCORED))  # type: ignore[return-value]
    if view.noise is None:
        return 0.0, 0.0
    part = 1 / math.sqrt(len(view.members)) if alone else 1.0
    return view.noise[LOSS].of_record.sigma * part, view.noise[SCORED].of_record.sigma * part


def _compare(found: Sequence[tuple[Floats, Floats]], prior: Floats) -> tuple[Measure, Interval | None]:
    """The errors of guessed shares beside those of the public ones, for pairs (guessed, true) of shares."""
    guessed = np.concatenate([np.abs(guess - true) for guess, true in found])
    blind = np.concatenate([np.abs(prior - true) for _, true in found])
    return compare_errors(SHARES, guessed, blind)


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    knowledge, name = knowledge.by_class, SCORE_INFERENCE.name
    scored = [each for each in (*views[0].earlier, views[0]) if isinstance(each.round, PopulationRound)]
    if not scored:
        return Finding(name, "", Verdict.NOT_APPLICABLE, "It is not told at which models the scores were measured.")
    classes, public = len(views[0].plan.classes), records_of_adversary(knowledge)
    models, prior = _Models(scored, public, classes), class_shares(np.bincount(public.labels, minlength=classes))
    controls = tuple(_make_control(scored, models, knowledge.candidates, prior, is_true) for is_true in (True, False))
    progress(1, 2)
    pairs, sizes = [], []
    for members, equations in _groups(scored, models):
        # The class shares of a group's records, as a simulation knows them; of its known records else; None for none.
        counts = np.zeros(classes)
        owners = np.array(knowledge.owners, dtype=object)
        for member in members:
            held: Mapping[str, NDArray[np.int64]] = knowledge.held
            own = knowledge.candidates.labels[owners == member]
            counts += held[member] if member in held else np.bincount(own, minlength=classes)
        true = class_shares(counts) if counts.sum() else None
        if true is not None:
            pairs.append((shares_from(equations, prior), true))
            sizes.append(len(members))
    progress(2, 2)
    if not pairs:
        why = "No group's records are known, so that nothing can be compared."
        return Finding(name, "", Verdict.INCONCLUSIVE, why, controls=controls)
    measure, gain = _compare(pairs, prior)
    how = "no" if gain is None or gain.low <= 0 else "a"
    sizes_told = " to ".join(map(str, sorted({min(sizes), max(sizes)})))
    of_whom = "a member" if max(sizes) == 1 else f"a cohort of {sizes_told} members"
    rounds = count_rounds(views[0].plan)
    guess = f"The scores of {len(scored)} of {rounds} rounds give {how} better guess of the class shares of {of_whom}"
    is_whole = len(scored) == rounds and _round_of(scored[0]).search.variants == 1
    succeeded, withstood = gain is not None and gain.low > 0, is_whole and gain is not None and gain.high <= 0
    found = (measure, ROUNDS.exact(float(len(scored))))
    sentence = f"{guess} than public records do."
    return Finding(name, "", decide(succeeded, withstood, controls), sentence, found, controls=controls)


def _make_control(
    scored: Sequence[View], models: _Models, records: AuditRecords, prior: Floats, is_true: bool
) -> Control:
    """Try the exact scores of unequal members at the models that were broadcast; or of others than they are."""
    parts, classes = list(split_by_class(records).values()), len(prior)
    true = [class_shares(np.bincount(part.labels, minlength=classes)) for part in parts]
    if not is_true:
        true = [*true[len(true) // 2 :], *true[: len(true) // 2]]
    pairs = []
    for part, shares in zip(parts, true, strict=True):
        equations = []
        for place, view in enumerate(scored):
            for config in range(_round_of(view).search.configurations):
                lost = float(losses_at(view, config, part).sum()) * LOSS_LEVELS
                equations.append(models.equation(place, config, lost, float(len(part)), (0.0, 0.0)))
        pairs.append((shares_from(equations, prior), shares))
    _, gain = _compare(pairs, prior)
    name = "exact scores of members with unequal classes" if is_true else "scores of other members than these"
    return Control(name, is_true, gain is not None and gain.low > 0)


SCORE_INFERENCE = Attack(
    name="score_inference",
    title="Class shares of cohorts, from the scores of a search",
    paper='Chen et al., "FedPop" (members send validation losses); Ateniese et al. 2015 (property inference)',
    needs=("release", LOSS, SCORED),
    run=_run,
    metrics=(SHARES, ROUNDS),
    trusts_owners=True,
    meaning="Class shares of a cohort are known from how well models score on it.",
    remedy="Draw larger cohorts, or plan with a finite epsilon.",
    lacks=lambda session: (
        "" if any(kind.has(Kind.SCORE) for kind in sums_of(session.plan)) else "Its sums hold no scores."
    ),
)
