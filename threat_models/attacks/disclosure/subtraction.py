"""Take sums from sums: two sessions that differ by a client, or a sum and what colluders put into it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from secagg.agreement.plan import NoiseFrom
from secagg.privacy import GaussianCost, Releases, TrainingCost, Unit
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import MOMENTS, Noise, draw_noise, noise_ratio, total
from threat_models.attacks.membership.aggregate import score_by_release
from threat_models.attacks.membership.metrics import Figures, Scores, measure
from threat_models.attacks.targets import subtract
from threat_models.estimation.intervals import at_level, current_level
from threat_models.findings import Control, Finding, Measure, Metric, Verdict, decide
from threat_models.session import Blocks, Knowledge
from threat_models.views import View

CLIENTS_APART = Metric("clients_apart", "clients by which the sums differ", "clients", "0, or 2 and more", leads=True)
HONEST_LEFT = Metric("honest_left", "honest clients in what is left", "clients", "2 or more", leads=True)
SIGNAL = Metric("signal_to_noise", "signal to noise", "", "0, noise alone", each="block")
BOTH_EPSILONS = Metric("epsilon_of_both", "epsilon of both plans together")
EPSILON = Metric(
    "epsilon_against_colluders", "epsilon against these colluders", "", "no more than {ceiling}, as claimed"
)
FIGURES = Figures("client", "of the client's records")
SEED = 20_060_301
CONTROL_RECORDS = 20


def measure_signals(blocks: Blocks, noise: Noise) -> tuple[Measure, ...]:
    """Measure signal to noise of every block, as mean squares: 0 where there is only noise of this strength.

    The interval is that of a noncentral χ², by its variance.
    """
    found, level = [], current_level()
    for name in blocks:
        ratio, entries = noise_ratio({name: blocks[name]}, noise)
        signal = max(ratio - 1, 0.0)
        reach = float(stats.norm.isf(level / 2)) * math.sqrt(2 * (1 + 2 * signal) / entries)
        low, high = max(ratio - 1 - reach, 0.0), max(ratio - 1 + reach, 0.0)
        method = at_level("noncentral chi-square", level)
        found.append(Measure(SIGNAL, signal, low, high, method, baseline=0.0, of=name))
    return tuple(found)


def is_visible(blocks: Blocks, noise: Noise | None) -> bool:
    """Whether blocks are more signal than noise: in one of them at least, beyond the interval."""
    if noise is None:
        return any(np.any(block) for block in blocks.values())
    return any(each.low > 1 for each in measure_signals(blocks, noise))


def is_hidden(blocks: Blocks, noise: Noise | None) -> bool:
    """Whether blocks are surely no more signal than noise, in each of them; without noise, whether there is nothing."""
    if noise is None:
        return not is_visible(blocks, None)
    return all(each.high <= 1 for each in measure_signals(blocks, noise))


def _make_controls(knowledge: Knowledge, release: Blocks, noise: Noise | None) -> tuple[Control, Control]:
    """Subtract exact sums that differ by known records, which must show, and by noise alone: nothing must."""
    classes, names = len(release["counts"]), MOMENTS & set(release)
    everyone = total(knowledge.candidates, classes, names)
    rest = total(knowledge.candidates.take(np.arange(CONTROL_RECORDS, len(knowledge.candidates))), classes, names)
    own = total(knowledge.candidates.take(np.arange(CONTROL_RECORDS)), classes, names)
    found = subtract(everyone, [rest])
    same = all(np.array_equal(found[name], own[name]) for name in names)
    nothing = subtract(everyone, [everyone]) if noise is None else draw_noise(release, noise, SEED)
    return (
        Control("two exact sums that differ by known records", True, same and is_visible(found, None)),
        Control("two sums over the same records", False, is_visible(nothing, noise)),
    )


def _measure_membership(
    rest: Blocks, noise: Noise | None, knowledge: Knowledge, clients: set[str]
) -> tuple[Measure, ...]:
    """Measure how well what is left of a sum tells these clients' candidates from records that nobody had."""
    kept = np.array([not owner or owner in clients for owner in knowledge.owners], dtype=np.bool_)
    if not kept.any():
        return ()
    records, is_member = knowledge.candidates.take(kept), knowledge.is_member[kept]
    scores = Scores(score_by_release(rest, noise, records, knowledge.public), is_member)
    return measure(scores, FIGURES)


