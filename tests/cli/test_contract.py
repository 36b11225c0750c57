"""The command line as a whole: help, exit codes, what goes to which stream, the commands around a session."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from secagg.cli.main import app
from secagg.plan import read_plan
from secagg.policy import Policy, read_policy
from tests.cli.command import MEMBERS, Command
from tests.parties.federation import Federation
from tests.parties.stage import make_stage


def every_command(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """The words of every command and group there is."""
    group = group or typer.main.get_command(app)
    yield list(path)
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, (*path, name))


COMMANDS = list(every_command())


def test_commands_of_the_contract() -> None:
    """The commands that the README promises are there."""
    promised = {"demo", "server", "client", "simulate", "predict", "verify", "pki", "plan"}
    assert promised <= {words[0] for words in COMMANDS if words}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments) or "secagg")
def test_help(secagg: Command, arguments: list[str]) -> None:
    """Every command explains itself on stdout with exit code 0."""
    said = secagg(*arguments, "--help")
    assert said.code == 0
    assert "Usage" in said.out
    assert said.err == ""


def test_plan_show(secagg: Command, federation: Path) -> None:
    """`plan show` prints the proof, the thresholds and the digest, and the same as JSON."""
    arguments = ["plan", "show", "--plan", federation / "plan.json", "--roster", federation / "alice" / "roster.json"]
    said = secagg(*arguments)
    assert said.code == 0
    assert "cannot wrap" in said.out
    assert "of n = 3 clients must sign" in said.out
    content = secagg(*arguments, "--json", "-").json
    assert content["plan_sha256"] in said.out
    assert content["ring"] % 8 == 0


def test_plan_without_noise_takes_a_delta(secagg: Command, federation: Path) -> None:
    """Scripts loop over epsilon: at inf delta and adjacency are accepted with a remark, and are not in the plan."""
    roster = federation / "alice" / "roster.json"
    arguments = ("plan", "new", "--roster", roster, "--shape", 3, "--classes", "no,yes", "--radius", 1)
    said = secagg(*arguments, "--out", federation / "a.json", "--delta", 1e-5, "--adjacency", "add-remove")
    assert said.code == 0
    assert "note: without a finite --epsilon the sums are exact" in said.err
    plan = read_plan(federation / "a.json")
    assert (plan.epsilon, plan.delta) == (math.inf, 0.0)
    assert "note:" not in secagg(*arguments, "--out", federation / "b.json").err


def test_plan_check(secagg: Command, federation: Path) -> None:
    """`plan check` accepts a plan with its policy and data, and refuses as the client does."""
    home = federation / "alice"
    arguments = ["plan", "check", "--plan", federation / "plan.json", "--roster", home / "roster.json", "--policy",
                 home / "policy.toml", "--data", home / "records.npz"]  # fmt: skip
    said = secagg(*arguments, "--json", "-")
    assert (said.code, said.json["accepted"]) == (0, True)
    policy = home / "policy.toml"
    policy.write_text(policy.read_text().replace("minimum_cohort = 3", "minimum_cohort = 9"))
    said = secagg(*arguments)
    assert said.code == 2
    assert "minimum_cohort" in said.complaint


def test_written_policy_accepts_only_what_was_seen(secagg: Command, federation: Path) -> None:
    """The policy that `plan policy` writes trusts this roster and backbone and keeps the careful defaults."""
    policy = read_policy(federation / "bob" / "policy.toml")
    assert policy.data_name == "bob"
    assert len(policy.backbones) == 1
    assert policy.protections == Policy("x", "", ()).protections
    assert not policy.repeat_sessions


def test_dry_run_leaves_nothing(secagg: Command, federation: Path) -> None:
    """`client --dry-run` says what would leave and leaves neither transcript nor release."""
    home = federation / "alice"
    arguments = ["client", "--plan", federation / "plan.json", "--server", "127.0.0.1:1", "--data",
                 home / "records.npz", "--policy", home / "policy.toml", "--state", home / "state", "--tls", home,
                 "--dry-run", "--json", "-"]  # fmt: skip
    said = secagg(*arguments)
    assert said.code == 0
    assert said.json["dry_run"] is True
    assert said.json["upload_bytes"] > 0
    assert not list((home / "state").rglob("transcript.log"))


def test_pki_show(secagg: Command, federation: Path) -> None:
    """`pki show` lists the members and their identity keys."""
    content = secagg("pki", "show", federation / "alice" / "roster.json", "--json", "-").json
    assert [each["name"] for each in content["members"]] == ["coordinator", *MEMBERS]
    assert {each["identity"] for each in content["members"]} != {""}


def test_verify_command(secagg: Command, tmp_path: Path) -> None:
    """A good transcript exits with 0 and its findings; a damaged one with 3, its name and the record."""
    stage = make_stage(tmp_path)
    asyncio.run(Federation(stage).run())
    said = secagg("verify", stage.transcript(0), "--json", "-", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert said.json["members"] == ["client-1", "client-2", "client-3"]
    content = bytearray(stage.transcript(0).read_bytes())
    content[len(content) // 2] ^= 1
    stage.transcript(0).write_bytes(content)
    said = secagg("verify", stage.transcript(0), "--quiet")
    assert said.code == 3
    assert said.complaint.startswith(f"secagg: {stage.transcript(0)}: transcript record ")


def test_verify_several(secagg: Command, tmp_path: Path) -> None:
    """Every transcript is checked and named, whatever becomes of the others: 3 if one does not verify, else 2."""
    stage = make_stage(tmp_path)
    asyncio.run(Federation(stage).run())
    good, bad, missing = stage.transcript(0), tmp_path / "bad.log", tmp_path / "missing.log"
    bad.write_text("hello")
    said = secagg("verify", missing, bad, good, "--quiet")
    assert said.code == 3
    assert f"{good}: the transcript verifies\n" in said.out
    assert f"{bad}: the transcript does not verify\n" in said.out
    assert f"{missing}: the transcript does not verify\n" in said.out
    assert said.err.startswith(f"secagg: {bad}: transcript record 0: ")
    content = secagg("verify", missing, good, "--json", "-", "--quiet")
    assert content.code == 2
    assert [each["file"] for each in content.json["transcripts"]] == [str(missing), str(good)]
    assert ["failure" in each for each in content.json["transcripts"]] == [True, False]


@pytest.mark.parametrize("words", [words for words in COMMANDS if [*words, "show"] in COMMANDS or not words], ids=str)
def test_group_alone_shows_its_help(secagg: Command, words: list[str]) -> None:
    """A group of commands without one prints its help, line by line, on stderr with exit code 2."""
    said = secagg(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err == secagg(*words, "--help").out
