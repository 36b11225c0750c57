"""What a client's vector says without any test: its class counts, its class shares, and the means of its groups.

Where a sum divides classes into cells, these are added up: what it says of single cells is for `attacks.cells`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from secagg.plan import NoiseFrom
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.likelihood import total
from threat_models.attacks.scores import verdict
from threat_models.comparisons import current_level
from threat_models.estimation.intervals import Interval, at_level, bootstrap
from threat_models.findings import Control, Finding, Measure, Verdict
from threat_models.session import Blocks, Knowledge, Records, by_class

Floats = NDArray[np.float64]

SEED = 20_250_306
REPLICATES = 500
RESAMPLES = 200
CONTROL_CLIENTS = 8
FEWEST = 6
"""Errors that are resampled themselves; of fewer, the records behind them are."""
FAITHFUL = 0.5
"""Counts are disclosed when more of their variance between clients and classes than this is not noise."""
NAMES = frozenset({"counts", "class_sums"})


def counts_from_sums(class_sums: NDArray[Any], means: Floats) -> Floats:
    """Class counts (C,) from class sums A (C, d) and known class means (C, d): least squares, ⟨A_j, μ_j⟩/‖μ_j‖²."""
    lengths = np.maximum(np.einsum("cd,cd->c", means, means), 1e-12)
    found: Floats = np.einsum("cd,cd->c", class_sums.astype(np.float64), means) / lengths
    return found


def class_means(records: Records, classes: int) -> Floats:
    """The means of known records by class (C, d); 0 for a class without any."""
    blocks = total(records, classes, NAMES)
    means: Floats = blocks["class_sums"] / np.maximum(blocks["counts"], 1.0)[:, None]
    return means


def class_shares(counts: NDArray[Any]) -> Floats:
    """Counts (C,), those below 0 taken as 0, as shares of their sum; equal ones where there is nothing."""
    positive = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    shares: Floats = positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))
    return shares


def _known(knowledge: Knowledge) -> Records:
    """Records that the adversary has of its own."""
    return knowledge.public if knowledge.public is not None else knowledge.candidates


def _gain(name: str, guessed: Floats, blind: Floats) -> tuple[Measure, Interval | None]:
    """The mean error of a guess, with that of a blind one; and by how much it is smaller (paired).

    The intervals resample the errors; of too few there is none.
    """
    baseline, generator = float(blind.mean()), np.random.default_rng(SEED)
    if len(guessed) < FEWEST:
        value = float(guessed.mean())
        return Measure(name, value, value, value, f"none, of {len(guessed)} values", baseline), None
    pairs = np.column_stack([guessed, blind])
    error = bootstrap(lambda rows: float(rows[:, 0].mean()), (pairs,), generator, replicates=REPLICATES)
    gain = bootstrap(lambda rows: float((rows[:, 1] - rows[:, 0]).mean()), (pairs,), generator, replicates=REPLICATES)
    return error.measure(name, baseline=baseline), gain


def _counts_gain(clients: Mapping[str, Blocks], knowledge: Knowledge) -> tuple[Measure, Interval | None]:
    """The mean error of counts taken from class sums alone, beside that of clients all alike in public shares."""
    classes = len(next(iter(clients.values()))["counts"])
    known = _known(knowledge)
    means, shares = class_means(known, classes), class_shares(np.bincount(known.labels, minlength=classes))
    true = np.array([blocks["counts"] for blocks in clients.values()], dtype=np.float64)
    guessed = np.array([counts_from_sums(blocks["class_sums"], means) for blocks in clients.values()])
    blind = shares * true.sum() / len(true)
    return _gain("error of counts from class sums", np.abs(guessed - true).ravel(), np.abs(blind - true).ravel())


def _faithful(clients: Mapping[str, Blocks], sigma: float) -> Measure:
    """How much of the variance of the counts, over clients and classes, is not noise of this σ; interval by χ²."""
    counts = np.array([blocks["counts"] for blocks in clients.values()], dtype=np.float64)
    freedom, level = max(counts.size - 1, 1), current_level()
    seen = max(float(counts.var(ddof=1)) if counts.size > 1 else 0.0, 1e-12)
    value, low, high = (
        min(1.0, max(0.0, 1 - sigma**2 / (seen * factor)))
        for factor in (1, *(freedom / float(stats.chi2.ppf(tail, freedom)) for tail in (1 - level / 2, level / 2)))
    )
    return Measure("share of the counts' variance that is not noise", value, low, high, at_level("chi-square", level))


def _label_counts(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, knowledge = views[0], knowledge.by_class
    clients = {name: by_class(blocks, len(view.plan.classes)) for name, blocks in view.contributions.items()}
    cells = len(next(iter(view.contributions.values()))["counts"])
    sigma = _share_sigma(view) * math.sqrt(cells / len(view.plan.classes))
    faithful = _faithful(clients, sigma)
    found: tuple[Measure, ...] = (faithful, Measure("sigma of a count", sigma, sigma, sigma, "exact"))
    if sigma == 0:
        from_sums, _ = _counts_gain(clients, knowledge)
        found += (from_sums,)
    controls = tuple(_counts_control(knowledge, len(view.plan.classes), is_true) for is_true in (True, False))
    progress(1, 1)
    how = "exactly" if sigma == 0 else f"with an error of {sigma:.3g}"
    return Finding(
        "label_counts",
        "",
        verdict(faithful.low > FAITHFUL, faithful.high <= FAITHFUL, controls),
        f"Each of {len(clients)} clients' vectors says {how} how many records of each class it has.",
        found,
        controls=controls,
    )


def _share_sigma(view: Any) -> float:
    """σ of one client's noise on the count of a cell; 0 where clients add none."""
    if view.calibration is None or view.plan.noise != NoiseFrom.CLIENT:
        return 0.0
    noise = next(each for each in view.calibration.blocks if each.block.name in ("counts", "slot_counts"))
    return float(noise.sigma / noise.multiplier)


