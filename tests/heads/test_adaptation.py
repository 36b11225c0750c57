"""Local adaptation: where it starts, what holds it, which records it uses, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from secagg.encoding import Grid, Normalisation
from secagg.errors import BadInput
from secagg.heads import LinearHead, head_digest, predict
from secagg.heads.adaptation import Adaptation, adapt, class_means, local_start, records_used
from secagg.heads.descent import fresh_layers
from secagg.heads.linear import ABSENT_BIAS, HeadAdapter, Recentring

CLASSES, DIMENSION = 3, 6
GENERATOR = np.random.default_rng(5)
LABELS = GENERATOR.permutation(np.arange(90) % CLASSES)
ROWS = GENERATOR.normal(size=(90, DIMENSION)) * 0.6 + 2 * np.eye(DIMENSION)[LABELS]
UNIT = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
HEAD = LinearHead(np.eye(CLASSES, DIMENSION, dtype=np.float32), np.zeros(CLASSES, dtype=np.float32))
BEHIND = replace(HEAD, before=HeadAdapter("residual", fresh_layers((DIMENSION, 4, DIMENSION), biased=False)))
STACKED = LinearHead(HEAD.weight[:, :4], HEAD.bias, HeadAdapter("stacked", fresh_layers((DIMENSION, 4))))
MEANS = np.eye(CLASSES, DIMENSION)
GRID = Grid(4.0, 1 << 16, 0.0, Normalisation.NONE)
FREE, ALIGN, DISTIL = Adaptation("align", 0.0), Adaptation("align", 1.0), Adaptation("distil", 1.0)


def distance(head: LinearHead) -> float:
    """The mean square between what the head's adapter puts out and the class means."""
    assert head.before is not None
    return float(((head.before.apply(UNIT) - MEANS[LABELS]) ** 2).mean())


def accuracy(head: LinearHead, labels: np.ndarray) -> float:
    """How often the head says `labels` of the unit rows."""
    return float((predict(head, UNIT) == labels).mean())


def test_start_predicts_as_the_received_head():
    """Before the first step a linear head scores records of one length as before, and one with an adapter is itself."""
    assert predict(local_start(HEAD, UNIT), UNIT).tolist() == predict(HEAD, UNIT).tolist()
    longer = 7 * UNIT
    assert predict(local_start(HEAD, longer), longer).tolist() == predict(HEAD, longer).tolist()
    biased = LinearHead(HEAD.weight, np.array([3.0, 0, -2], dtype=np.float32))
    assert predict(local_start(biased, longer), longer).tolist() == predict(biased, longer).tolist()
    assert head_digest(local_start(BEHIND, ROWS)) == head_digest(BEHIND)


def test_alignment_pulls_features_to_the_means():
    """The larger λ, the closer the adapter's outputs of each class are to its mean."""
    found = [distance(adapt(HEAD, UNIT, LABELS, Adaptation("align", weight), MEANS)) for weight in (0, 30, 3000)]
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.5 * found[0]


@pytest.mark.parametrize("head", [HEAD, replace(BEHIND, weight=HEAD.weight / 10)], ids=["linear", "residual"])
def test_distillation_keeps_the_predictions(head: LinearHead):
    """On records with other labels than the head says, β = 0 follows the labels and a large β follows the head."""
    received = predict(head, UNIT)
    other = (received + 1) % CLASSES
    free, held = (adapt(head, UNIT, other, Adaptation("distil", weight)) for weight in (0.0, 1000.0))
    assert accuracy(free, other) > 0.8
    assert accuracy(held, received) > 0.8


def test_distillation_works_behind_a_stacked_adapter():
    """A head as FedTC makes it is adapted through all its layers, and keeps its kind."""
    adapted = adapt(STACKED, UNIT, LABELS, DISTIL)
    assert isinstance(adapted.before, HeadAdapter)
    assert adapted.before.kind == "stacked"
    assert head_digest(adapted) != head_digest(STACKED)


def test_weight_zero_is_plain_fine_tuning():
    """With the weight 0 means do not matter, and a small weight changes the result by little but changes it."""
    free = adapt(HEAD, UNIT, LABELS, FREE)
    assert head_digest(adapt(HEAD, UNIT, LABELS, FREE, MEANS)) == head_digest(free)
    slightly = adapt(HEAD, UNIT, LABELS, Adaptation("align", 1e-3), MEANS)
    assert head_digest(slightly) != head_digest(free)
    np.testing.assert_allclose(slightly.weight, free.weight, atol=1e-3)


@pytest.mark.parametrize("adaptation", [ALIGN, DISTIL], ids=str)
def test_two_runs_give_the_same_bits(adaptation: Adaptation):
    """Nothing in the training is drawn anew."""
    one, two = (adapt(HEAD, UNIT, LABELS, adaptation, MEANS) for _ in range(2))
    assert head_digest(one) == head_digest(two)


