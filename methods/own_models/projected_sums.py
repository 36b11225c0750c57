"""Sums of projected records, and the proof of the differential privacy that they can give to one record.

**A record's projection is its own.** z(q) ∈ Z^w, ‖z‖₂ ≤ R_z, is computed from the record q and the projection W alone,
bit for bit, whoever else is there: W becomes integers by a rule of its own, so that W·q is exact in any order; what
follows looks at one row (`project_records`).

**Theorem (record level).** In every round member i sends, for each class, its number of records and Σz over them, by a
projection W_i that DP-SGD trained inside it before (`secagg.networks.dp_sgd`): in all its rounds T steps, a record in
each with probability q. A step reads nothing of the member's but the records drawn, and W_i with Adam's moments as
steps before left them; all else (the loss's prototypes among it) is the plan's, or follows from opened sums. Each of R
sums is opened with noise of variance v_N on counts and v_Z on sums (`secagg.privacy.shares`). Then all that the parties
see, over all rounds, keeps (ε, δ) for one record added or removed, where δ(ε) is that of

    T Poisson-subsampled Gaussian steps (q, noise multiplier m)  ⊗  one Gaussian release with μ² = R·(1/v_N + R_z²/v_Z),

widened by e^±T' for what discrete noise lacks of Gaussian noise (`TrainingCost`).

**Proof.** Let the record be one of member i's. Other members' contributions are computed from their own records and
from opened sums, so that they are post-processing of what was opened, together with randomness that this record does
not touch. Add to the view what member i keeps to itself: W_i, and Adam's moments, after every step. More is seen, so
the promise holds for less. The view is then a sequence of T + R mechanisms about member i's records, each with inputs
that the plan fixes or that the earlier ones gave: the moments follow from the noisy sums of steps.

*Steps.* Given the history a step's gradient of a record is a function of that record alone (no batch statistic, no
number of records), cut to an integer vector no longer than the clip. The record is drawn with probability q: the pair
of a sampled Gaussian dominates, in either direction (`secagg.privacy.subsampled`). A record whose class has no
prototype, which the history says, is left out of every step: as if it were absent.

*Sums.* Given the history W_i is fixed. The record adds 1 to one count and z, ‖z‖₂ ≤ R_z, to one class's sum, and
changes no other record's z: add/remove moves the release by 1/v_N + R_z²/v_Z at most in μ². A class gate reads the
label and an opened census, itself noised and in the sum of μ²; a record of a class that is left out adds nothing.

Both kinds compose adaptively, their q, m and μ fixed in the plan beforehand; Gaussian releases in whatever order and
place have one release's law with Σμ² for a dominating pair, so that the product above dominates the view. ∎

It is an upper bound: who sees the sums alone sees no W_i. **What breaks it**: W_i, or the loss, computed from anything
of the member's that no accounted mechanism gave: exact prototypes of its own, an unnoised teacher, a number of records.
Then one record moves *every* record's z, each by up to √2·R_z, and what is stated above is off by a factor of their
number. So what leaves takes an `Untainted` projection, and steps an `Untainted` program. Models that the member trains
for itself without noise may be kept, feed nothing here, and are not promised anything about.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from methods.round import Examples
from secagg.encoding import Integers, cell_sums
from secagg.encoding.updates import integers_of_records
from secagg.networks import Untainted, require_untainted

Floats = NDArray[np.float64]

EXACT_BITS = 52
"""Bits of a sum that float64 adds exactly in any order: integers below 2⁵³ are float64."""
ROW_BITS = 20
"""A projected row is rounded to this many bits below its largest entry: 2¹³ squares of such entries add up exactly."""
ROWS = 8192


def class_sums(weight: Floats, examples: Examples, classes: int, levels: int) -> tuple[Integers, Integers]:
    """Return the number of records of each class, (C,), and the sums of their projections, (C, w)."""
    return cell_sums(project_records(weight, examples.records, levels), examples.labels, classes)


def released_sums(
    weight: Untainted[Floats], examples: Examples, classes: int, levels: int
) -> tuple[Integers, Integers]:
    """Return `class_sums` that may be sent. Raises TypeError unless `weight` is public or DP-SGD's (`Untainted`)."""
    return class_sums(require_untainted(weight), examples, classes, levels)


def project_records(weight: Floats, records: Integers, levels: int) -> Integers:
    """Return projections z (n, w) of records q (n, d) by `weight` (w, d), ‖z‖₂ ≤ `levels`, each from its record alone.

    z = h/‖h‖ in units of 1/levels, truncated towards zero, h = ReLU(W·q), and 0 where h is. W is rounded to integers,
    the largest row to about 2⁵¹/levels, so that W·q is exact in any order of addition.
    """
    longest = float(np.sqrt(np.einsum("ij,ij->i", weight, weight)).max())
    bits = EXACT_BITS - 1 - math.frexp(longest)[1] - int(levels).bit_length()
    whole = np.rint(np.ldexp(weight, bits))
    projected = np.empty((len(records), len(weight)), dtype=np.int64)
    for start in range(0, len(records), ROWS):
        raised = np.maximum(records[start : start + ROWS].astype(np.float64) @ whole.T, 0.0)
        projected[start : start + ROWS] = integers_of_records(_unit_rows(raised), 1.0, levels)
    return projected


def _unit_rows(raised: Floats) -> Floats:
    """Return rows ≥ 0 brought to length 1, but for rounding that depends on the row alone; zero rows stay."""
    exponents = np.frexp(raised.max(axis=1, keepdims=True))[1]
    rounded = np.rint(np.ldexp(raised, ROW_BITS - exponents))
    squares = np.einsum("ij,ij->i", rounded, rounded)[:, None]  # integers, and exact
    unit: Floats = rounded / np.sqrt(np.where(squares > 0, squares, 1.0))
    return unit
