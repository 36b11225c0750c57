"""Test whether a head was made from a record, by LiRA on its scores (likelihood ratios) and by FedBiP's loss gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from methods.closed_form.fedcgs import FedCGS
from secagg.agreement.plan import Plan
from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks import Program, TrainedModel, TrainingSettings, train
from secagg.randomness import OperatingSystem
from threat_models.attacks.attack import Attack, Progress, Run
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, make_controls
from threat_models.attacks.membership.metrics import Figures
from threat_models.attacks.of_methods import lira
from threat_models.attacks.of_methods.lira import HeadRecipe
from threat_models.estimation.intervals import bootstrap
from threat_models.findings import Control, Finding, Measure, Metric, Verdict
from threat_models.session import AuditRecords, Floats, Knowledge, Released
from threat_models.views import View

Test = Callable[[HeadRecipe, AuditRecords, int], Callable[[Released], Floats]]
"""A test: (recipe, candidates, number of records behind the head) → (head) → scores (n,), larger for members."""

ONLINE = Figures("lira_online", "LiRA online")
OFFLINE = Figures("lira_offline", "LiRA offline")
LOSS = Figures("loss", "by loss")
LOSS_GAP = Metric("loss_gap", "loss gap", "nats", "0")
ENTROPY_GAP = Metric("entropy_gap", "entropy gap", "nats", "0")
SEED = 20_220_523
CONTROL_SHADOWS = 32
CONTROL_HEADS = 8
FEWEST = 6
POOL_SHARE = 0.5
"""Largest share of the adversary's records that a shadow head is made of, so that as many stay outside."""