def _run_differencing(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    first, second = views[0], views[1]
    opened = [view.release if "release" in view.sees else {} for view in views[:2]]
    shapes = [{name: np.shape(block) for name, block in release.items()} for release in opened]
    if shapes[0] != shapes[1]:
        why = "The two sums hold different blocks, so that there is no difference: give two sums of the same kind."
        return Finding("differencing", "", Verdict.INCONCLUSIVE, why)
    apart = set(first.members) ^ set(second.members)
    larger, smaller = (first, second) if len(first.members) >= len(second.members) else (second, first)
    rest = subtract(larger.release, [smaller.release])
    noise = _combine(first.noise, second.noise)
    found = (CLIENTS_APART.exact(float(len(apart))), *(measure_signals(rest, noise) if noise else ()))
    controls = _make_controls(knowledge, first.release, noise)
    is_changed = not apart and noise is None and is_visible(rest, None)
    succeeded = is_changed or (len(apart) == 1 and is_visible(rest, noise))
    withstood = len(apart) > 1 or is_hidden(rest, noise)
    if len(apart) == 1:
        found += _measure_membership(rest, noise, knowledge, apart)
    if first.claim is not None:
        twice = _twice(first.claim.releases).epsilon(first.claim.delta)
        found += (BOTH_EPSILONS.exact(twice, baseline=first.claim.epsilon),)
    progress(1, 1)
    who = f"of {next(iter(apart))}" if len(apart) == 1 else f"of {len(apart)} clients together"
    kind = "exactly the vector" if noise is None else "the vector, under the noise of both sums,"
    sentence = f"The difference of the two sums is {kind} {who}." if apart else "Both sums are over the same clients."
    if is_changed:
        sentence += " They differ by exactly what was added to the data or taken from it between them."
    if noise is not None and first.plan.unit == Unit.RECORD:
        sentence += " What is claimed hides one record, not a client with many."
    return Finding("differencing", "", decide(succeeded, withstood, controls), sentence, found, controls=controls)


def _twice(releases: Releases) -> GaussianCost | TrainingCost:
    """The cost of all releases when they are repeated once, all noise drawn anew."""
    both, training = releases.cost().times(2), releases.training
    if training is None:
        return both
    steps = replace(training.steps, steps=2 * training.steps.steps)
    return TrainingCost(steps, gap=2 * training.gap).with_releases(both)


def _combine(one: Noise | None, other: Noise | None) -> Noise | None:
    """The noise of a difference of two sums, of which either may have none."""
    if one is None or other is None:
        return one or other
    return {name: replace(one[name], sigma=math.hypot(one[name].sigma, other[name].sigma)) for name in one}


def _run_collusion(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    colluders = [member for member in view.members if member in view.contributions]
    colluders = colluders if len(colluders) < len(view.members) else colluders[:-1]
    honest = set(view.members) - set(colluders)
    rest = subtract(view.release, [view.contributions[member] for member in colluders])
    noise = noise_left(view, len(honest))
    found = (HONEST_LEFT.exact(float(len(honest))), *(measure_signals(rest, noise) if noise else ()))
    found += (*_measure_epsilon(view, len(honest)), *_measure_membership(rest, noise, knowledge, honest))
    broken = any(each.ceiling is not None and each.low > each.ceiling for each in found)
    controls = _make_controls(knowledge, view.release, noise)
    succeeded = broken or (len(honest) == 1 and is_visible(rest, noise))
    progress(1, 1)
    what = "one client's vector" if len(honest) == 1 else f"the sum of {len(honest)} honest clients"
    kind = "exactly" if noise is None else f"under {_describe_noise(view, len(honest))}"
    sentence = f"Without what {len(colluders)} colluders put in, {what} is left, {kind}."
    outcome = decide(succeeded, len(honest) > 1 or is_hidden(rest, noise), controls)
    return Finding("collusion_subtraction", "", outcome, sentence, found, controls=controls)


def _is_noised_by_clients(view: View) -> bool:
    return view.plan.noise == NoiseFrom.CLIENT


def _describe_noise(view: View, honest: int) -> str:
    if not _is_noised_by_clients(view):
        return "all of the noise"
    return "its own share of the noise" if honest == 1 else f"{honest} shares of the noise"


def noise_left(view: View, honest: int) -> Noise | None:
    """The noise that the colluders do not know: the honest clients' shares, or whatever others added to the sum."""
    opened = view.noise
    if opened is None or not _is_noised_by_clients(view):
        return opened
    part = math.sqrt(honest / len(view.members))
    return {name: replace(each, sigma=each.sigma * part) for name, each in opened.items()}


def _measure_epsilon(view: View, honest: int) -> tuple[Measure, ...]:
    """Compute ε against these colluders, with what the plan claims as its ceiling."""
    if view.claim is None:
        return ()
    left = honest if _is_noised_by_clients(view) else None
    epsilon = view.claim.releases.epsilon(view.claim.delta, honest=left)
    return (EPSILON.exact(epsilon, ceiling=view.claim.epsilon),)


DIFFERENCING = Attack(
    "differencing",
    "Difference of two sums",
    "Dinur & Nissim 2003; Pasquini, Francati & Ateniese 2022",
    ("release", "class_sums"),
    _run_differencing,
    (CLIENTS_APART, SIGNAL, BOTH_EPSILONS, *FIGURES.metrics),
    sessions=2,
    limits=3,
    meaning="What one client more or less put in is known: it is the difference of two sums.",
    remedy="Open one exact sum of the same data, ever (repeat_sessions = false), or plan with a finite epsilon.",
)
COLLUSION_SUBTRACTION = Attack(
    "collusion_subtraction",
    "Subtraction by colluding clients",
    "Bonawitz et al. 2017, section 6",
    ("release", "contributions", "class_sums"),
    _run_collusion,
    (HONEST_LEFT, SIGNAL, EPSILON, *FIGURES.metrics),
    limits=3,
    meaning="Clients that collude with the server have the last one's vector: the sum less their own.",
    remedy="No secure sum prevents it: plan with a finite epsilon, for so many colluders (--colluders).",
)