def _counts_control(knowledge: Knowledge, classes: int, is_true: bool) -> Control:
    """Counts from the exact sums of unequal clients must be right; from those of other clients they must not."""
    clients = {name: total(part, classes, NAMES) for name, part in _unequal(knowledge.candidates).items()}
    if not is_true:
        sums = [blocks["class_sums"] for blocks in clients.values()]
        for blocks, other in zip(clients.values(), reversed(sums), strict=True):
            blocks["class_sums"] = other
    _, gain = _counts_gain(clients, knowledge)
    name = "exact sums of clients with unequal classes" if is_true else "the sums of other clients"
    return Control(name, is_true, gain is not None and gain.low > 0)


def _unequal(records: Records) -> dict[str, Records]:
    """Some records handed out so that every client has few classes."""
    parts = np.array_split(np.argsort(records.labels, kind="stable"), CONTROL_CLIENTS)
    return {f"client {number}": records.take(rows) for number, rows in enumerate(parts)}


def _errors(groups: Sequence[tuple[Blocks, Records]], known: Records) -> tuple[Floats, Floats, Floats, Floats]:
    """Errors of class shares and of class means that blocks tell about records, each beside those of known records."""
    shares, means = [], []
    for blocks, true in groups:
        classes = len(blocks["counts"])
        counts = np.bincount(true.labels, minlength=classes)
        public = class_shares(np.bincount(known.labels, minlength=classes))
        told = class_shares(blocks["counts"])
        shares.append(np.column_stack([np.abs(told - class_shares(counts)), np.abs(public - class_shares(counts))]))
        present = counts > 0
        centres, public_means = class_means(true, classes), class_means(known, classes)
        own = np.asarray(blocks["class_sums"], dtype=np.float64) / np.maximum(blocks["counts"], 1.0)[:, None]
        far = [np.linalg.norm((each - centres)[present], axis=1) for each in (own, public_means)]
        means.append(np.column_stack(far) / max(1.0, math.sqrt(float((centres**2).sum(axis=1).max()))))
    one, other = np.concatenate(shares), np.concatenate(means)
    return one[:, 0], one[:, 1], other[:, 0], other[:, 1]


