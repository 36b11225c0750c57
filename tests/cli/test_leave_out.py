"""`--leave-out` of `secagg simulate`: what it prints and what it refuses."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.command import Command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Features of two domains."""
    path = tmp_path / "domains.npz"
    content = {}
    for domain in ("photo", "sketch"):
        labels = np.arange(60) % 3
        content[f"{domain}_features"] = np.random.default_rng(0).normal(size=(60, 4)) + labels[:, None]
        content[f"{domain}_labels"] = labels
    np.savez(path, **content)
    return path


def test_domains_are_told_apart(secagg: Command, data: Path) -> None:
    """The accuracy is that of all left-out records, and each domain has its own line."""
    said = secagg("simulate", "--dataset", data, "--leave-out", "domain=photo", "--clients", 3)
    assert said.code == 0, said
    lines = said.out.splitlines()
    assert " of 60; " in lines[1]
    assert [line.split("  ")[1] for line in lines if "accuracy on" in line][1:] == [
        "accuracy on photo",
        "accuracy on sketch",
    ]
    assert "of 60 (left out)" in said.out
    assert "of 12 (in clients)" in said.out


@pytest.mark.parametrize("text", ["domain", "domain=*", "domain=clipart", "site=x"])
def test_refused(secagg: Command, data: Path, text: str) -> None:
    """What cannot be left out is said in one line."""
    said = secagg("simulate", "--dataset", data, "--leave-out", text, "--quiet")
    assert said.code == 2
    assert said.complaint


def test_every_value_in_turn_is_for_sweeps(secagg: Command, data: Path) -> None:
    """A simulation takes one value; the line says which commands take them all."""
    said = secagg("simulate", "--dataset", data, "--leave-out", "domain=*", "--quiet")
    assert "give one of the column's 2 values; compare and sweep take * for each in turn" in said.complaint
