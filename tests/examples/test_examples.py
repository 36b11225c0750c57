"""The worked examples run as they stand, and say what their readers are told."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import command

EXAMPLES = {
    "estimator": ["clients in the sum  10 of 10", "2 clients", "epsilon 0.5: accuracy", "'model_card.md'"],
    "hospital_table": ["clients in the sum  5 of 5", "temperature", "AUC of ill"],
    "own_service": ["north, south, west: the sum", "# A classifier head: fedcgs, 2 classes"],
}
HERE = Path(__file__).parent


def test_every_example_is_tested() -> None:
    """A script in this folder is in the list above."""
    assert {path.stem for path in HERE.glob("*.py") if not path.name.startswith("test_")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an empty folder, cell after cell, and prints what it promises."""
    monkeypatch.chdir(tmp_path)
    secagg = command(monkeypatch, capsys)

    def run_here(words: list[str], **_: object) -> None:
        assert words[:3] == [sys.executable, "-m", "secagg"]
        assert secagg(*words[3:]).code == 0

    monkeypatch.setattr(subprocess, "run", run_here)  # a dozen interpreters would take longer than all they do
    runpy.run_path(str(HERE / f"{name}.py"))
    said = capsys.readouterr().out
    for promised in EXAMPLES[name]:
        assert promised in said
    assert (HERE / f"{name}.py").read_text().count("\n# %% ") >= 3
