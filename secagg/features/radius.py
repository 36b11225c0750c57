"""The radius R: one public length that no feature vector exceeds."""

from __future__ import annotations

import numpy as np

from secagg.encoding.grid import round_up
from secagg.errors import BadInput
from secagg.features.backbone import Features

LONGEST = 2.0**100
"""Of a radius and, inverted, the shortest: a head's float32 weights are as small as features are large."""


def radius_of(features: Features, centre: float = 0.0) -> float:
    """Return the largest ‖f − c‖₂ over records (n, d), rounded up to 8 significant bits.

    For simulation: it looks at every record. Rounding hides how the maximum's last bits were summed, so
    the order of the records does not matter. Raises BadInput when no record has a finite positive norm, and for one
    beyond what a head's float32 weights can undo.
    """
    norms = lengths_of(features, centre)
    finite = norms[np.isfinite(norms)]
    largest = float(finite.max()) if len(finite) else 0.0
    if largest <= 0.0:
        raise BadInput("every feature vector is zero (or none is finite)", remedy="check the backbone and the data")
    if not 1 / LONGEST <= largest <= LONGEST:
        remedy = f"scale the features to lengths from {1 / LONGEST:.0e} to {LONGEST:.0e}, or normalise them"
        raise BadInput(f"the longest feature vector has the length {largest:.3g}", remedy=remedy)
    return round_up(largest)


def lengths_of(features: Features, centre: float = 0.0) -> Features:
    """Return ‖f − c‖₂ (n,) over records (n, d); NaN or infinite where an entry is, or the length is beyond float64.

    Rows are scaled by a power of two, which is exact, so that no square overflows.
    """
    rows = np.ascontiguousarray(features) - centre
    with np.errstate(over="ignore", invalid="ignore"):
        exponent = np.frexp(np.abs(rows).max(axis=1, initial=0.0))[1]
        return np.asarray(np.ldexp(np.linalg.norm(np.ldexp(rows, -exponent[:, None]), axis=1), exponent))
