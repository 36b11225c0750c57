"""Infer the class shares of a cohort from the mean losses of models in a hyperparameter search (FedPop).

The mean loss of a group of members at a known model is the mean of the classes' losses, weighted by the group's class
shares; what a class loses at a model public records tell. Rounds at different models are equations about the same
shares, solved for those nearest to the public ones. A group is a cohort, whose scores are opened, or a member, where
its own part is to be seen. Where cohorts try settings beside each other (FedPop-L) scores are of models that members
have moved, and the attack takes them for those that were broadcast: there it withstands nothing, as of fewer rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from scipy.optimize import nnls

from methods import sums_of
from methods.search.round import LOSS, LOSS_LEVELS, SCORED, PopulationRound
from methods.training.training_round import MODEL
from secagg.encoding import Kind
from secagg.networks import TrainedModel
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.disclosure import label_counts
from threat_models.attacks.updates import count_rounds, inputs_for
from threat_models.estimation.intervals import ConfidenceInterval
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge
from threat_models.views import View

NOTHING = "Its sums hold no scores."
_GOOD = "no less than {baseline}, by public records"
SHARES = Metric("class_shares.scores", "error of a class share, by scores", SHARE, _GOOD, leads=True)
ROUNDS = Metric("scored_rounds", "rounds whose scores were used", "rounds")
PRIOR = 0.3
"""Standard deviation of a group's class share about the public class share, as the attack assumes it."""
FIRM = 1e3
"""Weight of the equation by which class shares add up to 1."""


@dataclass(frozen=True, eq=False)
class Equation:
    """A linear equation for a group's class shares: its mean `loss` (± `error`) and the mean loss of each class (C,).

    All at one round's model. In units of the largest loss.
    """

    loss: float
    error: float
    means: Floats = field(repr=False)


Judged = list[list[tuple[Floats, float]]]
"""For each round and configuration: the mean losses of classes (C,) under its model, and the spread within classes."""


def _losses_at(view: View, config: int, records: AuditRecords) -> Floats:
    """Compute the losses (n,) of records under a configuration's model, clipped at the largest and in its units."""
    round_ = _round_of(view)
    model = TrainedModel.of(round_.program, round_.state.groups[MODEL][config])
    scores = model.scores(inputs_for(round_, records, view.plan.grid).astype(np.float64))
    top = scores.max(axis=1, keepdims=True)
    found = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0] - scores[np.arange(len(records)), records.labels]
    return np.asarray(np.minimum(found, round_.largest) / round_.largest)


def shares_from(equations: Sequence[Equation], prior: Floats) -> Floats:
    """Solve equations for class shares (C,) by least squares, with none below 0, near the public shares `prior`."""
    classes = len(prior)
    rows = [each.means / each.error for each in equations] + [np.eye(classes) / PRIOR, np.full((1, classes), FIRM)]
    right = [np.array([each.loss / each.error]) for each in equations] + [prior / PRIOR, np.array([FIRM])]
    found, _ = nnls(np.vstack(rows), np.concatenate(right))
    return label_counts.class_shares(found)


def _round_of(view: View) -> PopulationRound:
    """Return the round of a view, which is a population's in all views that `_run` uses."""
    return cast("PopulationRound", view.round)


def _judge_models(views: Sequence[View], records: AuditRecords, classes: int) -> Judged:
    """Compute the classes' mean losses under every model of every round, by the adversary's records."""
    counts = np.maximum(np.bincount(records.labels, minlength=classes), 1)
    found: Judged = [[] for _ in views]
    for view, judged in zip(views, found, strict=True):
        for config in range(_round_of(view).search.configurations):
            losses = _losses_at(view, config, records)
            means = np.bincount(records.labels, losses, minlength=classes) / counts
            judged.append((means, float((losses - means[records.labels]).std())))
    return found


def _equate(
    judged: tuple[Floats, float], lost: float, count: float, noise: tuple[float, float] = (0.0, 0.0)
) -> Equation:
    """Make a group's equation from its sum of losses, its number of records, and the noise's σ on both."""
    (means, spread), number = judged, max(count, noise[1], 1.0)
    loss = min(max(lost / LOSS_LEVELS / number, 0.0), 1.0)
    error = math.hypot(spread / math.sqrt(number), noise[0] / LOSS_LEVELS / number, loss * noise[1] / number)
    return Equation(loss, max(error, 1 / LOSS_LEVELS), means)


