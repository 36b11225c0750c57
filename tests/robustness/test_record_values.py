"""No value of a record is in an error, a log or a result: a sentinel in any faulty place never comes out."""

import gzip
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from secagg.agreement.schema import Categorical, Numeric, Schema
from secagg.data import open_dataset
from secagg.errors import BadInput
from tests.cli.command import Command, command, found

NUMBER = 918273.125
SENTINELS = (
    "918273.125",
    "-918273",
    "9,18273e300",
    "918273nan",
    "quetzal 918273",
    "inf",
    "nan",
    "?",
    "",
    '"918273',
    "\x1b918273",
)
FIELDS = ("id", "age", "sex", "ill")
ROWS = [["1", "25", "f", "no"], ["2", "30.5", "m", "yes"], ["3", "1", "m", "yes"], ["4", "99", "f", "no"]] * 2
SCHEMA = Schema(
    columns=(Numeric("age", 0.0, 100.0), Categorical("sex", ("f", "m"))),
    label="ill",
    label_values=(("no", "no"), ("yes", "yes")),
    classes=("no", "yes"),
    missing=("?", ""),
)
ORDERED = Schema.from_dict(SCHEMA.to_dict() | {"fields": list(FIELDS)})


def is_told(text: str) -> bool:
    """Whether a part of a sentinel is in a text."""
    return "18273" in text or "quetzal" in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the files of all examples."""
    return tmp_path_factory.mktemp("values")


def table(folder: Path, suffix: str, rows: list[list[str]]) -> Path:
    """Rows as a file of some format."""
    path = folder / f"table{suffix}"
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow (the extra `tables`)")
        parquet = pytest.importorskip("pyarrow.parquet")
        records = [row + [""] * (len(FIELDS) - len(row)) for row in rows[1:]]
        columns = [pyarrow.array([row[place] for row in records]) for place in range(len(FIELDS))]
        parquet.write_table(pyarrow.table(columns, names=list(FIELDS)), path)
        return path
    separator = {".tsv": "\t", ".data": ";"}.get(suffix, ",")
    text = "\n".join(separator.join(row) for row in rows).encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".data", ".csv.gz", ".parquet"])
@given(
    row=st.integers(0, len(ROWS) - 1),
    place=st.integers(0, len(FIELDS)),
    value=st.sampled_from(SENTINELS) | st.builds("918273{}".format, st.text(max_size=5)),
    header=st.booleans(),
    schema=st.sampled_from([None, SCHEMA, ORDERED]),
    tolerant=st.booleans(),
)
def test_tables_keep_their_values(folder, suffix, row, place, value, header, schema, tolerant):
    """Whatever cell, of whatever row, holds the sentinel, or where a field too much does: no refusal repeats it."""
    rows = [list(each) for each in ROWS]
    rows[row][place : place + 1] = [value.encode("utf-8", "replace").decode()]
    if header:
        rows.insert(0, list(FIELDS))
    options = {"label": "ill"} if schema is None else {"schema": schema}
    assert not is_told(refusal_of(table(folder, suffix, rows), tolerant=tolerant, **options))


def refusal_of(path: Path, **options: Any) -> str:
    """What the refusal of a file says; nothing where it opens."""
    try:
        open_dataset(str(path), **options)
    except BadInput as refusal:
        return str(refusal)
    return ""


ARRAYS = {
    "features": {"features": np.arange(24.0).reshape(8, 3) / 100, "labels": np.arange(8) % 2 * 1.0},
    "images": {"images": np.arange(32.0).reshape(8, 2, 2) / 32, "labels": np.arange(8) % 2 * 1.0},
    "names": {"features": np.ones((8, 3)), "labels": np.arange(8) % 2 * 1.0, "classes": np.array(["a", "b"])},
    "pairs": {f"{part}_{name}": array for part in ("train", "test")
              for name, array in (("features", np.ones((8, 3))), ("labels", np.arange(8) % 2 * 1.0))},
}  # fmt: skip


@pytest.mark.parametrize("kind", ARRAYS)
@given(
    row=st.integers(0, 7),
    where=st.sampled_from(["inputs", "labels"]),
    value=st.sampled_from([NUMBER, -NUMBER, 918273e300, 918273.0]),
    tolerant=st.booleans(),
)
def test_archives_keep_their_values(folder, kind, row, where, value, tolerant):
    """Whatever number of whatever array is the sentinel: no refusal repeats it."""
    arrays = {name: array.copy() for name, array in ARRAYS[kind].items()}
    place = next(name for name in arrays if name.endswith("labels") == (where == "labels") and name != "classes")
    arrays[place][row] = value
    np.savez(folder / "d.npz", **arrays)
    assert not is_told(refusal_of(folder / "d.npz", tolerant=tolerant))


@pytest.fixture
def secagg(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process."""
    return command(monkeypatch, capsys)


@pytest.fixture(scope="module")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("template") / "federation"


