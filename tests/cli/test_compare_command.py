"""`secagg compare`: its options are those of simulate, what it prints, and what it refuses."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from secagg.cli.compare import compare
from secagg.cli.simulate import simulate
from tests.cli.command import Command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A small file of features."""
    path = tmp_path / "small.npz"
    labels = np.arange(90) % 3
    np.savez(path, features=np.random.default_rng(0).normal(size=(90, 4)) + labels[:, None], labels=labels)
    return path


def test_takes_what_simulate_takes() -> None:
    """Every option of simulate is there, but for those that have their own form, or none."""
    assert set(inspect.signature(simulate).parameters) - set(inspect.signature(compare).parameters) == {
        "method",
        "parameters",
        "seed",
        "processes",
        "curves",
        "device",
        "keep",
        "save",
    }


def test_table(secagg: Command, data: Path, tmp_path: Path) -> None:
    """The table goes to stdout with its notes, the rest to stderr, and the files into the folder."""
    said = secagg("compare", "--methods", "fedcgs[refine=1],ensemble", "--dataset", data, "--out",
                  tmp_path / "out", "--partition", "dirichlet:0.5,1", "--seeds", 1, "--workers", 1)  # fmt: skip
    assert said.code == 0, said
    header, _, *rows = said.out.splitlines()[:4]
    assert header.split()[:3] == ["method", "dirichlet:0.5", "dirichlet:1"]
    assert rows[0].startswith("fedcgs[refine=1]")
    assert rows[0].endswith("masked")
    assert rows[1].startswith("ensemble")
    assert rows[1].endswith("none¹")
    assert "\n¹ Ran without protection: ensemble cannot run masked" in said.out
    assert (tmp_path / "out" / "table.tex").exists()


def test_page_holds_tables_and_figure(secagg: Command, data: Path, tmp_path: Path) -> None:
    """One file with both tables, the figure and the runs' notes, that asks for nothing else; none in a shard."""
    words = ("compare", "--methods", "fedcgs,prototypes", "--dataset", data, "--out", tmp_path / "out", "--seeds", 1)
    page = tmp_path / "page.html"
    assert secagg(*words, "--workers", 1, "--html", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "balanced accuracy" in text
    assert text.count("prototypes") == 2
    assert 'src="data:image/svg+xml;base64,' in text
    assert "http" not in text.replace("http-equiv", "")
    assert secagg(*words, "--shard", "1/2", "--html", page).code == 2


@pytest.mark.long
def test_notes_are_those_of_simulate(secagg: Command, data: Path, tmp_path: Path) -> None:
    """What simulate notes stands on stderr, each once; a baseline's footnote holds why it ran without, and no more."""
    words = ["--dataset", data, "--epsilon", "8", "--delta", "0.1", "--adjacency", "add-remove", "--validate", "0.2",
             "--noise-seed", "7"]  # fmt: skip
    noted = [line for line in secagg("simulate", *words).err.splitlines() if line.startswith("note: ")]
    assert len(noted) == 3
    said = secagg("compare", "--methods", "fedcgs,dp-sgd", *words, "--out", tmp_path, "--seeds", 1, "--workers", 1)
    assert said.code == 0, said
    lines = said.err.splitlines()
    assert [lines.count(note) for note in noted] == [1, 1, 1]
    assert "¹ Ran without a secure sum: with dp-sgd, what leaves a client is every record: somebody" in said.out
    assert said.out.count("Delta 0.1 is not below 1 in 57 records") == 1
    assert "own records" not in said.out


def test_json_and_nothing_else(secagg: Command, data: Path, tmp_path: Path) -> None:
    """`--json -` prints the results and nothing else, and `--quiet` says nothing."""
    arguments = ["--methods", "prototypes", "--dataset", data, "--out", tmp_path, "--seeds", 1, "--quiet"]
    said = secagg("compare", *arguments, "--json", "-")
    assert (said.code, said.err) == (0, "")
    assert said.json["version"] == 1
    assert said.json["rows"][0]["protections"] == ["masked"]


def test_every_run_refused(secagg: Command, data: Path, tmp_path: Path) -> None:
    """When nothing could run, the exit code is 2, one line gives a reason, and earlier results stay."""
    (tmp_path / "results.csv").write_text("earlier")
    said = secagg(
        "compare", "--method", "prototypes[magic=1]", "--dataset", data, "--out", tmp_path, "--seeds", 1, "--quiet"
    )
    assert said.code == 2
    assert "every run was refused: " in said.complaint
    assert "magic" in said.complaint
    assert (tmp_path / "results.csv").read_text() == "earlier"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--methods", ""],
        ["--methods", "fedcgs["],
        ["--methods", "fedcgs,,prototypes"],
        ["--methods", "fedcgs", "--clients", "3,5"],
        ["--methods", "fedcgs", "--leave-out", "domain"],
        ["--methods", "fedcgs", "--leave-out", "domain=*"],
        ["--methods", "fedcgs", "--seeds", "0"],
    ],
    ids=" ".join,
)
def test_bad_option(secagg: Command, tmp_path: Path, arguments: list[str]) -> None:
    """What cannot be compared is said in one line before anything runs."""
    said = secagg("compare", "--quiet", "--out", tmp_path / "out", *arguments)
    assert said.code == 2
    assert said.complaint
    assert not (tmp_path / "out").exists()