def _run_membership(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, trial = views[0], _try("membership_head", views[0], knowledge, progress)
    candidates, plan, rows = trial.knowledge.candidates, view.plan, trial.rows
    behind, source = _count_behind(view, trial.knowledge)
    size = min(behind, int(POOL_SHARE * (len(candidates) + len(trial.public))))
    what, where = ("models", " in one place") if isinstance(view.head, TrainedModel) else ("heads", "")
    if not lira.is_remade(view, size):
        why = f"Shadow {what} of {plan.method} take too long to train, so that this is by the loss: "
        return _test_by_loss(trial, why)
    shadows = lira.make_shadows(HeadRecipe.of(view), candidates, trial.public, size, progress, seed=SEED)
    seen = lira.margins(lira.head_scores(view.head, candidates, plan.grid), candidates.labels)
    online, offline = (trial.scored(each[rows]) for each in (shadows.ratios(seen), shadows.ratios(seen, "offline")))
    return trial.find(
        {ONLINE: online, OFFLINE: offline},
        _make_controls(view, trial.knowledge, _score_by_ratio),
        f"Against {lira.SHADOWS} shadow {what} of {size} records{where} ({source}), {{word}}.{{blind}}",
        "Membership, from the head",
        lines=("online", "offline"),
        worst=metrics.measure_worst_class(online, trial.records.labels, plan.classes),
    )


def _test_by_loss(trial: Trial, how: str) -> Finding:
    """Test membership by the loss of each candidate.

    The controls are heads of another method where this one's are not made anew: they do not show that its members would
    have been told, so that what does not succeed is inconclusive. So is a model that is not made anew, where shadows
    might tell more than its loss.
    """
    view, known, finds_gaps = trial.view, trial.knowledge, trial.attack == LOSS_ENTROPY_GAPS.name
    loss, entropy = lira.losses(lira.head_scores(view.head, known.candidates, view.plan.grid), known.candidates.labels)
    scores = trial.scored(-loss[trial.rows])
    gaps: tuple[Measure, ...] = ()
    for metric, values in ((LOSS_GAP, loss), (ENTROPY_GAP, entropy)) if scores.is_judged and finds_gaps else ():
        sides, generator = (values[known.is_member], values[~known.is_member]), np.random.default_rng(SEED)
        gap = bootstrap(lambda one, other: other.mean(axis=1) - one.mean(axis=1), sides, generator, replicates=500)
        gaps += (gap.measure(metric, baseline=0.0),)  # mean over others − mean over members (FedBiP, section 5.5)
    controls = _make_controls(view, known, _score_by_loss)
    is_made_anew = view.plan.method in lira.REMADE or (isinstance(view.head, TrainedModel) and finds_gaps)
    sentence, curve = f"{how}{{word}}.{{blind}}", "Membership, from the loss"
    return trial.find({LOSS: scores}, controls, sentence, curve, lines=("loss",), withstood=is_made_anew, beside=gaps)


def _run_gaps(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    return _test_by_loss(_try("loss_entropy_gaps", views[0], knowledge, progress), "By the loss alone ")


def _unless_refused(name: str, title: str, run: Run) -> Run:
    """Wrap an attack's `run` so that it is inconclusive where heads like the released one cannot be made (BadInput)."""

    def attempt(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
        try:
            return run(views, knowledge, progress)
        except BadInput as error:
            return Finding(name, "", Verdict.INCONCLUSIVE, f"{title}: {error.problem}.")

    return attempt


def _try(attack: str, view: View, knowledge: Knowledge, progress: Progress) -> Trial:
    """Make a trial of the candidates of classes that the head knows; records of other classes had no part in it."""
    if isinstance(view.head, LinearHead):
        present = view.head.present
    else:
        scores = lira.head_scores(view.head, knowledge.candidates, view.plan.grid)
        present = scores.max(axis=0, initial=ABSENT_BIAS) > ABSENT_BIAS
    kept, public = present[knowledge.candidates.labels], knowledge.public
    owners = tuple(owner for owner, is_kept in zip(knowledge.owners, kept, strict=True) if is_kept)
    public = None if public is None else public.take(present[public.labels])
    known = replace(knowledge, candidates=knowledge.candidates.take(kept), owners=owners, public=public)
    return Trial.of(attack, view, known, progress)


def _count_behind(view: View, knowledge: Knowledge) -> tuple[int, str]:
    """Return the number of records behind the head, and how the adversary knows it; else that of known members."""
    counts = getattr(view, "release", {}).get("counts")
    if counts is not None:
        size = max(1, round(float(np.sum(counts))))
        return size, f"the sum holds {size}, as its {'' if view.noise is None else 'noisy '}counts say"
    if knowledge.records is not None:
        return knowledge.records, f"the sum holds {knowledge.records}, as is publicly known"
    return int(knowledge.is_member.sum()), "it does not know how many the sum holds"


def _make_controls(view: View, knowledge: Knowledge, test: Test) -> tuple[Control, Control]:
    """Make the controls from heads over a few records with random labels, which such heads can only memorise.

    Of this program, of this method, or of the simplest. Their own records must be told from others, and others called
    their own must not.
    """
    generator, known = np.random.default_rng(SEED), knowledge.candidates
    if isinstance(view.head, TrainedModel):
        recipe: HeadRecipe = MemorisingRecipe.like(view.plan, view.head)
    elif view.plan.method in lira.REMADE:
        recipe = HeadRecipe.of(view)
    else:
        recipe = HeadRecipe(replace(view.plan, method=FedCGS.name, parameters="{}"))
    exact = replace(recipe, noises=())
    shuffled = AuditRecords(known.integers, generator.permutation(known.labels), known.features)
    # So few that a head over them, with labels at random, tells each: the discriminant does up to as many as there are
    # features; refinement needs more than these to begin.
    share = {(FedCGS.name, False): 0.5, (FedCGS.name, True): 3.0}.get((recipe.plan.method, recipe.sums > 1), 0.0)
    few = max(len(recipe.plan.classes) + 1, FEWEST, min(int(share * recipe.plan.dimension), len(known) // 4))
    score = test(exact, shuffled, few)

    def draw() -> Floats:
        order = generator.permutation(len(known))
        return score(exact.head_of(shuffled.take(order[:few])))[order]

    names = f"{CONTROL_HEADS} heads over {few} records with labels at random", "other records, called members of these"
    return make_controls(names, (draw() for _ in range(CONTROL_HEADS)), few)


def _score_by_ratio(recipe: HeadRecipe, records: AuditRecords, size: int) -> Callable[[Released], Floats]:
    nobody = records.take(np.arange(0))
    shadows = lira.make_shadows(recipe, records, nobody, size, lambda *_: None, shadows=CONTROL_SHADOWS, seed=SEED)
    return lambda head: shadows.ratios(lira.margins(lira.head_scores(head, records, recipe.plan.grid), records.labels))


def _score_by_loss(recipe: HeadRecipe, records: AuditRecords, size: int) -> Callable[[Released], Floats]:
    return lambda head: -lira.losses(lira.head_scores(head, records, recipe.plan.grid), records.labels)[0]


MEMBERSHIP_HEAD = Attack(
    "membership_head",
    "Membership of a record, from the head",
    "Carlini, Chien, Nasr, Song, Terzis & Tramèr 2022 (LiRA); Sherman & Morrison 1950",
    ("head",),
    _unless_refused("membership_head", "Membership of a record, from the head", _run_membership),
    (*ONLINE.metrics, *OFFLINE.metrics, *LOSS.metrics, metrics.WORST_CLASS, BLIND),
    tells_members=True,
    limits=8,
    weighs_all=True,
    meaning="Whether somebody's record was among the data can be told from the head.",
    remedy="Plan with a finite epsilon, or more records; keep the head at the server (--result server).",
)
LOSS_ENTROPY_GAPS = Attack(
    "loss_entropy_gaps",
    "Loss and entropy gaps of the head",
    "Yeom et al. 2018; Chen et al. 2025 (FedBiP, section 5.5)",
    ("head",),
    _unless_refused("loss_entropy_gaps", "Loss and entropy gaps of the head", _run_gaps),
    (*LOSS.metrics, LOSS_GAP, ENTROPY_GAP, BLIND),
    tells_members=True,
    limits=4,
    weighs_all=True,
    meaning="Whether somebody's record was among the data can be told from the scores that it gets.",
    remedy="Plan with a finite epsilon, or more records; give out classes in place of scores.",
)


START = bytes(32)
EPOCHS, RATE, MOMENTUM = 200, 0.2, 0.9


@dataclass(frozen=True, eq=False)
class MemorisingRecipe(HeadRecipe):
    """A recipe for models that memorise their records: trained without noise, and on all records in every step."""

    program: Program | None = None

    @classmethod
    def like(cls, plan: Plan, model: TrainedModel) -> MemorisingRecipe:
        """Make the recipe for models of the same architecture (`program`) as a released model."""
        return cls(plan, program=model.program)

    @property
    def is_changed_by_record(self) -> bool:
        return False  # they are trained

    def head_of(self, records: AuditRecords, seed: int = 0) -> Released:
        if self.program is None:
            return super().head_of(records, seed)
        settings = TrainingSettings(EPOCHS, RATE, max(1, len(records)), MOMENTUM)
        inputs = (records.integers / self.plan.grid.unit(records.integers.shape[1])).astype(np.float32)
        trained = train(self.program, self.program.start(START), inputs, records.labels, settings, OperatingSystem())
        return TrainedModel.of(self.program, trained)
