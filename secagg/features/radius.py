"""The radius R: one public length that no feature vector exceeds."""

from __future__ import annotations

import math

import numpy as np

from secagg.errors import BadInput
from secagg.features.backbone import Features

SIGNIFICANT_BITS = 8


def radius_of(features: Features, centre: float = 0.0) -> float:
    """Return the largest ‖f − c‖₂ over records (n, d), rounded up to 8 significant bits.

    For simulation: it looks at every record. Rounding hides how the maximum's last bits were summed, so
    the order of the records does not matter. Raises BadInput when no record has a finite positive norm.
    """
    norms = np.linalg.norm(np.ascontiguousarray(features) - centre, axis=1)
    finite = norms[np.isfinite(norms)]
    largest = float(finite.max()) if len(finite) else 0.0
    if largest <= 0.0:
        raise BadInput("every feature vector is zero (or none is finite)", remedy="check the backbone and the data")
    return round_up(largest)


def round_up(bound: float) -> float:
    """Round a positive bound up to 8 significant bits, with room for float64 rounding in the norm itself."""
    mantissa, exponent = math.frexp(bound * (1.0 + 2.0**-40))
    return math.ldexp(math.ceil(math.ldexp(mantissa, SIGNIFICANT_BITS)), exponent - SIGNIFICANT_BITS)