def _groups(views: Sequence[View], judged: Judged) -> Iterator[tuple[tuple[str, ...], list[Equation]]]:
    """Yield each group's members and equations: single members where all parts are in clear, else cohorts."""
    first, cohorts = views[0], _round_of(views[0]).search.cohorts
    alone = set(first.in_clear) >= set(first.members)
    for group in range(len(first.clients) if alone else cohorts):
        members = (first.clients[group],) if alone else first.clients[(group - 1) % cohorts :: cohorts]
        equations = []
        for view, models in zip(views, judged, strict=True):
            if seen := view.in_clear.get(members[0], {}) if alone else view.release:
                arm = _round_of(view).population.arm_of(group + alone)
                model = models[arm // _round_of(view).search.variants]
                equations.append(_equate(model, float(seen[LOSS][arm]), float(seen[SCORED][arm]), _sigma(view, alone)))
        if equations:
            yield tuple(members), equations


def _sigma(view: View, alone: bool) -> tuple[float, float]:
    """Return the noise's σ on a group's sum of losses and number of records; of a member's own noise if `alone`."""
    if view.plan.further_sigmas:
        members = 1 if alone else -(-len(view.members) // _round_of(view).search.cohorts)
        return tuple(math.sqrt(members) * view.plan.further_sigmas[name] for name in (LOSS, SCORED))  # type: ignore[return-value]
    if view.noise is None:
        return 0.0, 0.0
    part = 1 / math.sqrt(len(view.members)) if alone else 1.0
    return view.noise[LOSS].of_record.sigma * part, view.noise[SCORED].of_record.sigma * part


def _compare(found: Sequence[tuple[Floats, Floats]], prior: Floats) -> tuple[Measure, ConfidenceInterval | None]:
    """Compare the errors of guessed class shares with those of the public shares, for pairs (guessed, true)."""
    guessed, true = (np.stack(each) for each in zip(*found, strict=True))
    return label_counts.compare_errors(SHARES, np.abs(guessed - true).ravel(), np.abs(prior - true).ravel())


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    knowledge, name = knowledge.by_class, SCORE_INFERENCE.name
    scored = [each for each in (*views[0].earlier, views[0]) if isinstance(each.round, PopulationRound)]
    if not scored:
        return Finding(name, "", Verdict.NOT_APPLICABLE, "It is not told at which models the scores were measured.")
    classes, public = len(views[0].plan.classes), label_counts.records_of_adversary(knowledge)
    judged = _judge_models(scored, public, classes)
    prior = label_counts.class_shares(np.bincount(public.labels, minlength=classes))
    controls = tuple(_make_control(scored, judged, knowledge.candidates, prior, is_true) for is_true in (True, False))
    progress(1, 2)
    pairs, sizes, owners = [], [], np.array(knowledge.owners, dtype=object)
    for members, equations in _groups(scored, judged):
        counts = np.zeros(classes)  # of a group's records, as a simulation knows them; of its known records else
        for member in members:
            own = knowledge.candidates.labels[owners == member]
            counts += knowledge.held.get(member, np.bincount(own, minlength=classes))
        if counts.sum():
            pairs.append((shares_from(equations, prior), label_counts.class_shares(counts)))
            sizes.append(len(members))
    progress(2, 2)
    if not pairs:
        why = "No group's records are known, so that nothing can be compared."
        return Finding(name, "", Verdict.INCONCLUSIVE, why, controls=controls)
    measure, gain = _compare(pairs, prior)
    rounds = count_rounds(views[0].plan)
    is_whole = len(scored) == rounds and _round_of(scored[0]).search.variants == 1
    succeeded, withstood = gain is not None and gain.low > 0, is_whole and gain is not None and gain.high <= 0
    sizes_told = " to ".join(map(str, sorted({min(sizes), max(sizes)})))
    of_whom = "a member" if max(sizes) == 1 else f"a cohort of {sizes_told} members"
    guess = f"{'a' if succeeded else 'no'} better guess of the class shares of {of_whom} than public records do"
    sentence = f"The scores of {len(scored)} of {rounds} rounds give {guess}."
    found = (measure, ROUNDS.exact(float(len(scored))))
    return Finding(name, "", decide(succeeded, withstood, controls), sentence, found, controls=controls)


def _make_control(
    scored: Sequence[View], judged: Judged, records: AuditRecords, prior: Floats, is_true: bool
) -> Control:
    """Run the attack on exact scores of unequal members, where it must succeed, or with their true shares exchanged."""
    parts = label_counts.split_by_class(records)
    true = [label_counts.class_shares(np.bincount(part.labels, minlength=len(prior))) for part in parts]
    if not is_true:
        true = [*true[len(true) // 2 :], *true[: len(true) // 2]]
    pairs = []
    for part, shares in zip(parts, true, strict=True):
        equations = [
            _equate(model, float(_losses_at(view, config, part).sum()) * LOSS_LEVELS, float(len(part)))
            for view, models in zip(scored, judged, strict=True)
            for config, model in enumerate(models)
        ]
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
    lacks=lambda session: "" if any(kind.has(Kind.SCORE) for kind in sums_of(session.plan)) else NOTHING,
)
