"""Solve for one client's contribution, by least squares, from the sums of rounds with different participants.

Sums over cohorts that change, of parts that hardly do, are linear equations with known coefficients: two that differ
by a member give its part (Dinur & Nissim 2003), and cohorts drawn anew give everybody's after about as many rounds as
there are members. Who was in which sum is public. Groups that stay as they are single nobody out, however many rounds.

How it goes with the rounds, by methods and for groups that stay, are drawn anew, or bear noise:
`python -m tests.leakage cohorts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from methods import sums_of
from secagg.privacy import OpenedNoise, Unit
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.disclosure.subtraction import SIGNAL, is_hidden, is_visible, measure_signals
from threat_models.attacks.member_contributions import Equations, Rows, equations_in, rows_of
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.metrics import NOTABLE_AREA, WIDEST, Scores, series_of
from threat_models.attacks.reconstruction.similarity import cosines
from threat_models.attacks.updates import count_rounds
from threat_models.estimation.intervals import bootstrap
from threat_models.findings import Control, Curve, Finding, Measure, Metric, Series, Verdict, decide
from threat_models.session import Knowledge
from threat_models.views import View

APART = Metric("members_apart", "members whose own part the rounds' sums determine", "members", "0", leads=True)
RANK = Metric("equations", "independent equations", "", "fewer than {baseline}, the members")
_AS_OTHERS = "no more than {baseline}, others' summed with it"
COSINE = Metric("cosine.own_part", "cosine of what is recovered of a member's part with it", "", _AS_OTHERS)
AREA = metrics.AUC.variant("own_part", "of a member's part against others'")
_AS_COHORT = "no fewer than {baseline}, in the smallest cohort"
TOGETHER = Metric("fewest_together", "members in the smallest group whose sum comes out", "members", _AS_COHORT)
WHOLE = 1e-3
"""Largest distance of members' recovered counts from whole numbers at which the counts are taken to be exact."""
POINTS = 10
CONTROL_MEMBERS, CONTROL_ROWS, CONTROL_WIDTH = 12, 10, 32
SEED = 20_030_609


def compare(equations: Equations, parts: Mapping[str, Rows]) -> Scores:
    """Compare recovered contributions with the true ones, by the cosines of their rows, and return scores.

    `parts` are the true contributions, by member; separable are the members that the equations tell apart. Both less
    the mean part of all, which everybody knows from the sums: rows of a part, whatever their lengths, count alike.
    "Members" are a member's own rows, the others those that it was summed with, which one sum does not tell from it.
    Rows in which somebody does not differ from the mean are left out.
    """
    chosen = np.flatnonzero(equations.told_apart)
    is_own = chosen[:, None] == np.arange(len(equations.members))
    is_other = (equations.incidence.T @ equations.incidence > 0)[chosen] & ~is_own
    own, others = [np.zeros(0)], [np.zeros(0)]
    for name, found in equations.solve().items():
        true = np.stack([parts[member][name] for member in equations.members])
        true = true - true.mean(axis=0)
        for row in range(true.shape[1]):
            table, differs = cosines(found[chosen, row], true[:, row]), true[:, row].any(axis=1)
            own.append(table[is_own & differs])
            others.append(table[is_other & differs])
    values = np.concatenate([*own, *others])
    return Scores(values, np.arange(len(values)) < sum(map(len, own)))