def test_means_are_taken_in_their_direction():
    """Alignment happens on the unit sphere: the means' lengths do not matter."""
    one, two = (adapt(HEAD, UNIT, LABELS, ALIGN, scale * MEANS) for scale in (1, 8))
    assert head_digest(one) == head_digest(two)


def test_shots_are_respected():
    """At most so many records of each class are used, the same ones each time; no other record can matter."""
    every = np.ones(CLASSES, dtype=np.bool_)
    used = records_used(LABELS, every, 4)
    assert np.bincount(LABELS[used]).tolist() == [4, 4, 4]
    assert records_used(LABELS, every, 0).all()
    assert records_used(LABELS, every, 1000).all()
    few = replace(DISTIL, shots=4)
    moved = np.where(used[:, None], UNIT, -UNIT)
    assert head_digest(adapt(HEAD, UNIT, LABELS, few)) == head_digest(adapt(HEAD, moved, LABELS, few))
    assert head_digest(adapt(HEAD, UNIT[used], LABELS[used], DISTIL)) == head_digest(adapt(HEAD, UNIT, LABELS, few))


def test_one_record_is_enough():
    """A client with one record of one class adapts, and the head still knows the others."""
    adapted = adapt(HEAD, UNIT[:1], LABELS[:1], ALIGN, MEANS)
    assert predict(adapted, UNIT[:1]).tolist() == LABELS[:1].tolist()
    assert adapted.present.all()


def test_absent_classes_stay_absent():
    """Records of a class that the head lacks are left out, and the class is never predicted."""
    bias = np.array([0, 0, ABSENT_BIAS], dtype=np.float32)
    head = LinearHead(np.where(bias[:, None] == 0, HEAD.weight, np.float32(0)), bias)
    adapted = adapt(head, UNIT, LABELS, ALIGN, MEANS)
    known = LABELS < 2
    assert head_digest(adapted) == head_digest(adapt(head, UNIT[known], LABELS[known], ALIGN, MEANS))
    assert set(predict(adapted, UNIT)) <= {0, 1}
    with pytest.raises(BadInput, match="no record to adapt to"):
        adapt(head, UNIT[~known], LABELS[~known], ALIGN, MEANS)


def test_class_means_of_each_kind_of_head():
    """Carried means come first; prototypes' weights are them, less the centre; other heads have none."""
    carried = replace(HEAD, means=np.full((CLASSES, DIMENSION), 2, dtype=np.float32))
    assert (class_means(carried, "other", GRID) == 2).all()
    centred = replace(GRID, centre=0.5)
    np.testing.assert_array_equal(class_means(HEAD, "means", centred), HEAD.weight + 0.5)
    np.testing.assert_array_equal(class_means(BEHIND, "directions", centred), HEAD.weight)
    with pytest.raises(BadInput, match="personalise=1"):
        class_means(HEAD, "other", GRID)


def with_nan() -> np.ndarray:
    """The unit rows with one NaN."""
    rows = UNIT.copy()
    rows[3, 2] = np.nan
    return rows


@pytest.mark.parametrize(
    ("head", "rows", "labels", "means", "words"),
    [
        (HEAD, UNIT[:, :4], LABELS, MEANS, "takes 6 features"),
        (HEAD, UNIT, LABELS[:5], MEANS, "5 records of shape"),
        (HEAD, UNIT, LABELS + 1, MEANS, "labels from 1 to 3"),
        (HEAD, UNIT, LABELS - 1, MEANS, "labels from -1 to 1"),
        (HEAD, with_nan(), LABELS, MEANS, "NaN or infinite"),
        (HEAD, UNIT[:0], LABELS[:0], MEANS, "no record to adapt to"),
        (HEAD, UNIT, LABELS, None, "the mean of every class"),
        (HEAD, UNIT, LABELS, MEANS[:2], "the mean of every class"),
        (STACKED, UNIT, LABELS, MEANS, "stacked adapter"),
        (
            replace(HEAD, before=Recentring(np.eye(6, dtype=np.float32), np.zeros(6, dtype=np.float32))),
            UNIT,
            LABELS,
            MEANS,
            "refinement rounds",
        ),
    ],
)
def test_what_does_not_fit_is_refused(head, rows, labels, means, words):
    """Another dimension, other labels, NaN, no records, no means and heads that cannot be aligned raise BadInput."""
    with pytest.raises(BadInput, match=words):
        adapt(head, rows, labels, ALIGN, means)


@pytest.mark.parametrize("text", ["align:1", "distil:10", "distil:0.5:16", "align:0:2"])
def test_text_is_read_and_written_alike(text: str):
    """What an adaptation says of itself is what makes it again."""
    assert str(Adaptation.read(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "align", "align:", "align:x", "align:-1", "align:nan", "align:inf", "distil:1:-2", "distil:1:2:3", "sgd:1"],
)
def test_other_texts_are_refused(text: str):
    """Unknown losses, missing, extra, negative and infinite numbers raise BadInput."""
    with pytest.raises(BadInput):
        Adaptation.read(text)
