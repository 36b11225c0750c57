"""`.npz` layouts, and what in them is refused."""

import math
import zipfile

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.errors import BadInput, BadRecord

IMAGES = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)
FEATURES = np.arange(40 * 3, dtype=np.float64).reshape(40, 3)
LABELS = np.arange(40) % 4


def saved(folder, **arrays):
    """Write an .npz and return its path as text."""
    np.savez(folder / "d.npz", **arrays)
    return str(folder / "d.npz")


def test_plain_arrays_are_split(tmp_path):
    """Features and labels without a test part are split 80/20 in every class."""
    data = open_dataset(saved(tmp_path, features=FEATURES, labels=LABELS))
    assert (data.kind, data.bound, len(data.train), len(data.test)) == ("features", None, 32, 8)
    assert np.bincount(data.test.labels).tolist() == [2, 2, 2, 2]
    assert (FEATURES[data.train.origin.row - 1] == data.train.inputs).all()


def test_pairs_stay_as_they_are(tmp_path):
    """Train and test pairs keep their records; validation records are left aside; labels may be a column."""
    data = open_dataset(
        saved(
            tmp_path, train_images=IMAGES, train_labels=LABELS[:, None].astype(np.uint8), train_index=LABELS + 100,
            val_images=IMAGES[:5], val_labels=LABELS[:5], test_images=IMAGES[:7], test_labels=LABELS[:7],
        )
    )  # fmt: skip
    assert (data.kind, data.bound, len(data.train), len(data.test)) == ("images", math.sqrt(4), 40, 7)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.labels.tolist() == LABELS.tolist()
    assert data.train.columns["index"][1] == "101"
    assert data.notes == ("the file's 5 validation records (val_) are left aside",)


def test_scale_and_classes(tmp_path):
    """uint8 features are multiplied by the scale; class names come from the file."""
    scale = np.array([0.5, 0.25, 2.0], dtype=np.float32)
    path = saved(
        tmp_path, train_features=np.full((2, 3), 255, dtype=np.uint8), train_labels=np.array([0, 1]),
        scale=scale, classes=np.array(["cat", "dog", "owl"]),
    )  # fmt: skip
    data = open_dataset(path)
    assert data.train.inputs.tolist() == [[127.5, 63.75, 510.0]] * 2
    assert data.classes == ("cat", "dog", "owl")
    assert data.test is None


@pytest.mark.parametrize("tolerant", [False, True])
@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["dog", "cat"], [0, 1, 1], [1, 0, 0]),
        (["cat", "dog", "owl"], [0, 1, 2], [0, 1, 2]),
        (["owl", "cat", "dog"], [0, 1, 2], [2, 0, 1]),
        (["dog"], [0, 0, 0], [1, 1, 1]),
        (["owl", "dog"], [1, 0, 1], [1, 2, 1]),
        (None, [0, 1, 2], [0, 1, 2]),
    ],
    ids=str,
)
def test_labels_count_in_the_classes_of_the_plan(tmp_path, names, labels, expected, tolerant):
    """A file's class names, in whatever order and however many of the plan's, decide what its labels mean there."""
    named = {"classes": np.array(names)} if names else {}
    path = saved(tmp_path, features=FEATURES[: len(labels)], labels=np.array(labels, dtype=np.int64), **named)
    data = open_dataset(path, split=False, tolerant=tolerant).under(("cat", "dog", "owl"))
    assert data.train.labels.tolist() == expected
    assert data.classes == ("cat", "dog", "owl")


def test_bad_labels_stay_bad_under_the_classes_of_the_plan(tmp_path):
    """A label that names no class of the file is a bad record, and never one of another class of the plan."""
    path = saved(tmp_path, features=FEATURES[:4], labels=np.array([0, -1, 2, 1]), classes=np.array(["dog", "cat"]))
    data = open_dataset(path, split=False, tolerant=True).under(("cat", "dog", "owl"))
    assert data.train.labels.tolist() == [1, -1, -1, 0]
    assert (data.train.inputs[1:3] == 0).all()


@pytest.mark.parametrize(
    ("labels", "tolerant"), [([], True), ([0, 0], True), ([2, 2], True), ([0, 0], False), ([2, 2], False)], ids=str
)
@pytest.mark.parametrize("unknown", ["eel", "Cat", "cat ", "0"])
def test_file_that_names_another_class_is_refused_as_a_whole(tmp_path, labels, unknown, tolerant):
    """A class name that is none of the plan's is the file's fault, whichever records are of that class."""
    features, names = FEATURES[: len(labels)], np.array(["dog", "cat", unknown])
    path = saved(tmp_path, features=features, labels=np.array(labels, dtype=np.int64), classes=names)
    with pytest.raises(
        BadInput, match=rf"names the classes {unknown}, which are none of the plan's; .*cat, dog"
    ) as refusal:
        open_dataset(path, split=False, tolerant=tolerant).under(("cat", "dog"))
    assert not isinstance(refusal.value, BadRecord)


