"""`secagg schema`, the dry run's look at one's own records, and `simulate --test`, as people run them."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import MEMBERS, NEW_PLAN, SERVER, Command, nothing_sent

SCHEMA = """label = "ill"
classes = ["no", "yes"]
label_values = {0 = "no", 1 = "yes"}
decimal = ","
columns = [
    {name = "hb", kind = "numeric", low = 0, high = 300},
    {name = "on", kind = "date", low = 2020-01-01, high = 2021-01-01},
]
"""


def write_table(path: Path, cells: str = "14,{}", rows: int = 20) -> Path:
    """A small European table."""
    lines = ["hb;on;ill", *(f"{cells.format(row)};2020-02-{row + 1:02};{row % 2}" for row in range(rows))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """A schema file."""
    (tmp_path / "own.toml").write_text(SCHEMA)
    return tmp_path / "own.toml"


def test_new_says_that_the_file_must_be_public(secagg: Command, tmp_path: Path) -> None:
    """A draft is written with a warning, and never over a file that is there; what cannot be read is bad input."""
    public, out = write_table(tmp_path / "public.csv"), tmp_path / "new.toml"
    said = secagg("schema", "new", "--like", public, "--label", "ill", "--out", out)
    assert said.code == 0
    assert "is it public?" in said.err
    assert "from the public file public.csv" in out.read_text()
    assert secagg("schema", "check", out, public).code == 0
    assert "is there already" in secagg("schema", "new", "--like", public, "--label", "ill", "--out", out).err
    absent = secagg("schema", "new", "--like", public, "--label", "hbx", "--out", tmp_path / "other.toml")
    assert (absent.code, (tmp_path / "other.toml").exists()) == (2, False)


def test_new_asks_which_of_two_classes_is_positive(secagg: Command, tmp_path: Path) -> None:
    """A draft leaves the positive class to be filled in, or has the one that was given; others are refused."""
    public = write_table(tmp_path / "public.csv")
    asked = ("schema", "new", "--like", public, "--label", "ill", "--out")
    left = secagg(*asked, tmp_path / "left.toml")
    assert "FILL IN" in left.out
    assert '# positive = "" # FILL IN: "0" or "1", the one to be recognised' in (tmp_path / "left.toml").read_text()
    assert "declares no positive class" in secagg("schema", "check", tmp_path / "left.toml", public).out
    given = secagg(*asked, tmp_path / "given.toml", "--positive", "0", "--json", "-")
    assert given.json["schema"]["positive"] == "0"
    assert "class 0, positive" in secagg("schema", "check", tmp_path / "given.toml", public).out
    wrong = secagg(*asked, tmp_path / "wrong.toml", "--positive", "2")
    assert (wrong.code, (tmp_path / "wrong.toml").exists()) == (2, False)
    assert "positive is '2' and the classes are 0, 1; name one of two classes" in wrong.err


def test_check_shows_every_column_and_refuses_the_first_bad_cell(secagg: Command, tmp_path: Path, schema: Path) -> None:
    """What is there and what is doubtful on stdout; a refusal by file, row, column and remedy, with exit code 2."""
    good = secagg("schema", "check", schema, write_table(tmp_path / "good.csv"), "--json", "-")
    assert good.code == 0
    assert good.json["classes"] == {"no": 10, "yes": 10}
    assert any("another unit?" in doubt for doubt in good.json["columns"][0]["doubts"])
    bad = secagg("schema", "check", schema, write_table(tmp_path / "bad.csv", "31{},5"))
    assert bad.code == 2
    assert "20 refused" in bad.out
    assert "bad.csv, row 2: column 'hb' holds a number outside the declared range [0, 300]; mend" in bad.err
    assert "310" not in bad.err


@pytest.mark.parametrize("epsilon", ["inf", "4"])
def test_the_dry_run_looks_at_ones_own_records_and_sends_nothing(
    secagg: Command, federation: Path, tmp_path: Path, schema: Path, epsilon: str
) -> None:
    """Class counts and every column beside its range, for the member alone; at a finite epsilon how many count not."""
    plan, alice = tmp_path / "table.json", federation / MEMBERS[0]
    promise = ["--epsilon", epsilon, *(["--delta", "1e-5", "--adjacency", "add-remove"] if epsilon != "inf" else [])]
    roster = federation / SERVER / "roster.json"
    made = secagg(*NEW_PLAN, "--roster", roster, "--schema", schema, "--refine", "0", *promise, "--out", plan)
    assert made.code == 0, made.err
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "t", "--out", alice / "p.toml").code == 0
    data = write_table(tmp_path / "own.csv")
    if epsilon != "inf":
        data.write_text(data.read_text() + '999;2020-02-01;1\n"1\n4";2020-02-01;1\n')
    said = secagg(
        "client", "--plan", plan, "--server", "127.0.0.1:1", "--data", data, "--policy", alice / "p.toml",
        "--state", alice / "state", "--tls", alice, "--dry-run",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "For you alone: looked at here, never sent" in said.out
    assert "class yes" in said.out
    assert "another unit?" in said.out or epsilon != "inf"
    assert ("3 of 23 cannot be used" in said.out) == (epsilon != "inf")
    assert (f"in a quoted cell: 1, the first {data}, row 23;" in said.out) == (epsilon != "inf")
    assert nothing_sent(alice / "state")


def test_simulate_tests_on_ones_own_file(secagg: Command, tmp_path: Path, schema: Path) -> None:
    """Accuracy is of all records of --test, and training of all of the data set."""
    data, own = write_table(tmp_path / "data.csv"), write_table(tmp_path / "own.csv", "13,{}", 7)
    said = secagg("simulate", "--dataset", data, "--schema", schema, "--test", own, "--clients", 2, "--json", "-", "-q")
    assert said.code == 0, said.err
    assert round(said.json["accuracy"] * 7) == pytest.approx(said.json["accuracy"] * 7)
    np.savez(tmp_path / "x.npz", features=np.ones((4, 2)), labels=np.arange(4) % 2)
    refused = secagg("simulate", "--dataset", data, "--schema", schema, "--test", tmp_path / "x.npz")
    assert refused.code == 2


def test_line_breaks_are_named_and_mended(secagg: Command, tmp_path: Path, schema: Path) -> None:
    """The owner reads the cause, the first row and the number; the flag writes a table that is taken."""
    torn, clean = tmp_path / "torn.csv", tmp_path / "clean.csv"
    lines = write_table(tmp_path / "good.csv").read_text().splitlines()
    cells = (f'{line};"a\nb"' if number in (3, 5) else f"{line};-" for number, line in enumerate(lines))
    torn.write_text("\n".join(cells))
    said = secagg("schema", "check", schema, torn)
    assert said.code == 2
    assert f"DOUBT: records torn apart by a line break in a quoted cell: 2, the first {torn}, row 4;" in said.out
    assert "torn.csv, row 4: a quoted cell holds a line break (records with one: 2);" in said.err
    mended = secagg("schema", "check", schema, torn, "--without-line-breaks", clean)
    assert mended.code == 0
    assert "records that had one: 2" in mended.err
    assert clean.read_text().count('"a b"') == 2
    again = secagg("schema", "check", schema, torn, "--without-line-breaks", clean)
    assert (again.code, "is there already" in again.err) == (2, True)
    draft = ["schema", "new", "--like", torn, "--label", "ill", "--out", tmp_path / "new.toml"]
    assert "a quoted cell holds a line break" in secagg(*draft).err
    assert secagg(*draft, "--without-line-breaks", tmp_path / "other.csv").code == 0
    for source, out in ((tmp_path, "x.csv"), (torn, "x.parquet")):
        refused = secagg("schema", "check", schema, source, "--without-line-breaks", tmp_path / out)
        assert refused.code == 2
        assert "delimited text" in refused.err
