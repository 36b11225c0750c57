"""Was this record among those behind the head? LiRA on its scores, and the gaps that FedBiP reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.fedcgs import FedCGS
from secagg.errors import BadInput
from secagg.head import LinearHead
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.blind import Blind
from threat_models.attacks.leave_one_out import margins
from threat_models.attacks.lira import REMADE, SHADOWS, Recipe, head_scores, losses, shadows_of
from threat_models.attacks.scores import (
    Scores,
    class_in_words,
    crosses,
    in_words,
    matched,
    pooled,
    roc,
    succeeds,
    tells,
    verdict,
    withstands,
    worst_class,
)
from threat_models.estimation.intervals import bootstrap
from threat_models.findings import Control, Finding, Measure, Verdict
from threat_models.session import Knowledge, Records

Floats = NDArray[np.float64]
Run = Callable[[tuple[Any, ...], Knowledge, Progress], Finding]
Test = Callable[[Recipe, Records, int], Callable[[LinearHead], Floats]]
"""(recipe, candidates, number of records behind the head) → (head) → scores (n,), larger for members."""

SEED = 20_220_523
CONTROL_SHADOWS = 32
CONTROL_HEADS = 8
FEWEST = 6
POOL_SHARE = 0.5
"""Of the records that the adversary has, a shadow takes at most this share: as many are inside as outside."""


def _membership(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    if view.plan.method not in REMADE:
        why = f"Shadow heads of {view.plan.method} take too long to train, so that this is by the loss: "
        return _by_losses(MEMBERSHIP_HEAD.name, why, view, knowledge)
    knowledge, recipe = _of_classes(knowledge, view.head.present), Recipe.of(view)
    plan, claim, candidates = view.plan, view.claim, knowledge.candidates
    pool = knowledge.public if knowledge.public is not None else candidates.take(np.arange(0))
    behind, source = _behind(view, knowledge)
    size = min(behind, int(POOL_SHARE * (len(candidates) + len(pool))))
    shadows = shadows_of(recipe, candidates, pool, size, progress, seed=SEED)
    seen = margins(head_scores(view.head, candidates, plan.grid), candidates.labels)
    rows = matched(candidates.labels, knowledge.is_member)
    lines = {
        "online": Scores(shadows.ratios(seen, "online"), knowledge.is_member).at(rows),
        "offline": Scores(shadows.ratios(seen, "offline"), knowledge.is_member).at(rows),
    }
    blind = Blind.of(candidates.take(rows), knowledge.is_member[rows])
    found = tuple(each for name, scores in lines.items() for each in blind.measures(scores, f", LiRA {name}", claim))
    worst = worst_class(lines["online"], candidates.labels[rows], plan.classes)
    found += (*worst, *blind.found)
    controls = _controls(recipe, knowledge, _by_ratio)
    succeeded = crosses(found) or any(map(blind.lets_succeed, lines.values())) or (tells(worst) and not blind.tells)
    return Finding(
        "membership_head",
        "",
        verdict(succeeded, all(map(withstands, lines.values())) and not blind.tells, controls),
        f"Against {SHADOWS} shadow heads of {size} records ({source}), members are "
        f"{in_words(lines['online'])}."
        f"{class_in_words(worst)}{blind.sentence}",
        found,
        (roc("Membership, from the head", lines, claim),),
        controls=controls,
    )


def _gaps(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    found = _by_losses(LOSS_ENTROPY_GAPS.name, "By the head's loss alone ", views[0], knowledge)
    progress(1, 1)
    return found


def _by_losses(name: str, how: str, view: Any, knowledge: Knowledge) -> Finding:
    """Candidates by their loss.

    The controls are heads of another method where this one's are not made anew: they do not show that its members would
    have been told, so that what does not succeed is inconclusive.
    """
    knowledge, plan = _of_classes(knowledge, view.head.present), view.plan
    loss, entropy = losses(head_scores(view.head, knowledge.candidates, plan.grid), knowledge.candidates.labels)
    rows = matched(knowledge.candidates.labels, knowledge.is_member)
    scores = Scores(-loss, knowledge.is_member).at(rows)
    blind = Blind.of(knowledge.candidates.take(rows), knowledge.is_member[rows])
    found = blind.measures(scores, ", by loss", view.claim)
    if scores.is_judged and name == LOSS_ENTROPY_GAPS.name:
        found += (_gap("loss gap", loss, knowledge.is_member), _gap("entropy gap", entropy, knowledge.is_member))
    found += blind.found
    known = plan.method in REMADE
    recipe = Recipe.of(view) if known else Recipe(replace(plan, method=FedCGS.name, parameters="{}"))
    controls = _controls(recipe, knowledge, _by_loss)
    withstood = known and withstands(scores) and not blind.tells
    return Finding(
        name,
        "",
        verdict(crosses(found) or blind.lets_succeed(scores), withstood, controls),
        f"{how}members are {in_words(scores)}.{blind.sentence}",
        found,
        (roc("Membership, from the loss", {"loss": scores}, view.claim),),
        controls=controls,
    )


def _judged(name: str, title: str, run: Run) -> Run:
    """The attack, but no number about another head: inconclusive where heads of this kind cannot be made anew."""

    def judged(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
        try:
            return run(views, knowledge, progress)
        except BadInput as error:
            return Finding(name, "", Verdict.INCONCLUSIVE, f"{title}: {error.problem}.")

    return judged


def _of_classes(knowledge: Knowledge, present: NDArray[np.bool_]) -> Knowledge:
    """Records of the classes that the head knows; no other had a part in it."""
    kept = present[knowledge.candidates.labels]
    owners = tuple(owner for owner, is_kept in zip(knowledge.owners, kept, strict=True) if is_kept)
    public = knowledge.public
    if public is not None:
        public = public.take(present[public.labels])
    return replace(knowledge, candidates=knowledge.candidates.take(kept), owners=owners, public=public)


def _behind(view: Any, knowledge: Knowledge) -> tuple[int, str]:
    """How many records are behind the head, and how the adversary knows: else as many as there are members to try."""
    counts = getattr(view, "release", {}).get("counts")
    if counts is not None:
        size = max(1, round(float(np.sum(counts))))
        return size, f"the sum holds {size}, as its {'' if view.noise is None else 'noisy '}counts say"
    if knowledge.records is not None:
        return knowledge.records, f"the sum holds {knowledge.records}, as is publicly known"
    return int(knowledge.is_member.sum()), "it does not know how many the sum holds"


def _gap(name: str, values: Floats, is_member: NDArray[np.bool_]) -> Measure:
    """|mean over members − mean over others| (FedBiP, section 5.5)."""
    generator = np.random.default_rng(SEED)
    samples = (values[is_member], values[~is_member])
    found = bootstrap(lambda one, other: float(other.mean() - one.mean()), samples, generator, replicates=500)
    return found.measure(name, baseline=0.0)


def _controls(recipe: Recipe, knowledge: Knowledge, test: Test) -> tuple[Control, Control]:
    """Heads over few records with labels at random, which they can only learn by heart.

    Their own records must be told from others, and others called their own must not.
    """
    generator = np.random.default_rng(SEED)
    known, exact = knowledge.candidates, replace(recipe, noises=())
    shuffled = Records(known.integers, generator.permutation(known.labels), known.features)
    few = _few(recipe, len(known))
    told = test(exact, shuffled, few)
    true, false = [], []
    for _ in range(CONTROL_HEADS):
        order = generator.permutation(len(known))
        values = told(exact.head(shuffled.take(order[:few])))[order]
        others = values[few:]
        true.append(Scores(values, np.arange(len(values)) < few))
        false.append(Scores(others, np.arange(len(others)) < few))
    return (
        Control(f"{CONTROL_HEADS} heads over {few} records with labels at random", True, succeeds(pooled(true))),
        Control("other records, called members of these", False, succeeds(pooled(false))),
    )


def _few(recipe: Recipe, known: int) -> int:
    """So many records that a head over them, with labels at random, tells each of them.

    The discriminant does up to as many as there are features. Refinement needs more than these to begin.
    """
    share = {(FedCGS.name, False): 0.5, (FedCGS.name, True): 3.0}.get((recipe.plan.method, recipe.sums > 1), 0.0)
    return max(len(recipe.plan.classes) + 1, FEWEST, min(int(share * recipe.plan.dimension), known // 4))


def _by_ratio(recipe: Recipe, records: Records, size: int) -> Callable[[LinearHead], Floats]:
    nobody = records.take(np.arange(0))
    shadows = shadows_of(recipe, records, nobody, size, lambda *_: None, shadows=CONTROL_SHADOWS, seed=SEED)
    return lambda head: shadows.ratios(margins(head_scores(head, records, recipe.plan.grid), records.labels))


def _by_loss(recipe: Recipe, records: Records, size: int) -> Callable[[LinearHead], Floats]:
    return lambda head: -losses(head_scores(head, records, recipe.plan.grid), records.labels)[0]


MEMBERSHIP_HEAD = Attack(
    "membership_head",
    "Membership of a record, from the head",
    "Carlini, Chien, Nasr, Song, Terzis & Tramèr 2022 (LiRA); Sherman & Morrison 1950",
    ("head",),
    _judged("membership_head", "Membership of a record, from the head", _membership),
    trusts_owners=True,
    limits=8,
)
LOSS_ENTROPY_GAPS = Attack(
    "loss_entropy_gaps",
    "Loss and entropy gaps of the head",
    "Yeom et al. 2018; Chen et al. 2025 (FedBiP, section 5.5)",
    ("head",),
    _judged("loss_entropy_gaps", "Loss and entropy gaps of the head", _gaps),
    trusts_owners=True,
    limits=4,
)
