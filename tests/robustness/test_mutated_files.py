"""Damaged files for every command that reads one: no traceback, no internal error, no hang, no death for memory.

`pytest -m long tests/robustness` takes up to ten minutes. SECAGG_MUTATIONS is the number of damaged copies of a
file (default 30; audits and sweeps, which are slow, get a part of it), SECAGG_MUTATION_SEED repeats a run.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from tests.robustness.conftest import TABLE
from tests.robustness.mutations import mutated
from tests.robustness.world import build
from tests.robustness.zygote import Ended, Zygote

pytestmark = pytest.mark.long

MUTATIONS = int(os.environ.get("SECAGG_MUTATIONS", "30"))
SEED = int(os.environ.get("SECAGG_MUTATION_SEED", "0")) or secrets.randbits(32)
CONTRACT = {0, 1, 2, 3, 4, 5, 75}
"""Exit codes that a damaged file may lead to: neither 70, an internal error, nor a signal's."""
MARKS = re.compile(r"Traceback|internal error|too little memory|\w+Warning: |^\[?[WEF]\d{4} ", re.MULTILINE)
"""What no command says: a traceback, its own failure, another library's log."""


@dataclass(frozen=True)
class Target:
    """A file, and the commands that read it, as targets.toml has them."""

    file: str
    commands: list[str]
    share: float = 1.0
    keeps: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    def words(self, rng: Random, words: Mapping[str, str], new: Path) -> list[str]:
        """One of the commands, its words in braces put in."""
        command = rng.choice(self.commands)
        while "{" in command:
            command = command.format(**words)
        return [str(new) if word == "NEW" else word for word in command.split()]


CONTENT = tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
TARGETS = [Target(**each) for each in CONTENT["target"]]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    """The process that runs all commands."""
    with Zygote() as running:
        yield running


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> Path:
    """The undamaged files."""
    folder = tmp_path_factory.mktemp("world")
    build(folder, zygote)
    return folder


def faults_of(ended: Ended) -> str:
    """What is wrong with how a command ended; nothing where all is well."""
    said = MARKS.search(ended.err) or MARKS.search(ended.out)
    if ended.code is None:
        return "did not end"
    if ended.code not in CONTRACT and not (ended.waits and ended.code in (130, -15)):
        return f"exit {ended.code}"
    return f"said {said[0]!r}" if said else ""


def is_well(ended: Ended) -> bool:
    """Whether a command took its files: it has a result, waits for others, or found nobody where it was told to."""
    return ended.code in (0, 4) or ended.waits or "cannot reach the server" in ended.err


@pytest.fixture(scope="module", params=range(len(TARGETS)), ids=[target.file for target in TARGETS])
def target(request: pytest.FixtureRequest) -> Target:
    """Each target in turn."""
    return TARGETS[request.param]


@pytest.fixture
def folder(world: Path, tmp_path: Path) -> Path:
    """A copy of the undamaged files."""
    return Path(shutil.copytree(world, tmp_path / "world"))


def test_commands_take_the_undamaged_file(target: Target, zygote: Zygote, folder: Path, tmp_path: Path) -> None:
    """Without damage each command of the table does its work: else nothing would be tested below."""
    found_or_skip(folder, target)
    for number, command in enumerate(target.commands):
        alone = Target(target.file, [command])
        words = alone.words(Random(0), CONTENT["words"], tmp_path / f"new{number}")  # noqa: S311
        ended = zygote.run(*words, folder=folder, **target.variables)
        assert is_well(ended), (words, ended)
        assert not faults_of(ended), (words, ended)


def test_damaged_file_is_refused_in_words(
    target: Target, zygote: Zygote, world: Path, folder: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Whatever stands in a file, each command that reads it ends by the contract, in words and within its memory."""
    path = found_or_skip(folder, target)
    whole, rng = path.read_bytes(), Random(f"{SEED} {target}")  # noqa: S311 (of damage, not of keys)
    failures, ends, names = [], Counter[str](), set()
    for trial in range(max(1, round(MUTATIONS * target.share))):
        content = mutated(rng, path.name, whole)
        path.write_bytes(content)
        words = target.words(rng, CONTENT["words"], tmp_path / f"new{trial}")
        ended = zygote.run(*words, folder=folder, **target.variables)
        names.add(words[0])
        ends["waits" if ended.waits else str(ended.code)] += 1
        if fault := faults_of(ended):
            kept = tmp_path / f"damaged{trial}{path.suffix}"
            kept.write_bytes(content)
            failures.append(f"{fault}: secagg {' '.join(words)}\n  with {kept} as {path}\n  {ended.err[-800:]}")
        if target.keeps:
            shutil.rmtree(folder / target.keeps)
            shutil.copytree(world / target.keeps, folder / target.keeps)
        path.write_bytes(whole)
    told = ", ".join(f"{end}: {ends[end]}" for end in sorted(ends))
    pytestconfig.stash[TABLE][:1] = [f"seed {SEED}; file (commands): runs; exit code: how many of them"]
    pytestconfig.stash[TABLE].append(f"{target.file} ({', '.join(sorted(names))}): {ends.total()}; {told}")
    assert not failures, f"seed {SEED}: {len(failures)} of {ends.total()}\n" + "\n".join(failures[:10])


def found_or_skip(folder: Path, target: Target) -> Path:
    """The file of a target; without the library that writes it the test is skipped."""
    path = next(iter(sorted(folder.glob(target.file))), None)
    if path is None:
        pytest.skip(f"there is no {target.file}")
    return path