NAMES = np.array(["dog", "cat", "owl", "eel"])


@pytest.mark.parametrize("names", [NAMES, NAMES.astype("S"), NAMES.astype("<U40")])
@pytest.mark.parametrize("classes", [None, ["owl", "eel", "dog", "cat", "ant"]])
@pytest.mark.parametrize("column", [False, True])
def test_labels_may_be_names(tmp_path, names, classes, column):
    """Labels that are text mean the classes that they name: those of `classes`, or their own, sorted."""
    given = {"classes": np.array(classes)} if classes else {}
    labels = names[LABELS][:, None] if column else names[LABELS]
    data = open_dataset(saved(tmp_path, features=FEATURES, labels=labels, **given), split=False)
    assert data.classes == tuple(classes or sorted(NAMES))
    assert [data.classes[label] for label in data.train.labels] == NAMES[LABELS].tolist()
    plan = ("cat", "dog", "eel", "owl", "ant")
    assert [plan[label] for label in data.under(plan).train.labels] == NAMES[LABELS].tolist()


def test_names_of_held_out_records_are_classes_too(tmp_path):
    """A class that only test records have has its place, and all groups count alike."""
    data = open_dataset(saved(tmp_path, train_features=FEATURES[:2], train_labels=NAMES[[1, 0]],
                              test_features=FEATURES[:2], test_labels=NAMES[[2, 1]]))  # fmt: skip
    assert data.classes == ("cat", "dog", "owl")
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 1], [2, 0])


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"labels": NAMES[LABELS], "classes": NAMES[:3]}, "row 4: the label is none of the 3 in `classes`"),
        ({"labels": np.where(LABELS == 1, "", NAMES[LABELS])}, "row 2: the label is none of the 3"),
        ({"labels": NAMES[LABELS][:30]}, r"labels are .* of shape \(30,\)"),
    ],
)
def test_names_that_name_no_class_are_refused(tmp_path, arrays, said):
    """A name that `classes` lack and an empty one are the record's fault, and labels must be as many as records."""
    with pytest.raises(BadInput, match=said):
        open_dataset(saved(tmp_path, features=FEATURES, **arrays))


def test_names_beside_numbers_are_refused(tmp_path):
    """Where some labels are text and others numbers, no order of the names says what the numbers mean."""
    with pytest.raises(BadInput, match=r"some labels are text.*add `classes`"):
        open_dataset(saved(tmp_path, train_features=FEATURES, train_labels=NAMES[LABELS], test_features=FEATURES,
                           test_labels=LABELS))  # fmt: skip


@pytest.mark.parametrize("odd", [[], [7]])
def test_no_record_decides_what_a_plan_refuses(tmp_path, odd):
    """Under a plan names without `classes` are the file's fault, whichever they are; with them, only the record's."""
    labels = NAMES[LABELS].astype("<U9")
    labels[odd] = "stranger"
    with pytest.raises(BadInput, match="labels are text, and the file has no `classes`") as refusal:
        open_dataset(saved(tmp_path, features=FEATURES, labels=labels), split=False, tolerant=True, most=100)
    assert not isinstance(refusal.value, BadRecord)
    path = saved(tmp_path, features=FEATURES, labels=labels, classes=NAMES)
    data = open_dataset(path, split=False, tolerant=True, most=100)
    assert np.flatnonzero(data.under(tuple(NAMES)).train.labels < 0).tolist() == odd


def test_class_named_twice_is_refused(tmp_path):
    """Two labels under one name could not be told apart."""
    with pytest.raises(BadInput, match="names a class twice"):
        open_dataset(saved(tmp_path, features=FEATURES, labels=LABELS, classes=np.array(["a", "b", "a", "c"])))


def test_named_data_set_brings_its_names(tmp_path):
    """The digits are found among a plan's classes in any order, and refused under names of other things."""
    digits = [str(digit) for digit in range(10)]
    plain = open_dataset("digits", split=False)
    turned = plain.under(digits[::-1])
    assert (turned.train.labels == 9 - plain.train.labels).all()
    with pytest.raises(BadInput, match="digits names the classes 0, 1"):
        plain.under([f"class {digit}" for digit in range(10)])


def test_domains_become_a_column(tmp_path):
    """Several named groups are pooled, each split on its own, and the column `domain` tells them apart."""
    path = saved(
        tmp_path, art_images=IMAGES, art_labels=LABELS, line_art_images=IMAGES[:20], line_art_labels=LABELS[:20]
    )
    data = open_dataset(path)
    assert np.unique(data.train.columns["domain"], return_counts=True)[1].tolist() == [32, 16]
    assert set(data.test.columns["domain"]) == {"art", "line_art"}