@pytest.fixture
def federation(_template: Path, secagg: Command, tmp_path: Path) -> Path:
    """A consortium whose plan takes three features, and one more plan, of tables."""
    if not _template.exists():
        found(secagg, _template)
        home = _template / "alice"
        (_template / "schema.toml").write_text(
            'label = "ill"\nclasses = ["no", "yes"]\nlabel_values = {no = "no", yes = "yes"}\n'
            '[[columns]]\nname = "age"\nkind = "numeric"\nlow = 0\nhigh = 100\n'
            '[[columns]]\nname = "sex"\nkind = "categorical"\nvalues = ["f", "m"]\n'
        )
        assert secagg("plan", "new", "--purpose", "tests",
                      "--roster", home / "roster.json", "--out", _template / "table.json", "--schema",
                      _template / "schema.toml").code == 0  # fmt: skip
        assert secagg("plan", "policy", "--plan", _template / "table.json", "--data-name", "t", "--out",
                      home / "table.toml").code == 0  # fmt: skip
    return Path(shutil.copytree(_template, tmp_path / "federation"))


def arrays(folder: Path, name: str, value: float) -> Path:
    """A member's records, one number of which is the sentinel."""
    content = {"features": np.full((20, 3), 0.1), "labels": np.arange(20) % 2 * 1.0, "site": np.array(["a"] * 20)}
    content[name][7] = value
    np.savez(folder / "d.npz", **content)
    return folder / "d.npz"


def images(folder: Path) -> Path:
    """A folder of images, one of which is no image and holds the sentinel."""
    for label in ("no", "yes"):
        (folder / "images" / label).mkdir(parents=True)
        Image.new("L", (3, 1)).save(folder / "images" / label / "1.png")
    (folder / "images" / "no" / "2.png").write_text("quetzal 918273")
    return folder / "images"


FAULTS = {
    "feature": lambda folder: arrays(folder, "features", NUMBER),
    "label": lambda folder: arrays(folder, "labels", NUMBER),
    "far label": lambda folder: arrays(folder, "labels", 918273e9),
    "images": images,
    **{
        f"column {place}": lambda folder, place=place: table(
            folder, ".csv", [list(FIELDS), *ROWS[:3], [*ROWS[3][:place], "quetzal918273", *ROWS[3][place + 1 :]], *ROWS]
        )
        for place in (1, 2, 3)
    },
    "no header": lambda folder: table(folder, ".csv", [["9", "918273", "quetzal", "no"], *ROWS]),
    "one field more": lambda folder: table(folder, ".csv", [list(FIELDS), [*ROWS[0], "918273"], *ROWS]),
    "one field": lambda folder: table(folder, ".csv", [list(FIELDS), ["quetzal 918273"], *ROWS]),
    "open quotes": lambda folder: table(folder, ".csv", [list(FIELDS), ['"quetzal', "918273", "f", "no"], *ROWS]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_commands_keep_the_values(
    secagg: Command, federation: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """Every command that reads records says what is wrong with a faulty one, and not what it holds."""
    data = FAULTS[fault](federation)
    home, is_table = federation / "alice", data.suffix == ".csv"
    plan, policy = (
        federation / ("table.json" if is_table else "plan.json"),
        home / ("table" if is_table else "policy"),
    )
    of_plan = ("--plan", plan, "--policy", policy.with_suffix(".toml"), "--data", data)
    of_client = ("--server", "127.0.0.1:1", "--state", home / "state", "--tls", home)
    schema = ("--schema", federation / "schema.toml") if is_table else ()
    noise = ("--epsilon", 1, "--delta", 1e-5, "--adjacency", "add-remove", "--max-records", 64, "--clients", 3)
    leave_out = ("--leave-out", "site=x" if data.suffix == ".npz" else "sex=quetzal?")
    commands = {
        "plan check": ("plan", "check", *of_plan, "--roster", home / "roster.json"),
        "client": ("client", *of_plan, *of_client, "--dry-run"),
        "simulate": ("simulate", "--dataset", data, *schema),
        "derived": ("simulate", "--dataset", data, *(("--label", "ill") if is_table else ())),
        "radius": ("simulate", "--dataset", data, *schema, "--radius", 1),
        "noise": ("simulate", "--dataset", data, *schema, *noise),
        "left out": ("simulate", "--dataset", data, *schema, *leave_out),
        "canaries": ("canaries", "--plan", plan, "--data", data, "--out", federation, "--count", 3),
    }
    if fault == "column 3":  # where classes are read off the labels, that is a class, and measures name classes
        del commands["derived"]
    codes = {}
    with caplog.at_level(logging.DEBUG):
        for name, words in commands.items():
            said = secagg(*words, "--json", federation / "result.json")
            codes[name] = said.code
            result = federation / "result.json"
            everything = said.out + said.err + (result.read_text() if result.exists() else "") + caplog.text
            assert not is_told(everything.replace(str(federation), "")), (name, said)
            result.unlink(missing_ok=True)
    assert set(codes.values()) <= {0, 2}
    assert codes["plan check"] == codes["client"] == 2
