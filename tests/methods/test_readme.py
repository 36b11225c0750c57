"""The methods that ADDING.md shows: one file and one line each, and nothing else; and the tables of README.md."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import methods
from methods.baselines import BASELINES
from secagg.data import open_dataset
from tests.methods.readme import readme_blocks

PACKAGE = Path(methods.__file__).parent
NAMES = ("naive_bayes.py", "averaging.py")
NOISE = ("--expand", "256", "--epsilon", "4", "--delta", "1e-5", "--adjacency", "add-remove")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the guide's files and their lines in the registry."""
    folder = tmp_path_factory.mktemp("readme")
    copy = folder / "methods"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    parts = readme_blocks()
    registry = copy / "__init__.py"
    for name, file, line in zip(NAMES, parts[::2], parts[1::2], strict=True):
        (copy / name).write_text(file, encoding="utf-8")
        text = registry.read_text(encoding="utf-8")
        last = '        "prototypes":'
        registry.write_text(text.replace(last, f"{line}{last}", 1), encoding="utf-8")
    return folder


COMMANDS = """
import json, sys
from secagg.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["secagg", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def run(folder: Path, *commands: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """These commands of `secagg` in one process that sees the copy, up to the first that fails."""
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{PACKAGE.parent}"}
    script = [sys.executable, "-P", "-c", COMMANDS, json.dumps(commands)]
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False)


def simulated(folder: Path, *runs: tuple[str, ...], method: str = "naive-bayes") -> list[dict[str, object]]:
    """What `secagg simulate --method …` says, with each of these arguments."""
    files = [folder / f"said-{number}.json" for number in range(len(runs))]
    given = zip(runs, files, strict=True)
    done = run(folder, *(("simulate", "--method", method, *words, "--json", str(file)) for words, file in given))
    assert done.returncode == 0, done.stderr
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def listed(first: str, last: str) -> list[str]:
    """The names in the first column of the table between two lines of the README."""
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    table = text[text.index(first) : text.index(last)]
    return [
        name for row in table.splitlines() if row.startswith("| `") for name in re.findall("`(.*?)`", row.split("|")[1])
    ]


def test_tables_list_every_method_and_every_baseline():
    """The README's two tables name what the registries hold, each once."""
    assert sorted(listed("# Methods", "## Baselines")) == sorted(methods.METHODS)
    assert sorted(listed("## Baselines", "## What leaves a member")) == sorted(["dp-sgd", *BASELINES])


def test_a_method_is_one_file_and_one_line(installed: Path):
    """Beside the new files, the copy differs from the package in the registry alone: by their lines and imports."""
    compared = filecmp.dircmp(PACKAGE, installed / "methods", ignore=["__pycache__"])
    assert (compared.left_only, compared.right_only) == ([], sorted(NAMES))
    assert compared.diff_files == ["__init__.py"]
    assert all(not each.diff_files and not each.left_only for each in compared.subdirs.values())
    before, after = (
        (each / "__init__.py").read_text(encoding="utf-8").splitlines() for each in (PACKAGE, installed / "methods")
    )
    assert len(after) == len(before) + len(NAMES)
    assert [line for line in after if line in before] == before


def test_it_runs_under_every_protection_with_the_same_bits(installed: Path):
    """masked, shared and encrypted open the same sum, and the head is as accurate as an independent computation."""
    runs = simulated(installed, *(("--protection", each) for each in ("masked", "shared", "encrypted")))
    assert len({run["aggregate_sha256"] for run in runs}) == 1
    assert runs[0]["accuracy"] == pytest.approx(independent(), abs=2 / 359)


def test_it_runs_with_noise(installed: Path):
    """At ε = 4 the plan carries the promise, and the noisy head still beats chance by far."""
    (run,) = simulated(installed, (*NOISE, "--parameters", "floor=0.01"))
    assert "epsilon 4" in str(run["promise"]).lower().replace("ε", "epsilon")
    assert float(str(run["accuracy"])) > 0.3


def test_averaging_gives_the_same_bits_under_every_protection(installed: Path):
    """Three rounds of averaging end with one sum and head under masks and in the clear, well above chance."""
    runs = simulated(installed, *(("--protection", each) for each in ("none", "masked")), method="averaging")
    assert len({(run["aggregate_sha256"], run["head_sha256"]) for run in runs}) == 1
    assert float(str(runs[0]["accuracy"])) > 0.75


def test_averaging_hides_a_client(installed: Path):
    """At a finite epsilon the plan's promise is about a client, and its three sums are composed."""
    given = ("--epsilon", "8", "--delta", "1e-5", "--adjacency", "add-remove", "--unit", "client")
    (said,) = simulated(installed, given, method="averaging")
    promise = str(said["promise"])
    assert "client" in promise
    assert "3" in promise


def test_averaging_is_checked(installed: Path):
    """`methods check` holds an update to the length that it declares."""
    assert run(installed, ("methods", "check", "averaging")).returncode == 0


def independent() -> float:
    """Accuracy of naive Bayes with shared variances on the digits, written down once more."""
    data = open_dataset("digits")
    x, y = data.train.inputs.reshape(-1, 64), data.train.labels
    means = np.array([x[y == label].mean(axis=0) for label in range(10)])
    variance = np.mean((x - means[y]) ** 2, axis=0) + 1e-3
    assert data.test is not None
    tests = data.test.inputs.reshape(-1, 64)
    distance = (((tests[:, None] - means[None]) ** 2) / variance).sum(axis=2)
    prior = np.log(np.bincount(y) / len(y))
    return float(np.mean(np.argmax(prior - distance / 2, axis=1) == data.test.labels))
