"""Records without labels, which are to be predicted: tables, arrays and folders of images."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from secagg.agreement.schema import Categorical, Numeric, Schema
from secagg.data.records import BAD, UNLABELLED, Dataset
from secagg.data.sources import line_breaks_of, open_unlabelled
from secagg.errors import BadInput, BadRecord

SCHEMA = Schema(
    columns=(Numeric("age", 0, 100), Categorical("sex", ("f", "m"))),
    label="ill",
    label_values=(("0", "no"), ("1", "yes")),
    classes=("no", "yes"),
)
IN_ORDER = Schema(**{**SCHEMA.__dict__, "fields": ("age", "sex", "ill")})


def opened(path: Path, content: str, schema: Schema | None = SCHEMA) -> Dataset:
    """The records of a table with this text."""
    path.write_text(content)
    return open_unlabelled(str(path), schema=schema, image_size=(3,), classes=("no", "yes"))


def test_table_without_the_column_is_read_as_with_it(tmp_path: Path) -> None:
    """The same inputs in the same order, whatever is known of the label."""
    full = opened(tmp_path / "full.csv", "ill,age,sex\n1,25,f\n0,50,m\n").train
    bare = opened(tmp_path / "bare.csv", "sex,age\nf,25\nm,50\n").train
    assert np.array_equal(full.inputs, bare.inputs)
    assert full.labels.tolist() == [1, 0]
    assert bare.labels.tolist() == [UNLABELLED, UNLABELLED]


def test_single_cells_may_lack_the_label(tmp_path: Path) -> None:
    """A missing value in the label's column is no fault here, and the record keeps its inputs."""
    found = opened(tmp_path / "some.csv", "ill,age,sex\n1,25,f\n?,50,m\n,50,m\n").train
    assert found.labels.tolist() == [1, UNLABELLED, UNLABELLED]
    assert found.inputs[1].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("content", "labels"), [("25,f\n50,m\n", [-2, -2]), ("25,f,1\n50,m,0\n", [1, 0])])
def test_file_without_header_may_lack_the_labels_field(tmp_path: Path, content: str, labels: list[int]) -> None:
    """Where the schema fixes the order, one field less than it names is the label's."""
    found = opened(tmp_path / "ordered.data", content, IN_ORDER).train
    assert found.labels.tolist() == labels
    assert found.inputs[:, 0].tolist() == [-0.5, 0]


@pytest.mark.parametrize(
    "lines",
    [
        ["25,f", "50,m"],
        ["sex,age", "f,25", "m,50"],
        ["sex,ill,age", "f,1,25", "m,0,50"],
        ["age,note,sex", "25,-,f", "50,-,m"],
    ],
)
def test_skipping_bad_rows_changes_no_other_row(tmp_path: Path, lines: list[str]) -> None:
    """Where the schema fixes the order, files with another header, or without labels, are read as without skipping."""
    strict = opened(tmp_path / "good.csv", "\n".join(lines), IN_ORDER).train
    (tmp_path / "bad.csv").write_text("\n".join([*lines[:-1], 'one "field', lines[-1]]))
    how = {"schema": IN_ORDER, "image_size": (3,), "classes": ("no", "yes")}
    found = open_unlabelled(str(tmp_path / "bad.csv"), **how, tolerant=True).train  # type: ignore[arg-type]
    assert found.labels.tolist() == [strict.labels[0], BAD, strict.labels[1]]
    assert np.array_equal(found.inputs[[0, 2]], strict.inputs)
    assert found.origin.row.tolist() == [len(lines) - 1, len(lines), len(lines) + 1]


@pytest.mark.parametrize(
    ("first", "is_said"),
    [("sex,age,ill", True), ("age,note,sex,ill", True), ("age,sex,ill", False), ("25,f,1", False), ('a "b', False)],
)
def test_owner_learns_of_a_header_that_noise_does_not_follow(tmp_path: Path, first: str, is_said: bool) -> None:
    """A header in another order than the schema's is named to the table's owner: under noise it is no header."""
    (tmp_path / "t.csv").write_text(f"{first}\n25,f,1\n")
    doubts = line_breaks_of(str(tmp_path / "t.csv"), IN_ORDER)
    assert any("under noise it is not followed; order them age, sex, ill" in each for each in doubts) == is_said
    assert line_breaks_of(str(tmp_path / "t.csv"), SCHEMA) == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("ill,age,sex\n2,25,f\n", "row 2: column 'ill' holds none of the declared labels"),
        ("age,sex\nnan,f\n", "row 2: column 'age' holds no number"),
        ("age,sex\n,f\n", "row 2: column 'age' holds a missing value"),
        ("age\n25\n", "lacks the columns sex"),
        ("age,sex\n", "no records"),
    ],
)
def test_other_faults_are_refused_as_ever(tmp_path: Path, content: str, said: str) -> None:
    """An unknown label, a number that is none, a missing value, a missing column and no record at all."""
    with pytest.raises(BadInput, match=said):
        opened(tmp_path / "bad.csv", content)


def test_arrays_may_stand_alone(tmp_path: Path) -> None:
    """Features or images without labels are all to be predicted; with labels they are what they ever were."""
    np.savez(tmp_path / "bare.npz", features=np.ones((4, 3)))
    np.savez(tmp_path / "images.npz", images=np.zeros((2, 5, 5), dtype=np.uint8))
    np.savez(tmp_path / "full.npz", features=np.ones((4, 3)), labels=np.arange(4) % 2)
    for name, labels in (("bare", [-2] * 4), ("images", [-2] * 2), ("full", [0, 1, 0, 1])):
        found = open_unlabelled(str(tmp_path / f"{name}.npz"), schema=None, image_size=(3,), classes=("no", "yes"))
        assert found.under(("no", "yes")).train.labels.tolist() == labels


@pytest.mark.parametrize(("features", "said"), [(np.full((2, 3), np.nan), "NaN"), (np.zeros((0, 3)), "no records")])
def test_arrays_at_fault_are_refused(tmp_path: Path, features: np.ndarray, said: str) -> None:
    """Without labels too."""
    np.savez(tmp_path / "bad.npz", features=features)
    with pytest.raises(BadInput, match=said):
        open_unlabelled(str(tmp_path / "bad.npz"), schema=None, image_size=(3,), classes=("no", "yes"))


def test_flat_folder_of_images_has_no_labels(tmp_path: Path) -> None:
    """Images that lie in no class's folder are scaled as the others are, and a file that is none is named."""
    for name in ("a.png", "b.png"):
        Image.new("L", (8, 6), 100).save(tmp_path / name)
    found = open_unlabelled(str(tmp_path), schema=None, image_size=(4, 4), classes=("cat", "dog")).train
    assert found.inputs.shape == (2, 4, 4)
    assert found.labels.tolist() == [UNLABELLED, UNLABELLED]
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(BadRecord, match=r"notes\.txt.*no name of an image"):
        open_unlabelled(str(tmp_path), schema=None, image_size=(4, 4), classes=("cat", "dog"))


def test_classes_of_another_order_keep_unlabelled_and_bad_apart(tmp_path: Path) -> None:
    """Neither marker becomes a class when labels are counted in a plan's classes."""
    found = opened(tmp_path / "some.csv", "ill,age,sex\n1,25,f\n?,50,m\n")
    turned = found.under(("yes", "no")).train
    assert turned.labels.tolist() == [0, UNLABELLED]
    assert found.train.discard(np.array([False, True])).labels.tolist() == [1, BAD]
