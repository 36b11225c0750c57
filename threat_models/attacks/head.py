"""Was this record among those behind the head? LiRA on its scores, and the gaps that FedBiP reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from methods.fedcgs import FedCGS
from secagg.head import LinearHead
from secagg.plan import Plan
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.leave_one_out import margins
from threat_models.attacks.lira import SHADOWS, head_scores, losses, shadows_of, trained
from threat_models.attacks.scores import (
    Scores,
    class_in_words,
    could_notice,
    crosses,
    in_words,
    measures,
    roc,
    succeeds,
    tells,
    verdict,
    worst_class,
)
from threat_models.estimation.intervals import bootstrap
from threat_models.findings import Control, Finding, Measure
from threat_models.session import Knowledge, Records

Floats = NDArray[np.float64]
Test = Callable[[Plan, Records, int], Callable[[LinearHead], Floats]]
"""(plan, candidates, number of records behind the head) → (head) → scores (n,), larger for members."""

SEED = 20_220_523
CONTROL_SHADOWS = 32
CONTROL_HEADS = 8
FEWEST = 6
POOL_SHARE = 0.5
"""Of the records that the adversary has, a shadow takes at most this share: as many are inside as outside."""


def _membership(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    plan, claim, candidates = view.plan, view.claim, knowledge.candidates
    pool = knowledge.public if knowledge.public is not None else candidates.take(np.arange(0))
    size = min(int(knowledge.is_member.sum()), int(POOL_SHARE * (len(candidates) + len(pool))))
    shadows = shadows_of(plan, view.noise, candidates, pool, size, progress, seed=SEED)
    seen = margins(head_scores(view.head, candidates, plan.grid), candidates.labels)
    lines = {
        "online": Scores(shadows.ratios(seen, "online"), knowledge.is_member),
        "offline": Scores(shadows.ratios(seen, "offline"), knowledge.is_member),
    }
    found = measures(lines["online"], ", LiRA online", claim) + measures(lines["offline"], ", LiRA offline", claim)
    worst = worst_class(lines["online"], candidates.labels, plan.classes)
    found += worst
    controls = _controls(plan, knowledge, _by_ratio)
    succeeded = any(succeeds(scores) for scores in lines.values()) or tells(worst) or crosses(found)
    return Finding(
        "membership_head",
        "",
        verdict(succeeded, could_notice(lines["online"]), controls),
        f"Against {SHADOWS} shadow heads of {size} records, members are {in_words(lines['online'])}."
        f"{class_in_words(worst)}",
        found,
        (roc("Membership, from the head", lines, claim),),
        controls=controls,
    )


def _gaps(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    plan, claim, candidates = view.plan, view.claim, knowledge.candidates
    loss, entropy = losses(head_scores(view.head, candidates, plan.grid), candidates.labels)
    scores = Scores(-loss, knowledge.is_member)
    found = measures(scores, ", by loss", claim)
    if scores.is_judged:
        found += (_gap("loss gap", loss, knowledge.is_member), _gap("entropy gap", entropy, knowledge.is_member))
    controls = _controls(plan, knowledge, _by_loss)
    progress(1, 1)
    return Finding(
        "loss_entropy_gaps",
        "",
        verdict(succeeds(scores) or crosses(found), could_notice(scores), controls),
        f"By the head's loss alone members are {in_words(scores)}.",
        found,
        (roc("Membership, from the loss", {"loss": scores}, claim),),
        controls=controls,
    )


def _gap(name: str, values: Floats, is_member: NDArray[np.bool_]) -> Measure:
    """|mean over members − mean over others| (FedBiP, section 5.5)."""
    generator = np.random.default_rng(SEED)
    samples = (values[is_member], values[~is_member])
    found = bootstrap(lambda one, other: float(other.mean() - one.mean()), samples, generator, replicates=500)
    return found.measure(name, baseline=0.0)


def _controls(plan: Plan, knowledge: Knowledge, test: Test) -> tuple[Control, Control]:
    """Heads over few records with labels at random, which they can only learn by heart.

    Their own records must be told from others, and others called their own must not.
    """
    generator = np.random.default_rng(SEED)
    known = knowledge.candidates
    shuffled = Records(known.integers, generator.permutation(known.labels), known.features)
    few = max(
        len(plan.classes) + 1, FEWEST, min(plan.dimension // 2 if plan.method == FedCGS.name else 0, len(known) // 4)
    )
    told = test(plan, shuffled, few)
    true, false = [], []
    for _ in range(CONTROL_HEADS):
        order = generator.permutation(len(known))
        values = told(trained(plan, shuffled.take(order[:few])))[order]
        others = values[few:]
        true.append(Scores(values, np.arange(len(values)) < few))
        false.append(Scores(others, np.arange(len(others)) < few))
    return (
        Control(f"{CONTROL_HEADS} heads over {few} records with labels at random", True, succeeds(_pooled(true))),
        Control("other records, called members of these", False, succeeds(_pooled(false))),
    )


def _pooled(parts: list[Scores]) -> Scores:
    return Scores(np.concatenate([each.values for each in parts]), np.concatenate([each.is_member for each in parts]))


def _by_ratio(plan: Plan, records: Records, size: int) -> Callable[[LinearHead], Floats]:
    nobody = records.take(np.arange(0))
    shadows = shadows_of(plan, None, records, nobody, size, lambda *_: None, shadows=CONTROL_SHADOWS, seed=SEED)
    return lambda head: shadows.ratios(margins(head_scores(head, records, plan.grid), records.labels))


def _by_loss(plan: Plan, records: Records, size: int) -> Callable[[LinearHead], Floats]:
    return lambda head: -losses(head_scores(head, records, plan.grid), records.labels)[0]


MEMBERSHIP_HEAD = Attack(
    "membership_head",
    "Membership of a record, from the head",
    "Carlini, Chien, Nasr, Song, Terzis & Tramèr 2022 (LiRA); Sherman & Morrison 1950",
    ("head",),
    _membership,
)
LOSS_ENTROPY_GAPS = Attack(
    "loss_entropy_gaps",
    "Loss and entropy gaps of the head",
    "Yeom et al. 2018; Chen et al. 2025 (FedBiP, section 5.5)",
    ("head",),
    _gaps,
)
