"""Sums taken from sums: two sessions that differ by a client, and a sum less what colluders put into it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from secagg.plan import NoiseFrom
from secagg.privacy import OpenedNoise, Unit
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.likelihood import Noise, drawn, noise_ratio, total
from threat_models.attacks.membership import from_release
from threat_models.attacks.scores import Scores, measures, verdict
from threat_models.comparisons import current_level
from threat_models.estimation.intervals import at_level
from threat_models.findings import Control, Finding, Measure, Verdict
from threat_models.session import Blocks, Knowledge

SEED = 20_060_301
CONTROL_RECORDS = 20


def less(blocks: Blocks, others: Iterable[Blocks]) -> Blocks:
    """The blocks with others taken away, entry by entry."""
    rest: dict[str, NDArray[Any]] = dict(blocks)
    for other in others:
        rest = {name: block - other[name] for name, block in rest.items()}
    return rest


def signals(blocks: Blocks, noise: Noise) -> tuple[Measure, ...]:
    """Signal to noise of every block, mean squares: 0 where there is nothing but noise of this strength.

    The interval is that of a noncentral χ², by its variance.
    """
    found, level = [], current_level()
    for name in blocks:
        ratio, entries = noise_ratio({name: blocks[name]}, noise)
        signal = max(ratio - 1, 0.0)
        reach = float(stats.norm.isf(level / 2)) * math.sqrt(2 * (1 + 2 * signal) / entries)
        low, high = max(ratio - 1 - reach, 0.0), max(ratio - 1 + reach, 0.0)
        method = at_level("noncentral chi-square", level)
        found.append(Measure(f"signal to noise of {name}", signal, low, high, method, baseline=0.0))
    return tuple(found)


def shows(blocks: Blocks, noise: Noise | None) -> bool:
    """Whether blocks are more signal than noise: in one of them at least, beyond the interval."""
    if noise is None:
        return any(np.any(block) for block in blocks.values())
    return any(each.low > 1 for each in signals(blocks, noise))


def _hidden(blocks: Blocks, noise: Noise | None) -> bool:
    """Whether blocks are surely no more signal than noise, in each of them; without noise, whether there is nothing."""
    if noise is None:
        return not shows(blocks, None)
    return all(each.high <= 1 for each in signals(blocks, noise))


def _exact(value: float, name: str, **limits: float) -> Measure:
    return Measure(name, value, value, value, "exact", **limits)


def _controls(knowledge: Knowledge, release: Blocks, noise: Noise | None) -> tuple[Control, Control]:
    """Two exact sums that differ by known records show these; two that differ by their noise alone show nothing."""
    classes, names = len(release["counts"]), frozenset(release)
    everyone = total(knowledge.candidates, classes, names)
    rest = total(knowledge.candidates.take(np.arange(CONTROL_RECORDS, len(knowledge.candidates))), classes, names)
    own = total(knowledge.candidates.take(np.arange(CONTROL_RECORDS)), classes, names)
    found = less(everyone, [rest])
    same = all(np.array_equal(found[name], own[name]) for name in names)
    nothing = less(everyone, [everyone]) if noise is None else drawn(release, noise, SEED)
    return (
        Control("two exact sums that differ by known records", True, same and shows(found, None)),
        Control("two sums over the same records", False, shows(nothing, noise)),
    )


def _whose(rest: Blocks, noise: Noise | None, knowledge: Knowledge, clients: set[str]) -> tuple[Measure, ...]:
    """How well candidates of these clients are told from records that nobody had, by what is left of the sum."""
    kept = np.array([not owner or owner in clients for owner in knowledge.owners], dtype=np.bool_)
    if not kept.any():
        return ()
    records, is_member = knowledge.candidates.take(kept), knowledge.is_member[kept]
    scores = Scores(from_release(rest, noise, records, knowledge.public), is_member)
    return measures(scores, ", of the client's records")


def _differencing(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    first, second = views[0], views[1]
    shapes = [{name: np.shape(block) for name, block in getattr(view, "release", {}).items()} for view in views[:2]]
    if shapes[0] != shapes[1]:
        why = "The two sums hold different blocks, so that there is no difference: give two sums of the same kind."
        return Finding("differencing", "", Verdict.INCONCLUSIVE, why)
    apart = set(first.members) ^ set(second.members)
    larger, smaller = (first, second) if len(first.members) >= len(second.members) else (second, first)
    rest = less(larger.release, [smaller.release])
    noise = _both(first.noise, second.noise)
    found = (_exact(float(len(apart)), "clients by which the sums differ"), *(signals(rest, noise) if noise else ()))
    controls = _controls(knowledge, first.release, noise)
    is_changed = not apart and noise is None and shows(rest, None)
    succeeded = is_changed or (len(apart) == 1 and shows(rest, noise))
    withstood = len(apart) > 1 or _hidden(rest, noise)
    if len(apart) == 1:
        found += _whose(rest, noise, knowledge, apart)
    if first.claim is not None:
        twice = first.claim.releases.curve().times(2).epsilon(first.claim.delta)
        found += (_exact(twice, "epsilon of both plans together", baseline=first.claim.epsilon),)
    progress(1, 1)
    who = f"of {next(iter(apart))}" if len(apart) == 1 else f"of {len(apart)} clients together"
    kind = "exactly the vector" if noise is None else "the vector, under the noise of both sums,"
    sentence = f"The difference of the two sums is {kind} {who}." if apart else "Both sums are over the same clients."
    if is_changed:
        sentence += " They differ by exactly what was added to the data or taken from it between them."
    if noise is not None and first.plan.unit == Unit.RECORD:
        sentence += " What is claimed hides one record, not a client with many."
    return Finding("differencing", "", verdict(succeeded, withstood, controls), sentence, found, controls=controls)


def _both(one: Noise | None, other: Noise | None) -> Noise | None:
    """The noise of a difference of two sums."""
    if one is None or other is None:
        return one or other
    return {name: OpenedNoise(math.hypot(one[name].sigma, other[name].sigma)) for name in one}


def _collusion(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view = views[0]
    colluders = [member for member in view.members if member in view.contributions]
    colluders = colluders if len(colluders) < len(view.members) else colluders[:-1]
    honest = set(view.members) - set(colluders)
    rest = less(view.release, [view.contributions[member] for member in colluders])
    noise = _left(view, len(honest))
    found = (_exact(float(len(honest)), "honest clients in what is left"), *(signals(rest, noise) if noise else ()))
    found += (*_epsilon(view, len(honest)), *_whose(rest, noise, knowledge, honest))
    broken = any(each.ceiling is not None and each.low > each.ceiling for each in found)
    controls = _controls(knowledge, view.release, noise)
    succeeded = broken or (len(honest) == 1 and shows(rest, noise))
    progress(1, 1)
    what = "one client's vector" if len(honest) == 1 else f"the sum of {len(honest)} honest clients"
    kind = "exactly" if noise is None else f"under {_shares(view, len(honest))}"
    sentence = f"Without what {len(colluders)} colluders put in, {what} is left, {kind}."
    outcome = verdict(succeeded, len(honest) > 1 or _hidden(rest, noise), controls)
    return Finding("collusion_subtraction", "", outcome, sentence, found, controls=controls)


def _from_clients(view: Any) -> bool:
    return bool(view.plan.noise == NoiseFrom.CLIENT)


def _shares(view: Any, honest: int) -> str:
    if not _from_clients(view):
        return "all of the noise"
    return "its own share of the noise" if honest == 1 else f"{honest} shares of the noise"


def _left(view: Any, honest: int) -> Noise | None:
    """The noise that the colluders do not know: the honest clients' shares, or whatever others added to the sum."""
    opened: Mapping[str, OpenedNoise] | None = view.noise
    if opened is None or not _from_clients(view):
        return opened
    part = math.sqrt(honest / len(view.members))
    return {name: OpenedNoise(each.sigma * part, each.multiplier) for name, each in opened.items()}


def _epsilon(view: Any, honest: int) -> tuple[Measure, ...]:
    """ε against these colluders, with what the plan claims as its ceiling."""
    if view.claim is None:
        return ()
    left = honest if _from_clients(view) else None
    epsilon = view.claim.releases.epsilon(view.claim.delta, honest=left)
    return (_exact(epsilon, "epsilon against these colluders", ceiling=view.claim.epsilon),)


DIFFERENCING = Attack(
    "differencing",
    "Difference of two sums",
    "Dinur & Nissim 2003; Pasquini, Francati & Ateniese 2022",
    ("release", "class_sums"),
    _differencing,
    sessions=2,
    limits=3,
)
COLLUSION_SUBTRACTION = Attack(
    "collusion_subtraction",
    "Subtraction by colluding clients",
    "Bonawitz et al. 2017, section 6",
    ("release", "contributions", "class_sums"),
    _collusion,
    limits=3,
)
