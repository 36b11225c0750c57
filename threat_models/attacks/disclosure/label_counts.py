"""The class counts of a client, which stand in its vector and follow from its class sums too.

Where a sum divides classes into cells, these are added up: single cells are for `small_cells`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from methods import sums_of
from secagg.agreement.plan import NoiseFrom
from secagg.encoding.layout import Kind
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import total
from threat_models.estimation.intervals import Interval, at_level, bootstrap, current_level
from threat_models.findings import SHARE, Control, Finding, Measure, Metric, decide
from threat_models.session import AuditRecords, Blocks, Floats, Knowledge, by_class
from threat_models.views import View

NOT_NOISE = Metric(
    "not_noise", "share of the counts' variance that is not noise", SHARE, "0 %, noise alone", leads=True
)
SIGMA = Metric("sigma", "sigma of a count", "records", "larger than the counts")
FROM_SUMS = Metric(
    "counts_error", "error of counts from class sums", "records", "no less than {baseline}, without the vector"
)
SEED = 20_250_306
REPLICATES = 500
CONTROL_CLIENTS = 8
FEWEST = 6
"""Errors that are resampled themselves; of fewer, the records behind them are."""
MOSTLY = 0.5
"""Counts are disclosed when more of their variance between clients and classes than this is not noise."""
NAMES = frozenset({"counts", "class_sums"})


def counts_from_sums(class_sums: NDArray[Any], means: Floats) -> Floats:
    """Class counts (C,) from class sums A (C, d) and known class means (C, d): least squares, ⟨A_j, μ_j⟩/‖μ_j‖²."""
    lengths = np.maximum(np.einsum("cd,cd->c", means, means), 1e-12)
    found: Floats = np.einsum("cd,cd->c", class_sums.astype(np.float64), means) / lengths
    return found


def class_means(records: AuditRecords, classes: int) -> Floats:
    """The means of known records by class (C, d); 0 for a class without any."""
    blocks = total(records, classes, NAMES)
    return blocks["class_sums"] / np.maximum(blocks["counts"], 1.0)[:, None]


def class_shares(counts: NDArray[Any]) -> Floats:
    """Counts (C,), those below 0 taken as 0, as shares of their sum; equal ones where there is nothing."""
    positive = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    return positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))


def records_of_adversary(knowledge: Knowledge) -> AuditRecords:
    """Records that the adversary has of its own."""
    return knowledge.public if knowledge.public is not None else knowledge.candidates


def compare_errors(metric: Metric, guessed: Floats, blind: Floats) -> tuple[Measure, Interval | None]:
    """Measure the mean error of a guess beside that of a blind guess, and by how much it is smaller (paired).

    Both intervals resample the errors; of fewer than FEWEST there are none.
    """
    baseline, generator = float(blind.mean()), np.random.default_rng(SEED)
    if len(guessed) < FEWEST:
        value = float(guessed.mean())
        return metric.exact(value, f"none, of {len(guessed)} values", baseline=baseline), None
    pairs = np.column_stack([guessed, blind])
    error = bootstrap(lambda rows: rows[:, :, 0].mean(axis=1), (pairs,), generator, replicates=REPLICATES)
    gain = bootstrap(
        lambda rows: (rows[:, :, 1] - rows[:, :, 0]).mean(axis=1), (pairs,), generator, replicates=REPLICATES
    )
    return error.measure(metric, baseline=baseline), gain


def _measure_counts(clients: Mapping[str, Blocks], knowledge: Knowledge) -> tuple[Measure, Interval | None]:
    """Compare counts taken from class sums alone with a guess that gives every client the public class shares."""
    classes = len(next(iter(clients.values()))["counts"])
    known = records_of_adversary(knowledge)
    means, shares = class_means(known, classes), class_shares(np.bincount(known.labels, minlength=classes))
    true = np.array([blocks["counts"] for blocks in clients.values()], dtype=np.float64)
    guessed = np.array([counts_from_sums(blocks["class_sums"], means) for blocks in clients.values()])
    blind = shares * true.sum() / len(true)
    return compare_errors(FROM_SUMS, np.abs(guessed - true).ravel(), np.abs(blind - true).ravel())


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, knowledge = views[0], knowledge.by_class
    clients = {name: by_class(blocks, len(view.plan.classes)) for name, blocks in view.contributions.items()}
    cells = len(next(iter(view.contributions.values()))["counts"])
    sigma = _share_sigma(view) * math.sqrt(cells / len(view.plan.classes))
    counts = np.array([blocks["counts"] for blocks in clients.values()], dtype=np.float64)
    freedom, level = max(counts.size - 1, 1), current_level()
    seen = max(float(counts.var(ddof=1)) if counts.size > 1 else 0.0, 1e-12)
    value, low, high = (
        min(1.0, max(0.0, 1 - sigma**2 / (seen * factor)))
        for factor in (1, *(freedom / float(stats.chi2.ppf(tail, freedom)) for tail in (1 - level / 2, level / 2)))
    )
    not_noise = Measure(NOT_NOISE, value, low, high, at_level("chi-square", level))
    found: tuple[Measure, ...] = (not_noise, SIGMA.exact(sigma))
    if sigma == 0:
        from_sums, _ = _measure_counts(clients, knowledge)
        found += (from_sums,)
    controls = tuple(_make_control(knowledge, len(view.plan.classes), is_true) for is_true in (True, False))
    progress(1, 1)
    how = "exactly" if sigma == 0 else f"with an error of {sigma:.3g}"
    return Finding(
        "label_counts",
        "",
        decide(not_noise.low > MOSTLY, not_noise.high <= MOSTLY, controls),
        f"Each of {len(clients)} clients' vectors says {how} how many records of each class it has.",
        found,
        controls=controls,
    )


def _share_sigma(view: View) -> float:
    """σ of one client's noise on the count of a cell; 0 where clients add none."""
    if view.calibration is None or view.plan.noise != NoiseFrom.CLIENT:
        return 0.0
    counts = {each.name for kind in sums_of(view.plan) for each in kind.blocks if each.kind is Kind.COUNTS}
    noise = next(each for each in view.calibration.blocks if each.block.name in counts)
    return float(noise.sigma / noise.multiplier)


def _make_control(knowledge: Knowledge, classes: int, is_true: bool) -> Control:
    """Try counts from the exact sums of unequal clients, which must be right, or of other clients, which must not."""
    clients = {name: total(part, classes, NAMES) for name, part in split_by_class(knowledge.candidates).items()}
    if not is_true:
        sums = [blocks["class_sums"] for blocks in clients.values()]
        for blocks, other in zip(clients.values(), reversed(sums), strict=True):
            blocks["class_sums"] = other
    _, gain = _measure_counts(clients, knowledge)
    name = "exact sums of clients with unequal classes" if is_true else "the sums of other clients"
    return Control(name, is_true, gain is not None and gain.low > 0)


def split_by_class(records: AuditRecords) -> dict[str, AuditRecords]:
    """Hand records out to clients so that each has few classes."""
    parts = np.array_split(np.argsort(records.labels, kind="stable"), CONTROL_CLIENTS)
    return {f"client {number}": records.take(rows) for number, rows in enumerate(parts)}


LABEL_COUNTS = Attack(
    "label_counts",
    "Class counts of a client",
    "Guan et al. 2025 (FedCGS), Eq. 3: the counts are part of what is uploaded",
    ("contributions", "class_sums"),
    _run,
    (NOT_NOISE, SIGMA, FROM_SUMS),
    meaning="How many records of each class one client has is known.",
    remedy="Hide clients' vectors: --protection masked, shared or encrypted.",
)
