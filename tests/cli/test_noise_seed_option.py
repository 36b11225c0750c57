"""`--noise-seed`: said to protect nobody, and not to be had anywhere but in simulations."""

from __future__ import annotations

from pathlib import Path

import pytest

from secagg.cli.main import COMMANDS
from secagg.experiments.seeding import REPRODUCIBLE
from tests.cli.command import Command


def test_outputs_say_so(secagg: Command, tmp_path: Path) -> None:
    """JSON, table, notes and a sweep's table say that there is no privacy; the head is named as not private."""
    words = ["--dataset", "wine", "--epsilon", "1", "--delta", "1e-3", "--adjacency", "add-remove", "--noise-seed", "7"]
    content = secagg("simulate", *words, "--json", "-").json
    assert (content["noise_seed"], content["reproducible_noise"]) == (7, REPRODUCIBLE)
    assert content["promise"].startswith(f"{REPRODUCIBLE}; drawn afresh: What is opened hardly tells")
    assert {"head_sha256", "aggregate_sha256", "accuracy"} <= set(content["not_private"])
    said = secagg("simulate", *words)
    assert f"promise                     {REPRODUCIBLE}" in said.out
    assert f"note: {REPRODUCIBLE}: whoever knows the seed 7 takes the noise off again" in said.err
    swept = secagg("sweep", *words, "--out", tmp_path, "--seeds", 1, "--workers", 1)
    assert f"{REPRODUCIBLE.capitalize()}, whatever ε says" in swept.out
    compared = secagg("compare", "--methods", "fedcgs", *words, "--out", tmp_path, "--seeds", 1, "--workers", 1)
    assert f"1 (δ 0.001, add-remove, record; {REPRODUCIBLE})" in compared.out


@pytest.mark.parametrize(
    ("command", "figure"),
    [
        (["sweep"], "accuracy.svg"),
        (["compare", "--methods", "fedcgs"], "accuracy.svg"),
        (["simulate", "--refine", 1, "--curves"], "curves.svg"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_figures_say_so(secagg: Command, tmp_path: Path, command: list[object], figure: str) -> None:
    """A figure that leaves its table says that there is no privacy, and without a seed for noise it does not."""
    words = ["--dataset", "wine", "--epsilon", "1", "--delta", "1e-3", "--adjacency", "add-remove"]
    once = [] if command[0] == "simulate" else ["--seeds", 1, "--workers", 1]
    for name, seed in (("known", ["--noise-seed", "7"]), ("fresh", [])):
        folder = [tmp_path / name] if command[0] == "simulate" else ["--out", tmp_path / name]
        assert secagg(*command, *folder, *words, *once, *seed).code == 0
        assert (f"<!-- {REPRODUCIBLE} -->" in (tmp_path / name / figure).read_text()) == (name == "known")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"simulate", "sweep", "compare", "tune"}))
def test_no_other_command_has_it(secagg: Command, command: str) -> None:
    """Planning, real parties and audits know no such option."""
    groups = {"plan": ["plan", "new"], "pki": ["pki", "init"], "ledger": ["ledger", "show"]}
    groups |= {"methods": ["methods", "check"], "backbone": ["backbone", "export"]}
    said = secagg(*groups.get(command, [command]), "--noise-seed", "7")
    assert said.code == 2
    assert "No such option" in said.complaint
