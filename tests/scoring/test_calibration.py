"""Temperatures that fit probabilities to records."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from secagg.errors import BadInput
from secagg.heads.linear import ABSENT_BIAS
from secagg.scoring.predictor import Calibration, probabilities_of


def drawn(records: int, sharper: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are `sharper` times the logarithms of the probabilities that labels were drawn by."""
    generator = np.random.default_rng(0)
    scores = generator.normal(size=(records, 3))
    chances = probabilities_of(scores).cumsum(axis=1)
    return sharper * scores, (generator.uniform(size=(records, 1)) > chances[:, :2]).sum(axis=1)


@pytest.mark.parametrize("sharper", [0.2, 1.0, 8.0])
def test_temperature_undoes_what_made_scores_sharper(sharper: float) -> None:
    """Fitted to enough records it is the factor between scores and log-probabilities, and the loss never grows."""
    found = Calibration.fit(*drawn(20_000, sharper))
    assert found.temperature == pytest.approx(sharper, rel=0.05)
    assert found.after <= found.before + 1e-9


def test_class_that_the_head_never_saw_has_no_say() -> None:
    """Records of it would make every temperature infinite."""
    scores, labels = drawn(2000, 3.0)
    with_absent = np.column_stack([scores, np.full(len(scores), float(ABSENT_BIAS))])
    found = Calibration.fit(np.vstack([with_absent, with_absent[:50]]), np.append(labels, np.full(50, 3)))
    assert found.temperature == pytest.approx(Calibration.fit(scores, labels).temperature, rel=1e-6)
    assert found.records == 2000


@pytest.mark.parametrize("absent", [0, 50])
def test_losses_are_the_mean_log_losses_of_known_classes(absent: int) -> None:
    """Before and after are scikit-learn's log loss of the softmax, of the records whose class the head knows."""
    scores, labels = drawn(500, 3.0)
    with_absent = np.column_stack([scores, np.full(len(scores), float(ABSENT_BIAS))])
    found = Calibration.fit(np.vstack([with_absent, with_absent[:absent]]), np.append(labels, np.full(absent, 3)))
    for loss, temperature in ((found.before, 1.0), (found.after, found.temperature)):
        assert loss == pytest.approx(log_loss(labels, probabilities_of(scores, temperature)), rel=1e-9)
    others = [log_loss(labels, probabilities_of(scores, found.temperature * factor)) for factor in (0.9, 1.1)]
    assert found.after < min(others)


def test_probabilities_are_a_softmax_of_any_scores() -> None:
    """Rows add up to one, huge scores do not overflow, and an absent class has none."""
    found = probabilities_of(np.array([[1e30, 0.0, ABSENT_BIAS], [0.0, 0.0, ABSENT_BIAS]]))
    assert np.allclose(found, [[1, 0, 0], [0.5, 0.5, 0]])


@pytest.mark.parametrize(("labels", "said"), [(np.zeros(9, int), "too few"), (np.full(12, 2), "knows none")])
def test_records_that_cannot_calibrate_are_refused(labels: np.ndarray, said: str) -> None:
    """Too few, or only of a class that the head never saw."""
    scores = np.tile([0.0, 1.0, ABSENT_BIAS], (len(labels), 1))
    with pytest.raises(BadInput, match=said):
        Calibration.fit(scores, labels)
