"""Metrics of predictions against scikit-learn's, and their intervals."""

import json

import numpy as np
import pytest
from sklearn import metrics as sk

from secagg.errors import BadInput
from secagg.scoring.metrics import Metrics, are_unequal, calibration_bins
from secagg.scoring.predictor import probabilities_of


def guesses(classes: int, records: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities that know something of them."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, records)
    scores = generator.normal(size=(records, classes)) + 1.5 * np.eye(classes)[labels]
    return probabilities_of(scores), labels


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_values_are_those_of_scikit_learn(classes: int) -> None:
    """Each measure of all records and of each class is what scikit-learn computes."""
    probabilities, labels = guesses(classes)
    found, said = (
        Metrics.of(probabilities, labels, [f"c{each}" for each in range(classes)], positive="c1" * (classes == 2)),
        probabilities.argmax(axis=1),
    )
    average = {"average": "binary"} if classes == 2 else {"average": "macro"}
    area = (
        sk.roc_auc_score(labels, probabilities[:, 1])
        if classes == 2
        else sk.roc_auc_score(labels, probabilities, multi_class="ovr")
    )
    expected = {
        "accuracy": sk.accuracy_score(labels, said),
        "balanced_accuracy": sk.balanced_accuracy_score(labels, said),
        "auc": area,
        "f1": sk.f1_score(labels, said, **average),
    }
    if classes == 2:
        expected |= {"sensitivity": sk.recall_score(labels, said), "specificity": sk.recall_score(1 - labels, 1 - said)}
    assert {name: found.overall[name].value for name in expected} == pytest.approx(expected)
    assert np.array_equal(found.confusion, sk.confusion_matrix(labels, said))
    for each, own in enumerate(found.by_class):
        inside, hit = labels == each, said == each
        values = {
            "sensitivity": sk.recall_score(inside, hit),
            "specificity": sk.recall_score(~inside, ~hit),
            "auc": sk.roc_auc_score(inside, probabilities[:, each]),
            "f1": sk.f1_score(inside, hit),
        }
        assert {name: own[name].value for name in values} == pytest.approx(values)


def test_the_declared_class_is_positive_whatever_the_order_of_names() -> None:
    """Sensitivity and F1 are those of the declared class, the first or the second; without one there is none."""
    probabilities, labels = guesses(2)
    said = probabilities.argmax(axis=1)
    names = ["Rückfall", "kein Rückfall"]
    for place, name in enumerate(names):
        found = Metrics.of(probabilities, labels, names, positive=name)
        assert found.positive == found.to_json()["positive_class"] == name
        assert found.overall["sensitivity"].value == sk.recall_score(labels, said, pos_label=place)
        assert found.overall["f1"].value == pytest.approx(sk.f1_score(labels, said, pos_label=place))
        assert found.called("sensitivity") == f"sensitivity of {name}"
    undeclared = Metrics.of(probabilities, labels, names)
    assert undeclared.overall["sensitivity"] is undeclared.overall["specificity"] is undeclared.positive is None
    assert undeclared.overall["f1"].value == pytest.approx(sk.f1_score(labels, said, average="macro"))
    with pytest.raises(BadInput, match="no class is called 'rückfall'"):
        Metrics.of(probabilities, labels, names, positive="rückfall")


def test_ties_count_half() -> None:
    """Equal probabilities everywhere give an area of one half, as scikit-learn's trapezoids do."""
    found = Metrics.of(np.full((20, 2), 0.5), np.arange(20) % 2, ["no", "yes"])
    assert found.overall["auc"].value == 0.5


def quartic_ends(area: float, inside: int, outside: int) -> list[float]:
    """The θ in [0, 1] with (area - θ)² = z²·V(θ), V of Newcombe (2006, part 2, method 5), multiplied out.

    V(θ)·mn = θ(1 - θ)·(1 + N(1 - θ)/(2 - θ) + Nθ/(1 + θ)) with N = (m + n)/2 - 1, as in R's auRoc too; times
    (2 - θ)(1 + θ) both sides are polynomials, whose roots numpy finds.
    """
    true, z, mean = np.poly1d([1.0, 0.0]), 1.959963984540054, (inside + outside) / 2 - 1
    both = (2 - true) * (1 + true)
    spread = true * (1 - true) * (both + mean * (1 - true) * (1 + true) + mean * true * (2 - true))
    found = ((area - true) ** 2 * both * (inside * outside) - z**2 * spread).roots
    assert np.abs(found.imag).max() < 1e-6
    return sorted(float(each) for each in found.real if -1e-9 <= each <= 1 + 1e-9)


@pytest.mark.parametrize(
    ("below", "inside", "outside"), [(0, 4, 12), (3, 20, 10), (10, 20, 10), (1, 5, 40), (20, 20, 10)]
)
def test_interval_of_an_area_is_newcombe_s(below: int, inside: int, outside: int) -> None:
    """The ends solve the method's equation, for groups of different sizes and where all pairs are in one order."""
    positive = np.arange(inside + outside) < inside
    chance = np.where(positive, np.where(np.arange(inside + outside) < below, 0.1, 0.9), 0.5)
    area = 1 - below / inside
    found = Metrics.of(np.column_stack([1 - chance, chance]), positive.astype(np.int64), "ny", draws=1).overall["auc"]
    first, *_, last = quartic_ends(area, inside, outside)
    assert (found.value, found.low, found.high) == pytest.approx((area, first, last), abs=1e-6)


def test_interval_of_one_half_is_that_by_hand() -> None:
    """With ten records a class and u = θ(1 - θ): 172.988u² + 217.256u = 50, u = 0.198707, θ = 0.5 ± 0.226484."""
    found = Metrics.of(np.full((20, 2), 0.5), np.arange(20) % 2, ["no", "yes"], draws=1).overall["auc"]
    assert (found.low, found.high) == pytest.approx((0.273516, 0.726484), abs=1e-6)


def test_every_interval_holds_its_value_and_has_a_width() -> None:
    """Also where nothing is wrong: few records never prove that there is no error."""
    labels = np.arange(30) % 3
    for probabilities in (0.9 * np.eye(3)[labels] + 0.1 / 3, *(guesses(3, 30, seed)[0] for seed in range(5))):
        for name, of, each in Metrics.of(probabilities, labels, "abc").rows():
            assert 0 <= each.low <= each.value <= each.high <= 1, (name, of)
            assert each.high - each.low > 1e-3 or name == "calibration_error", (name, of)


@pytest.mark.parametrize(("name", "at_least"), [("auc", 0.9), ("f1", 0.9), ("balanced_accuracy", 0.9)])
def test_intervals_cover_the_truth_about_as_often_as_they_say(name: str, at_least: float) -> None:
    """Of 100 samples of 80 records, nine in ten intervals or more hold the value of 200,000 records."""
    truth = Metrics.of(*guesses(2, 200_000, 1000), "ny", draws=1).overall[name].value
    found = [Metrics.of(*guesses(2, 80, seed), "ny", draws=200).overall[name] for seed in range(100)]
    assert np.mean([each.low <= truth <= each.high for each in found]) >= at_least


def test_calibration_error_sees_too_much_confidence() -> None:
    """The truth's own probabilities are calibrated; sharper ones are not, by as much as they are wrong."""
    generator = np.random.default_rng(3)
    chance = generator.uniform(0.5, 1, 20_000)
    labels = (generator.uniform(size=20_000) < chance).astype(np.int64)
    true = np.column_stack([1 - chance, chance])
    assert Metrics.of(true, labels, "ny", draws=50).overall["calibration_error"].value < 0.02
    sure = np.column_stack([np.zeros(20_000), np.ones(20_000)])
    assert Metrics.of(sure, labels, "ny", draws=50).overall["calibration_error"].value == pytest.approx(0.25, abs=0.01)
    assert calibration_bins(sure, labels) == [(20_000, 1.0, pytest.approx(0.75, abs=0.01))]


def test_bins_of_confidence_hold_their_upper_end() -> None:
    """Bin m of 15 is ((m - 1)/15, m/15], as in Guo et al. (2017): 0.6 is in a bin with 0.58, not with 0.62."""
    chance = np.array([0.58, 0.6, 0.62])
    probabilities, labels = np.column_stack([1 - chance, chance]), np.array([1, 0, 1])
    assert calibration_bins(probabilities, labels) == [
        (2, pytest.approx(0.59), pytest.approx(0.5)),
        (1, pytest.approx(0.62), pytest.approx(1.0)),
    ]
    error = Metrics.of(probabilities, labels, "ny", draws=1).overall["calibration_error"].value
    assert error == pytest.approx((abs(0.58 - 1 + 0.6 - 0) + abs(0.62 - 1)) / 3)


def test_absent_class_has_no_sensitivity_and_no_area() -> None:
    """What no record says is null, and the means are over the classes that occur; the result is JSON."""
    probabilities, labels = guesses(2)
    wider = np.column_stack([probabilities, np.zeros(len(labels))])
    found = Metrics.of(wider, labels, ["a", "b", "c"])
    assert (found.by_class[2]["sensitivity"], found.by_class[2]["auc"], found.by_class[2]["f1"]) == (None, None, None)
    assert found.overall["balanced_accuracy"].value == pytest.approx(
        sk.balanced_accuracy_score(labels, wider.argmax(1))
    )
    assert found.overall["sensitivity"] is None
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["classes"][2] | {"specificity": 0} == {
        "class": "c", "records": 0, "sensitivity": None, "specificity": 0, "auc": None, "f1": None,
    }  # fmt: skip


def test_class_that_is_never_predicted_counts_in_full() -> None:
    """A class that the head lacks has sensitivity 0 and, by ties, an area of one half, as scikit-learn says."""
    _, labels = guesses(3)
    scores = np.column_stack([np.random.default_rng(1).normal(size=(300, 2)), np.full(300, -1e30)])
    probabilities = probabilities_of(scores)
    found = Metrics.of(probabilities, labels, "abc")
    assert (found.by_class[2]["sensitivity"].value, found.by_class[2]["auc"].value) == (0.0, 0.5)
    said = probabilities.argmax(axis=1)
    assert found.overall["balanced_accuracy"].value == pytest.approx(sk.balanced_accuracy_score(labels, said))
    area = sk.roc_auc_score(labels, probabilities, multi_class="ovr")
    assert found.overall["auc"].value == pytest.approx(area)


def test_equal_scores_of_several_classes_count_half() -> None:
    """Probabilities rounded to one digit, so that most are tied, have the areas that scikit-learn computes."""
    probabilities, labels = guesses(4)
    probabilities = np.round(probabilities, 1) + 0.01
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    probabilities = np.round(probabilities, 2)
    found = Metrics.of(probabilities, labels, "abcd", draws=1)
    areas = [sk.roc_auc_score(labels == each, probabilities[:, each]) for each in range(4)]
    assert [own["auc"].value for own in found.by_class] == pytest.approx(areas)
    assert found.overall["auc"].value == pytest.approx(np.mean(areas))


@pytest.mark.parametrize(
    ("records", "unequal"),
    [([150, 100], False), ([151, 100], True), ([100, 120, 149], False), ([3, 0], True), ([7], False), ([0, 0], False)],
)
def test_classes_are_unequal_above_half_as_many_again(records: list[int], unequal: bool) -> None:
    """The largest has more than 1.5 times the records of the smallest; a class without any is the smallest."""
    assert are_unequal(records) is unequal


def test_one_class_alone_can_be_scored() -> None:
    """Records of a single class have an accuracy and no area."""
    found = Metrics.of(np.tile([0.3, 0.7], (5, 1)), np.ones(5, dtype=np.int64), "ny")
    assert found.overall["accuracy"].value == 1
    assert found.overall["auc"] is None


@pytest.mark.parametrize("shape", [(0, 2), (3, 3), (4, 2)])
def test_wrong_shapes_are_refused(shape: tuple[int, int]) -> None:
    """No record, other classes and other records are bad input."""
    labels = np.zeros(3 if shape[0] else 0, dtype=np.int64)
    with pytest.raises(BadInput, match="cannot score"):
        Metrics.of(np.full(shape, 0.5), labels, "ny")