@pytest.mark.parametrize(
    ("label", "image", "words"),
    [
        (-1.0, 0.5, "the label is no integer"),
        (math.nan, 0.5, "the label is no integer"),
        (0.5, 0.5, "the label is no integer"),
        (70_000, 0.5, "the label is no integer"),
        (1.0, 1.5, "outside \\[0, 1\\]"),
        (1.0, math.nan, "NaN"),
    ],
)
def test_bad_record_is_named(tmp_path, label, image, words):
    """A label or pixel out of range names array and record."""
    images, labels = np.zeros((5, 2, 2)), np.zeros(5)
    labels[3], images[3, 1, 0] = label, image
    with pytest.raises(BadRecord, match=words) as refusal:
        open_dataset(saved(tmp_path, images=images, labels=labels))
    assert refusal.value.row == 4
    assert "d.npz" in refusal.value.source


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_feature_that_is_no_number_is_named(tmp_path, value):
    """A NaN or infinite feature names its record."""
    features = FEATURES.copy()
    features[11, 2] = value
    with pytest.raises(BadRecord, match="row 12"):
        open_dataset(saved(tmp_path, features=features, labels=LABELS))


def test_label_without_a_name_is_named(tmp_path):
    """A label beyond the file's class names is refused."""
    with pytest.raises(BadRecord, match="row 4"):
        open_dataset(saved(tmp_path, features=FEATURES, labels=LABELS, classes=np.array(["a", "b", "c"])))


@pytest.mark.parametrize(
    "arrays",
    [
        {"features": FEATURES},
        {"labels": LABELS},
        {"features": FEATURES, "images": IMAGES, "labels": LABELS},
        {"features": FEATURES, "labels": LABELS[:3]},
        {"features": FEATURES[:0], "labels": LABELS[:0]},
        {"features": FEATURES[0], "labels": LABELS[:3]},
        {"features": np.float64(3), "labels": LABELS},
        {"features": FEATURES, "labels": LABELS.astype("M8[D]")},
        {"features": FEATURES.astype(complex), "labels": LABELS},
        {"features": FEATURES, "labels": LABELS, "scale": np.ones(2)},
        {"images": IMAGES.astype(np.uint16), "labels": LABELS},
        {"train_features": FEATURES, "train_labels": LABELS, "features": FEATURES, "labels": LABELS},
        {"train_features": FEATURES, "train_labels": LABELS, "test_features": FEATURES[:, :2], "test_labels": LABELS},
        {"test_features": FEATURES, "test_labels": LABELS},
        {"features": FEATURES, "labels": LABELS, "art_features": FEATURES, "art_labels": LABELS},
        {"features": np.array([[None, 1]]), "labels": LABELS[:1]},
    ],
)
def test_unknown_layout_is_refused(tmp_path, arrays):
    """Anything but the documented layouts, and every pickle, is refused in one line that names the file."""
    with pytest.raises(BadInput, match=r"d\.npz") as refusal:
        open_dataset(saved(tmp_path, **arrays))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"text", b"\x93NUMPY"])
def test_other_bytes_are_refused(tmp_path, content):
    """A file that is no .npz archive is refused."""
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"d\.npz"):
        open_dataset(str(tmp_path / "d.npz"))


def test_single_array_file_is_refused(tmp_path):
    """A .npy under the name of an .npz is refused."""
    with (tmp_path / "d.npz").open("wb") as file:
        np.save(file, FEATURES)
    with pytest.raises(BadInput, match=r"d\.npz"):
        open_dataset(str(tmp_path / "d.npz"))


@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("cifar10_images_3k.npz", 2000, 1000, 10),
        ("cifar10_resnet18_layer3_features.npz", 50_000, 10_000, 10),
        ("mnist_12k.npz", 10_000, 2_000, 10),
        ("pacs_32px.npz", 7993, 1998, 7),
        ("pacs_resnet18_layer3_features_64px.npz", 7993, 1998, 7),
        ("pneumoniamnist.npz", 4708, 624, 2),
        ("usps.npz", 7291, 2007, 10),
    ],
)
def test_published_files_open(data_folder, name, train, test, classes):
    """Each published layout opens with its documented sizes."""
    data = open_dataset(str(data_folder / name))
    assert (len(data.train), len(data.test), len(data.classes)) == (train, test, classes)


def test_non_array_member_is_refused(tmp_path):
    """A zip file whose members are no arrays is refused."""
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("labels", "0 1 2")
        archive.writestr("features", "0 1 2")
    with pytest.raises(BadInput, match=r"d\.npz"):
        open_dataset(str(tmp_path / "d.npz"))