def _property(views: tuple[Any, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, knowledge, classes = views[0], knowledge.by_class, len(views[0].plan.classes)
    clients: Mapping[str, Blocks] = getattr(view, "contributions", {})
    owners = np.array(knowledge.owners)
    rows = {client: owners == client for client in clients} or {"": knowledge.is_member}
    sums = {client: by_class(blocks, classes) for client, blocks in (clients or {"": view.release}).items()}
    groups = [(sums[client], knowledge.candidates.take(own)) for client, own in rows.items() if own.any()]
    controls = tuple(_property_control(knowledge, classes, is_true) for is_true in (True, False))
    progress(1, 1)
    if not groups:
        unplaced = "Of the known records it is not known which client had them"
        why = unplaced if knowledge.is_member.any() else "No member's records are known"
        why += ", so that nothing can be compared."
        return Finding("property_inference", "", Verdict.INCONCLUSIVE, why, controls=controls)
    found, gains = _told(groups, _known(knowledge))
    if clients:
        sentence = f"The vectors of {len(groups)} clients tell of each {_in_words(gains)}."
        succeeded, withstood = any(gain.low > 0 for gain in gains), all(gain.high <= 0 for gain in gains)
    else:
        sentence = f"The sum tells of all members together {_in_words(gains)}. It tells nothing of any one member's."
        succeeded, withstood = False, True
    outcome = verdict(succeeded, withstood, controls)
    return Finding("property_inference", "", outcome, sentence, found, controls=controls)


def _in_words(gains: Sequence[Interval]) -> str:
    """What is told better than by public records, what is not, and what may be either, as their intervals say."""
    names: dict[str, list[str]] = {}
    for name, gain in zip(("class shares", "class means"), gains, strict=True):
        how = (
            "better than" if gain.low > 0 else "no better than" if gain.high <= 0 else "not surely better or worse than"
        )
        names.setdefault(how, []).append(name)
    return ", and ".join(f"{' and '.join(each)} {how} public records do" for how, each in names.items())


def _told(groups: Sequence[tuple[Blocks, Records]], known: Records) -> tuple[tuple[Measure, ...], list[Interval]]:
    """The errors of what is told, with those of public records, and by how much either is smaller."""
    errors = _errors(groups, known)
    resampled: Floats | None = None
    measures, gains = [], []
    for place, name in ((0, "error of a class share"), (2, "error of a class mean, relative")):
        measure, gain = _gain(name, errors[place], errors[place + 1])
        if gain is None:
            resampled = _over_records(groups, known) if resampled is None else resampled
            told, blind = resampled[:, place], resampled[:, place + 1]
            error = _around(measure.value, told, least=0.0)
            measure = error.measure(name, baseline=measure.baseline)
            gain = _around(float(errors[place + 1].mean()) - measure.value, blind - told)
        measures.append(measure)
        gains.append(gain)
    return tuple(measures), gains


def _over_records(groups: Sequence[tuple[Blocks, Records]], known: Records) -> Floats:
    """The mean errors, as `_errors` has them (resamples, 4), with other records of the same kind drawn for those known.

    Few errors, such as those of two classes, cannot be resampled; the records behind them can (Efron 1979).
    """
    generator = np.random.default_rng(SEED)

    def again(records: Records) -> Records:
        return records.take(generator.integers(len(records), size=len(records)))

    drawn = [_errors([(blocks, again(true)) for blocks, true in groups], again(known)) for _ in range(RESAMPLES)]
    return np.array([[each.mean() for each in errors] for errors in drawn])


def _around(value: float, resampled: Floats, least: float = -math.inf) -> Interval:
    """The normal interval of an estimate whose standard error is that of its resamples."""
    level = current_level()
    reach = float(stats.norm.isf(level / 2)) * float(resampled.std(ddof=1))
    method = at_level(f"normal, {RESAMPLES} resamples of the records", level)
    return Interval(value, max(least, value - reach), value + reach, method)


def _property_control(knowledge: Knowledge, classes: int, is_true: bool) -> Control:
    """Exact sums of unequal clients must tell their properties; sums of clients with the classes mixed up must not."""
    parts = _unequal(knowledge.candidates)
    sums = [total(part, classes, NAMES) for part in parts.values()]
    if not is_true:
        order = np.random.default_rng(SEED).permutation(len(knowledge.candidates))
        others = np.array_split(order, CONTROL_CLIENTS)
        parts = {str(number): knowledge.candidates.take(rows) for number, rows in enumerate(others)}
    _, gains = _told(list(zip(sums, parts.values(), strict=True)), _known(knowledge))
    name = "exact sums of clients with unequal classes" if is_true else "sums of other records than the clients'"
    return Control(name, is_true, any(gain.low > 0 for gain in gains))


LABEL_COUNTS = Attack(
    "label_counts",
    "Class counts of a client",
    "Guan et al. 2025 (FedCGS), Eq. 3: the counts are part of what is uploaded",
    ("contributions", "class_sums"),
    _label_counts,
)
PROPERTY_INFERENCE = Attack(
    "property_inference",
    "Class shares and group means",
    "Ateniese et al. 2015; PROLIN, arXiv:2303.03908",
    ("release", "class_sums"),
    _property,
    trusts_owners=True,
    limits=2,
)
