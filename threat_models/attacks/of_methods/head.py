"""Was this record among those behind the head? LiRA on its scores, and the gaps that FedBiP reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from methods.closed_form.fedcgs import FedCGS
from secagg.agreement.plan import Plan
from secagg.errors import BadInput
from secagg.heads import LinearHead
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks import Program, TrainedModel, TrainingSettings, train
from secagg.randomness import OperatingSystem
from threat_models.attacks.attack import Attack, Progress, Run
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.blind_baseline import BLIND, Blind, TestResults, make_controls
from threat_models.attacks.membership.metrics import Figures, Scores
from threat_models.attacks.of_methods.lira import (
    REMADE,
    SHADOWS,
    HeadRecipe,
    head_scores,
    is_remade,
    losses,
    make_shadows,
    margins,
)
from threat_models.estimation.intervals import bootstrap
from threat_models.findings import Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import AuditRecords, Floats, Knowledge, Released
from threat_models.views import View

Test = Callable[[HeadRecipe, AuditRecords, int], Callable[[Released], Floats]]
"""(recipe, candidates, number of records behind the head) → (head) → scores (n,), larger for members."""

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
"""Of the records that the adversary has, a shadow takes at most this share: as many are inside as outside."""


def _run_membership(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    knowledge = _keep_classes(knowledge, view)
    behind, source = _count_behind(view, knowledge)
    candidates = knowledge.candidates
    pool = knowledge.public if knowledge.public is not None else candidates.take(np.arange(0))
    size = min(behind, int(POOL_SHARE * (len(candidates) + len(pool))))
    what, where = ("models", " in one place") if isinstance(view.head, TrainedModel) else ("heads", "")
    if not is_remade(view, size):
        why = f"Shadow {what} of {view.plan.method} take too long to train, so that this is by the loss: "
        return _test_by_loss(MEMBERSHIP_HEAD.name, why, view, knowledge)
    plan, claim, recipe = view.plan, view.claim, HeadRecipe.of(view)
    shadows = make_shadows(recipe, candidates, pool, size, progress, seed=SEED)
    seen = margins(head_scores(view.head, candidates, plan.grid), candidates.labels)
    rows = metrics.match_classes(candidates.labels, knowledge.is_member)
    online = Scores(shadows.ratios(seen, "online"), knowledge.is_member).take(rows)
    offline = Scores(shadows.ratios(seen, "offline"), knowledge.is_member).take(rows)
    blind = Blind.of(candidates.take(rows), knowledge.is_member[rows])
    judged = TestResults({ONLINE: online, OFFLINE: offline}, blind, claim)
    worst = metrics.measure_worst_class(online, candidates.labels[rows], plan.classes)
    controls = _make_controls(_recipe_of_controls(view), knowledge, _score_by_ratio)
    succeeded = judged.succeeded or (metrics.tells_class(worst) and not blind.tells)
    return Finding(
        "membership_head",
        "",
        decide(succeeded, judged.withstood, controls),
        f"Against {SHADOWS} shadow {what} of {size} records{where} ({source}), members are "
        f"{metrics.describe(online)}.{metrics.describe_class(worst)}{blind.sentence}",
        (*judged.measures, *worst, *blind.measures),
        (metrics.roc("Membership, from the head", {"online": online, "offline": offline}, claim),),
        controls=controls,
    )


def _test_by_loss(name: str, how: str, view: View, knowledge: Knowledge) -> Finding:
    """Test membership by the loss of each candidate.

    The controls are heads of another method where this one's are not made anew: they do not show that its members would
    have been told, so that what does not succeed is inconclusive. So is a model that is not made anew, where shadows
    might tell more than its loss.
    """
    knowledge, plan = _keep_classes(knowledge, view), view.plan
    loss, entropy = losses(head_scores(view.head, knowledge.candidates, plan.grid), knowledge.candidates.labels)
    rows = metrics.match_classes(knowledge.candidates.labels, knowledge.is_member)
    scores = Scores(-loss, knowledge.is_member).take(rows)
    blind = Blind.of(knowledge.candidates.take(rows), knowledge.is_member[rows])
    judged = TestResults({LOSS: scores}, blind, view.claim)
    found = judged.measures
    if scores.is_judged and name == LOSS_ENTROPY_GAPS.name:
        found += (
            _measure_gap(LOSS_GAP, loss, knowledge.is_member),
            _measure_gap(ENTROPY_GAP, entropy, knowledge.is_member),
        )
    found += blind.measures
    is_model = isinstance(view.head, TrainedModel) and name == LOSS_ENTROPY_GAPS.name
    known = plan.method in REMADE or is_model
    controls = _make_controls(_recipe_of_controls(view), knowledge, _score_by_loss)
    return Finding(
        name,
        "",
        decide(judged.succeeded, known and judged.withstood, controls),
        f"{how}members are {metrics.describe(scores)}.{blind.sentence}",
        found,
        (metrics.roc("Membership, from the loss", {"loss": scores}, view.claim),),
        controls=controls,
    )


def _unless_refused(name: str, title: str, run: Run) -> Run:
    """Wrap an attack so that it is inconclusive where heads like this one cannot be made anew."""

    def attempt(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
        try:
            return run(views, knowledge, progress)
        except BadInput as error:
            return Finding(name, "", Verdict.INCONCLUSIVE, f"{title}: {error.problem}.")

    return attempt


def _recipe_of_controls(view: View) -> HeadRecipe:
    """Choose the recipe of memorising heads: of this method, of this program, or of the simplest method."""
    if isinstance(view.head, TrainedModel):
        return MemorisingRecipe.like(view.plan, view.head)
    return (
        HeadRecipe.of(view)
        if view.plan.method in REMADE
        else HeadRecipe(replace(view.plan, method=FedCGS.name, parameters="{}"))
    )


def _keep_classes(knowledge: Knowledge, view: View) -> Knowledge:
    """Keep the records of classes that the head knows; no other had a part in it."""
    if isinstance(view.head, LinearHead):
        present = view.head.present
    else:
        present = (
            head_scores(view.head, knowledge.candidates, view.plan.grid).max(axis=0, initial=ABSENT_BIAS) > ABSENT_BIAS
        )
    kept = present[knowledge.candidates.labels]
    owners = tuple(owner for owner, is_kept in zip(knowledge.owners, kept, strict=True) if is_kept)
    public = knowledge.public
    if public is not None:
        public = public.take(present[public.labels])
    return replace(knowledge, candidates=knowledge.candidates.take(kept), owners=owners, public=public)


def _count_behind(view: View, knowledge: Knowledge) -> tuple[int, str]:
    """Count the records behind the head, and say how the adversary knows; where it does not, as many as it can try."""
    counts = getattr(view, "release", {}).get("counts")
    if counts is not None:
        size = max(1, round(float(np.sum(counts))))
        return size, f"the sum holds {size}, as its {'' if view.noise is None else 'noisy '}counts say"
    if knowledge.records is not None:
        return knowledge.records, f"the sum holds {knowledge.records}, as is publicly known"
    return int(knowledge.is_member.sum()), "it does not know how many the sum holds"


def _measure_gap(metric: Metric, values: Floats, is_member: NDArray[np.bool_]) -> Measure:
    """Measure mean over others − mean over members (FedBiP, section 5.5)."""
    generator = np.random.default_rng(SEED)
    samples = (values[is_member], values[~is_member])
    found = bootstrap(lambda one, other: other.mean(axis=1) - one.mean(axis=1), samples, generator, replicates=500)
    return found.measure(metric, baseline=0.0)


def _make_controls(recipe: HeadRecipe, knowledge: Knowledge, test: Test) -> tuple[Control, Control]:
    """Make heads over few records with random labels, which such heads can only memorise.

    Their own records must be told from others, and others called their own must not.
    """
    generator = np.random.default_rng(SEED)
    known, exact = knowledge.candidates, replace(recipe, noises=())
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
    shadows = make_shadows(recipe, records, nobody, size, lambda *_: None, shadows=CONTROL_SHADOWS, seed=SEED)
    return lambda head: shadows.ratios(margins(head_scores(head, records, recipe.plan.grid), records.labels))


def _score_by_loss(recipe: HeadRecipe, records: AuditRecords, size: int) -> Callable[[Released], Floats]:
    return lambda head: -losses(head_scores(head, records, recipe.plan.grid), records.labels)[0]


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
    _unless_refused(
        "loss_entropy_gaps",
        "Loss and entropy gaps of the head",
        lambda views, knowledge, _: _test_by_loss("loss_entropy_gaps", "By the loss alone ", views[0], knowledge),
    ),
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
    """Makes models by another training than the plan's: exact, and on all records at once until they are known."""

    program: Program | None = None

    @classmethod
    def like(cls, plan: Plan, model: TrainedModel) -> MemorisingRecipe:
        """Models of the same program as one that a plan released."""
        return cls(plan, program=model.program)

    @property
    def is_changed_by_record(self) -> bool:
        """No: they are trained."""
        return False

    def head_of(self, records: AuditRecords, seed: int = 0) -> Released:
        """Train from a public start."""
        if self.program is None:
            return super().head_of(records, seed)
        settings = TrainingSettings(EPOCHS, RATE, max(1, len(records)), MOMENTUM)
        inputs = (records.integers / self.plan.grid.unit(records.integers.shape[1])).astype(np.float32)
        start = self.program.start(START)
        return TrainedModel.of(
            self.program, train(self.program, start, inputs, records.labels, settings, OperatingSystem())
        )
