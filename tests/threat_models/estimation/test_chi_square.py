"""Limits of the variance of noise: how often honest noise may be called too small."""

import numpy as np
import pytest
from scipy.stats import chi2

from threat_models.estimation.chi_square import SHORT_LEVEL, WHOLE_SHARE, NoisePart, measure_variance

ENTRIES = 50


@pytest.mark.parametrize("sessions", [1, 3])
@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize(("factor", "is_short"), [(0.99, True), (1.01, False)])
def test_all_parts_of_all_sessions_share_the_false_alarms(sessions, parts, factor, is_short):
    """A part is too small below the quantile of `SHORT_LEVEL` over sessions and parts, less what is the whole's."""
    square = chi2.ppf(factor * (1 - WHOLE_SHARE) * SHORT_LEVEL / sessions / parts, ENTRIES) / ENTRIES
    one, *others = (NoisePart(str(place), np.full(ENTRIES, 1.5)) for place in range(parts))
    one = NoisePart("one", np.full(ENTRIES, np.sqrt(square)))
    assert measure_variance([one, *others], "by a test", "", sessions).is_short is is_short


@pytest.mark.parametrize("sessions", [1, 3])
@pytest.mark.parametrize(("factor", "is_short"), [(0.99, True), (1.01, False)])
def test_the_whole_has_its_share_of_the_false_alarms(sessions, factor, is_short):
    """All entries together are too small below the quantile of their share of a session's, whatever the parts."""
    square = chi2.ppf(factor * WHOLE_SHARE * SHORT_LEVEL / sessions, 4 * ENTRIES) / (4 * ENTRIES)
    parts = [NoisePart(str(place), np.full(ENTRIES, np.sqrt(square))) for place in range(4)]
    assert measure_variance(parts, "by a test", "", sessions).is_short is is_short
