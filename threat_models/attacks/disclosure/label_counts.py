"""Infer how many records of each class a client has, from its vector's counts or from its class sums.

Where a sum divides classes into cells, these are added up: single cells are for `small_cells`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from methods import sums_of
from secagg.agreement.plan import NoiseFrom
from secagg.encoding.layout import Kind
from threat_models.attacks.attack import Attack, Progress
from threat_models.attacks.gaussian_likelihood import total
from threat_models.estimation.intervals import ConfidenceInterval, at_level, bootstrap, current_level
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
"""Least number of errors that a bootstrap resamples. With fewer errors, the records behind them are resampled."""
MOSTLY = 0.5
"""Counts are disclosed where more than this share of their variance, over clients and classes, is not noise."""
NAMES = frozenset({"counts", "class_sums"})


def counts_from_sums(class_sums: NDArray[Any], means: Floats) -> Floats:
    """Estimate class counts (C,) from class sums A (C, d) and means μ (C, d) by least squares: ⟨A_j, μ_j⟩/‖μ_j‖²."""
    lengths = np.maximum(np.einsum("cd,cd->c", means, means), 1e-12)
    return np.asarray(np.einsum("cd,cd->c", class_sums.astype(np.float64), means) / lengths)


def class_means(records: AuditRecords, classes: int) -> Floats:
    """Return the means (C, d) of known records by class; 0 for a class without records."""
    blocks = total(records, classes, NAMES)
    return blocks["class_sums"] / np.maximum(blocks["counts"], 1.0)[:, None]


def class_shares(counts: NDArray[Any]) -> Floats:
    """Return counts (C,) divided by their sum, negative ones taken as 0; equal shares if no count is positive."""
    positive = np.maximum(np.asarray(counts, dtype=np.float64), 0.0)
    return positive / positive.sum() if positive.sum() > 0 else np.full(len(positive), 1 / len(positive))


def records_of_adversary(knowledge: Knowledge) -> AuditRecords:
    """Return the records that the adversary has: the public ones or, where there are none, the candidates."""
    return knowledge.public if knowledge.public is not None else knowledge.candidates


def compare_errors(metric: Metric, guessed: Floats, blind: Floats) -> tuple[Measure, ConfidenceInterval | None]:
    """Measure a guess's mean error beside a blind guess's, with the confidence interval of the mean difference.

    The errors are paired. Both intervals resample the errors; of fewer than FEWEST there are none.
    """
    baseline, generator = float(blind.mean()), np.random.default_rng(SEED)
    if len(guessed) < FEWEST:
        return metric.exact(float(guessed.mean()), f"none, of {len(guessed)} values", baseline=baseline), None
    pairs = np.column_stack([guessed, blind])
    error = bootstrap(lambda rows: rows[:, :, 0].mean(axis=1), (pairs,), generator, replicates=REPLICATES)
    gain = bootstrap(
        lambda rows: (rows[:, :, 1] - rows[:, :, 0]).mean(axis=1), (pairs,), generator, replicates=REPLICATES
    )
    return error.measure(metric, baseline=baseline), gain


def _measure_counts(clients: Sequence[Blocks], knowledge: Knowledge) -> tuple[Measure, ConfidenceInterval | None]:
    """Compare counts estimated from class sums alone with a guess that gives every client the public class shares."""
    true = np.array([blocks["counts"] for blocks in clients], dtype=np.float64)
    known, classes = records_of_adversary(knowledge), true.shape[1]
    means, shares = class_means(known, classes), class_shares(np.bincount(known.labels, minlength=classes))
    guessed = np.array([counts_from_sums(blocks["class_sums"], means) for blocks in clients])
    blind = shares * true.sum() / len(true)
    return compare_errors(FROM_SUMS, np.abs(guessed - true).ravel(), np.abs(blind - true).ravel())


def _run(views: tuple[View, ...], knowledge: Knowledge, progress: Progress) -> Finding:
    view, knowledge, classes = views[0], knowledge.by_class, len(views[0].plan.classes)
    clients = [by_class(blocks, classes) for blocks in view.contributions.values()]
    sigma = 0.0  # of one client's noise on the count of a class; 0 where clients add none
    if view.calibration is not None and view.plan.noise == NoiseFrom.CLIENT:
        names = {each.name for kind in sums_of(view.plan) for each in kind.blocks if each.kind is Kind.COUNTS}
        noise = next(each for each in view.calibration.blocks if each.block.name in names)
        cells = len(next(iter(view.contributions.values()))["counts"])
        sigma = float(noise.sigma / noise.multiplier) * math.sqrt(cells / classes)
    counts = np.array([blocks["counts"] for blocks in clients], dtype=np.float64)
    freedom, level = max(counts.size - 1, 1), current_level()
    seen = max(float(counts.var(ddof=1)) if counts.size > 1 else 0.0, 1e-12)
    value, low, high = (
        min(1.0, max(0.0, 1 - sigma**2 / (seen * factor)))
        for factor in (1, *(freedom / float(stats.chi2.ppf(tail, freedom)) for tail in (1 - level / 2, level / 2)))
    )
    not_noise = Measure(NOT_NOISE, value, low, high, at_level("chi-square", level))
    found: tuple[Measure, ...] = (not_noise, SIGMA.exact(sigma))
    if sigma == 0:
        found += (_measure_counts(clients, knowledge)[0],)
    controls = tuple(_make_control(knowledge, classes, is_true) for is_true in (True, False))
    progress(1, 1)
    verdict = decide(not_noise.low > MOSTLY, not_noise.high <= MOSTLY, controls)
    how = "exactly" if sigma == 0 else f"with an error of {sigma:.3g}"
    sentence = f"Each of {len(clients)} clients' vectors says {how} how many records of each class it has."
    return Finding("label_counts", "", verdict, sentence, found, controls=controls)


def _make_control(knowledge: Knowledge, classes: int, is_true: bool) -> Control:
    """Run the attack on exact sums of unequal clients, where it must succeed, or on the sums of other clients."""
    clients = [total(part, classes, NAMES) for part in split_by_class(knowledge.candidates)]
    if not is_true:
        sums = [blocks["class_sums"] for blocks in reversed(clients)]
        clients = [{**blocks, "class_sums": other} for blocks, other in zip(clients, sums, strict=True)]
    _, gain = _measure_counts(clients, knowledge)
    name = "exact sums of clients with unequal classes" if is_true else "the sums of other clients"
    return Control(name, is_true, gain is not None and gain.low > 0)


def split_by_class(records: AuditRecords) -> list[AuditRecords]:
    """Split records among made-up clients (`CONTROL_CLIENTS` of them), so that each has few classes."""
    parts = np.array_split(np.argsort(records.labels, kind="stable"), CONTROL_CLIENTS)
    return [records.take(rows) for rows in parts]


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