def _measure(found: Scores) -> tuple[Measure, ...]:
    """Measure the mean cosine and the area under the ROC curve; empty where there are too few rows."""
    if not found.is_judged:
        return ()
    mean = bootstrap(lambda values: values.mean(axis=1), [found.positive], np.random.default_rng(SEED))
    cosine = mean.measure(COSINE, baseline=float(found.negative.mean()))
    return (cosine, replace(found.area(), metric=AREA))


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    name, equations = CHANGING_COHORTS.name, equations_in(views[0])
    if equations is None or len(equations.incidence) < 2:
        return Finding(name, "", Verdict.NOT_APPLICABLE, "It sees no two rounds' sums of the same parts.")
    controls = _make_controls()
    progress(1, 2)
    members, alone = len(equations.members), int(equations.singled_out.sum())
    groups = max(kind.groups for kind in sums_of(views[0].plan))  # fixed ones, whose sums lie side by side in one
    fewest = min(equations.fewest_together, members // groups)
    found: tuple[Measure, ...] = (
        APART.exact(float(alone)),
        RANK.exact(float(equations.rank), baseline=float(members)),
        TOGETHER.exact(float(fewest), baseline=float(equations.incidence.sum(axis=1).min() // groups)),
    )
    told = f"{len(equations.incidence)} sums are {equations.rank} independent equations about {members} members' parts"
    if not equations.told_apart.any():
        sentence = f"{told}, who were never without the same others: no sum of fewer than {fewest} comes out."
        return Finding(name, "", decide(False, True, controls), sentence, found, controls=controls)
    told = f"{told}, and determine {f'those of {alone}' if alone else 'none of them'}"
    classes = len(views[0].plan.classes)
    is_known = bool(_true_parts(equations, knowledge, classes))
    judged = _judge_by_truth(equations, knowledge, classes) if is_known else _judge_by_sums(equations)
    progress(2, 2)
    verdict = decide(judged.succeeded, judged.withstood, controls)
    measures, sentence = (*found, *judged.measures), f"{told}{judged.sentence}"
    if views[0].noise is not None and views[0].plan.unit == Unit.RECORD:
        sentence += " What is claimed hides one record, not a member with many."
    return Finding(name, "", verdict, sentence, measures, judged.curves, controls=controls)


def _true_parts(equations: Equations, knowledge: Knowledge, classes: int) -> dict[str, Rows]:
    """Return each member's true part in rows, averaged over its rounds; {} where the audit lacks any member's part."""
    found: dict[str, Rows] = {}
    for place, member in enumerate(equations.members):
        there = [number for number, row in zip(equations.numbers, equations.incidence, strict=True) if row[place]]
        known = [knowledge.parts.get(number, {}).get(member) for number in there]
        rows = [rows_of(blocks, classes) for blocks in known if blocks is not None]
        if len(rows) < len(there):
            return {}
        found[member] = {name: np.mean([each[name] for each in rows], axis=0) for name in equations.sums}
    return found


@dataclass(frozen=True)
class _Judged:
    succeeded: bool
    withstood: bool
    sentence: str
    measures: tuple[Measure, ...] = ()
    curves: tuple[Curve, ...] = ()


def _judge_by_truth(equations: Equations, knowledge: Knowledge, classes: int) -> _Judged:
    measures = _measure(compare(equations, _true_parts(equations, knowledge, classes)))
    if not measures:
        return _Judged(False, False, "; that is too little to compare.")
    cosine, area = measures[:2]
    sentence = (
        f". What comes out, beyond the mean of all, has a cosine of {cosine.value:.2f} ({cosine.low:.2f} to "
        f"{cosine.high:.2f}) with the member's own part and of {cosine.baseline:.2f} with others' that were summed "
        f"with it; the area under the curve between them is {area.value:.3f} ({area.low:.3f} to {area.high:.3f}), 0.5 "
        f"by chance."
    )
    own: dict[float, Measure] = {}  # after the first sums: how many equations it takes
    for rounds in np.unique(np.linspace(2, len(equations.incidence), POINTS).round().astype(int)):
        some = equations.first(int(rounds))
        if found := _measure(compare(some, _true_parts(some, knowledge, classes))):
            own[float(rounds)] = found[0]
    lines = (
        series_of("the member's own part", own),
        Series("others' that were summed with it", tuple(own), tuple(each.baseline or 0.0 for each in own.values())),
    )
    curve = Curve("What is recovered of a member's part", "sums", "cosine", lines)
    is_known = area.high - area.low <= WIDEST
    return _Judged(area.low > NOTABLE_AREA, is_known and area.high <= NOTABLE_AREA, sentence, measures, (curve,))


def _judge_by_sums(equations: Equations) -> _Judged:
    """Judge the attack without the true parts: by the noise, or by whether the recovered counts are whole numbers."""
    noises, solved = equations.noises(), equations.solve()
    if noises is None:
        if "counts" in equations.sums and equations.singled_out.any():
            counts = np.einsum("nr,rkm->nkm", equations.solver[equations.singled_out], equations.sums["counts"])
            if np.abs(counts - np.rint(counts)).max() < WHOLE and counts.min() > -WHOLE:
                whole = "Their counts come out as whole numbers: these are theirs, exactly"
                as_exact = "all else of a part is as exact as it stayed between the rounds"
                return _Judged(True, False, f". {whole}; {as_exact}.")
        return _Judged(False, False, ". How much parts changed between the rounds, the sums do not say.")
    measures, visible, hidden = [], False, True
    for place in np.flatnonzero(equations.told_apart):
        blocks = {block: rows[place] for block, rows in solved.items()}
        noise = {
            block: OpenedNoise(float(sigma[place]), triangle=block in equations.triangles)
            for block, sigma in noises.items()
        }
        member = equations.members[place]
        measures += [replace(each, of=f"{each.of} of {member}") for each in measure_signals(blocks, noise)]
        visible, hidden = visible or is_visible(blocks, noise), hidden and is_hidden(blocks, noise)
    sentence = ", under noise that hides how they differ from the mean." if hidden else ", under noise."
    return _Judged(visible, hidden, sentence, tuple(measures))


def _make_controls() -> tuple[Control, Control]:
    """Run the attack on random parts and cohorts: it must recover them, but not where members' names are exchanged."""
    generator = np.random.default_rng(SEED)
    members = tuple(f"member {place}" for place in range(CONTROL_MEMBERS))
    parts = generator.normal(size=(CONTROL_MEMBERS, CONTROL_ROWS, CONTROL_WIDTH))
    drawn = [generator.permutation(CONTROL_MEMBERS) < CONTROL_MEMBERS // 2 for _ in range(2 * CONTROL_MEMBERS)]
    incidence = np.array(drawn, dtype=np.float64)
    sums = {"made up": np.einsum("rn,nkm->rkm", incidence, parts)}
    true = {member: {"made up": part} for member, part in zip(members, parts, strict=True)}
    found = []
    for said in (incidence, np.roll(incidence, 1, axis=1)):
        equations = Equations(members, said, sums, None, tuple(range(len(said))))
        found.append(compare(equations, true).area().low > NOTABLE_AREA)
    return (
        Control("parts made up, summed over cohorts drawn anew", True, found[0]),
        Control("the same, with members' names exchanged", False, found[1]),
    )


CHANGING_COHORTS = Attack(
    name="changing_cohorts",
    title="Members' own parts, from sums over changing cohorts",
    paper="Dinur & Nissim 2003; Pasquini, Francati & Ateniese 2022; So et al. 2023 (multi-round privacy)",
    needs=("release",),
    run=_run,
    metrics=(APART, RANK, TOGETHER, COSINE, AREA, SIGNAL),
    tries_records=False,
    limits=3,
    weighs_all=True,
    meaning="What single members put in comes out of the sums of cohorts that change from round to round.",
    remedy="Keep groups that stay together, or plan with a finite epsilon for a whole member (--unit client).",
    unsuited=lambda session: "" if count_rounds(session.plan) > 1 else "The plan opens one sum.",
)
