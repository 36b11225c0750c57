"""Subtract sums to isolate a client: of two sessions that differ by it, or colluders' vectors from the sum of all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from secagg.agreement.plan import NoiseFrom
from secagg.privacy import GaussianCost, PrivacyClaim, TrainingCost, Unit
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import MOMENTS, Noise, draw_noise, noise_ratio, total
from threat_models.attacks.membership.aggregate import score_by_release
from threat_models.attacks.membership.metrics import Figures, Scores, crosses, measure
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
    """Measure the signal-to-noise ratio of each block (named array): mean square over the noise's variance, minus 1.

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
    """Return whether any block (array) has, with confidence, more signal than noise; if noiseless, a nonzero entry."""
    if noise is None:
        return any(np.any(block) for block in blocks.values())
    return any(each.low > 1 for each in measure_signals(blocks, noise))


def is_hidden(blocks: Blocks, noise: Noise | None) -> bool:
    """Return whether all blocks (arrays) hold, with confidence, no more signal than noise; if noiseless, only zeros."""
    if noise is None:
        return not is_visible(blocks, None)
    return all(each.high <= 1 for each in measure_signals(blocks, noise))


def _make_controls(knowledge: Knowledge, release: Blocks, noise: Noise | None) -> tuple[Control, Control]:
    """Run the attack on exact sums that differ by known records, which must show, and on sums of the same records."""
    classes, names = len(release["counts"]), MOMENTS & set(release)
    rows = (slice(None), slice(CONTROL_RECORDS, None), np.arange(CONTROL_RECORDS))
    everyone, rest, own = (total(knowledge.candidates.take(each), classes, names) for each in rows)
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
    """Measure how well the `rest` of a sum separates candidates of these clients from candidates of nobody."""
    kept = np.array([not owner or owner in clients for owner in knowledge.owners], dtype=np.bool_)
    if not kept.any():
        return ()
    values = score_by_release(rest, noise, knowledge.candidates.take(kept), knowledge.public)
    return measure(Scores(values, knowledge.is_member[kept]), FIGURES)


def _run_differencing(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    first, second = views[0], views[1]
    opened = (view.release if "release" in view.sees else {} for view in views[:2])
    shapes = [{name: np.shape(block) for name, block in release.items()} for release in opened]
    if shapes[0] != shapes[1]:
        why = "The two sums hold different blocks, so that there is no difference: give two sums of the same kind."
        return Finding("differencing", "", Verdict.INCONCLUSIVE, why)
    apart = set(first.members) ^ set(second.members)
    larger, smaller = (first, second) if len(first.members) >= len(second.members) else (second, first)
    rest = subtract(larger.release, [smaller.release])
    noise = first.noise or second.noise
    if first.noise is not None and second.noise is not None:
        sigmas = {name: math.hypot(each.sigma, second.noise[name].sigma) for name, each in first.noise.items()}
        noise = {name: replace(each, sigma=sigmas[name]) for name, each in first.noise.items()}
    found = (CLIENTS_APART.exact(float(len(apart))), *(measure_signals(rest, noise) if noise else ()))
    controls = _make_controls(knowledge, first.release, noise)
    is_changed = not apart and noise is None and is_visible(rest, None)
    succeeded = is_changed or (len(apart) == 1 and is_visible(rest, noise))
    withstood = len(apart) > 1 or is_hidden(rest, noise)
    if len(apart) == 1:
        found += _measure_membership(rest, noise, knowledge, apart)
    if isinstance(first.claim, PrivacyClaim):
        twice: GaussianCost | TrainingCost = first.claim.releases.cost().times(2)  # all noise is drawn anew
        if (training := first.claim.releases.training) is not None:
            steps = replace(training.steps, steps=2 * training.steps.steps)
            twice = TrainingCost(steps, gap=2 * training.gap).with_releases(first.claim.releases.cost().times(2))
        found += (BOTH_EPSILONS.exact(twice.epsilon(first.claim.delta), baseline=first.claim.epsilon),)
    progress(1, 1)
    who = f"of {next(iter(apart))}" if len(apart) == 1 else f"of {len(apart)} clients together"
    kind = "exactly the vector" if noise is None else "the vector, under the noise of both sums,"
    sentence = f"The difference of the two sums is {kind} {who}." if apart else "Both sums are over the same clients."
    if is_changed:
        sentence += " They differ by exactly what was added to the data or taken from it between them."
    if noise is not None and first.plan.unit == Unit.RECORD:
        sentence += " What is claimed hides one record, not a client with many."
    return Finding("differencing", "", decide(succeeded, withstood, controls), sentence, found, controls=controls)


def _run_collusion(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, by_clients = views[0], views[0].plan.noise == NoiseFrom.CLIENT
    colluders = [member for member in view.members if member in view.contributions]
    colluders = colluders if len(colluders) < len(view.members) else colluders[:-1]
    honest = set(view.members) - set(colluders)
    rest = subtract(view.release, [view.contributions[member] for member in colluders])
    noise = noise_left(view, len(honest))
    found = (HONEST_LEFT.exact(float(len(honest))), *(measure_signals(rest, noise) if noise else ()))
    if isinstance(view.claim, PrivacyClaim):
        counted = {"honest": len(honest), "missing": len(view.clients) - len(view.members)} if by_clients else {}
        epsilon = view.claim.releases.epsilon(view.claim.delta, **counted)
        found += (EPSILON.exact(epsilon, ceiling=view.claim.epsilon),)
    found += _measure_membership(rest, noise, knowledge, honest)
    broken = crosses(found)
    controls = _make_controls(knowledge, view.release, noise)
    succeeded = broken or (len(honest) == 1 and is_visible(rest, noise))
    progress(1, 1)
    what, shares = f"the sum of {len(honest)} honest clients", f"{len(honest)} shares of"
    if len(honest) == 1:
        what, shares = "one client's vector", "its own share of"
    kind = "exactly" if noise is None else f"under {shares if by_clients else 'all of'} the noise"
    sentence = f"Without what {len(colluders)} colluders put in, {what} is left, {kind}."
    outcome = decide(succeeded, len(honest) > 1 or is_hidden(rest, noise), controls)
    return Finding("collusion_subtraction", "", outcome, sentence, found, controls=controls)


def noise_left(view: View, honest: int) -> Noise | None:
    """Return the noise unknown to colluders: that of `honest` clients or, where no client adds noise, all of it."""
    if view.noise is None or view.plan.noise != NoiseFrom.CLIENT:
        return view.noise
    part = math.sqrt(honest / len(view.members))
    return {name: replace(each, sigma=each.sigma * part) for name, each in view.noise.items()}


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
