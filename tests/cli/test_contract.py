"""The command line as a whole: help, exit codes, what goes to which stream, the commands around a session."""

import asyncio
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer

from secagg.agreement.plan import read_plan
from secagg.agreement.policy import Policy, read_policy
from secagg.agreement.roster import read_roster
from secagg.cli.main import COMMANDS as TABLE
from secagg.cli.main import app
from secagg.errors import ExitCode
from secagg.privacy.claim import format_epsilon
from secagg.transcript import Journal
from tests.architecture.source import ROOT
from tests.cli.command import MEMBERS, NEW_PLAN, Command
from tests.worlds.session import SessionRun, make_session


def every_command(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """The words of every command and group there is."""
    group = group or typer.main.get_command(app)
    yield list(path)
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, (*path, name))


COMMANDS = list(every_command())


def test_commands_of_the_contract() -> None:
    """The commands that scripts rely on are there."""
    promised = {"demo", "server", "client", "simulate", "predict", "verify", "pki", "plan"}
    assert promised <= {words[0] for words in COMMANDS if words}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments) or "secagg")
def test_help(secagg: Command, arguments: list[str]) -> None:
    """Every command explains itself on stdout with exit code 0."""
    said = secagg(*arguments, "--help")
    assert said.code == 0
    assert "Usage" in said.out
    assert said.err == ""


def test_every_command_that_reads_records_takes_formats(secagg: Command) -> None:
    """Whatever has an option for a file of records has `--format` too; `ledger show --data` is a name."""
    helps = {words: secagg(*words, "--help").out for words in map(tuple, COMMANDS)}
    readers = {words for words, text in helps.items() if re.search(r"--(data|dataset|like|known|test) ", text)}
    assert {("client",), ("adapt",), ("tune",)} <= readers
    assert {words for words in readers if "--format" not in helps[words]} == {("ledger", "show")}


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


def test_plan_show_tells_epsilon_of_several_records(secagg: Command, federation: Path) -> None:
    """People with 2, 5 and 10 records find their own ε, as text and as JSON; none where no record is promised any."""
    roster = federation / "alice" / "roster.json"
    arguments = ("--roster", roster, "--shape", 30, "--classes", "no,yes", "--refine", 0, "--quiet")
    promise = ("--epsilon", 1, "--delta", 1e-5, "--adjacency", "add-remove")
    said = secagg(*NEW_PLAN, *arguments, "--out", federation / "noisy.json", *promise)
    assert said.code == 0, said.err
    shown = ("plan", "show", "--roster", roster, "--plan")
    found = secagg(*shown, federation / "noisy.json", "--json", "-").json["epsilon_of_records"]
    assert list(found) == ["2", "5", "10"]
    by_mpmath = [2.15468, 6.16694, 14.42927]  # Balle & Wang's at 2, 5 and 10 times the μ of ε = 1
    assert list(found.values()) == pytest.approx(by_mpmath, abs=1e-3)
    text = " ".join(secagg(*shown, federation / "noisy.json").out.split())
    assert all(f"{format_epsilon(each)} with {records}" in text for records, each in found.items())
    assert secagg(*shown, federation / "plan.json", "--json", "-").json["epsilon_of_records"] == {}


def test_plan_without_noise_takes_a_delta(secagg: Command, federation: Path) -> None:
    """Scripts loop over epsilon: at inf delta and adjacency are accepted with a remark, and are not in the plan."""
    roster = federation / "alice" / "roster.json"
    arguments = (
        *NEW_PLAN,
        "--roster",
        roster,
        "--shape",
        3,
        "--classes",
        "no,yes",
        "--radius",
        1,
        "--contact",
        "Dr. Meier",
        "--retention",
        "90 days",
    )
    said = secagg(*arguments, "--out", federation / "a.json", "--delta", 1e-5, "--adjacency", "add-remove")
    assert said.code == 0
    assert "note: without a finite --epsilon the sums are exact" in said.err
    plan = read_plan(federation / "a.json")
    assert (plan.epsilon, plan.delta) == (math.inf, 0.0)
    assert "note:" not in secagg(*arguments, "--out", federation / "b.json").err


def test_plan_new_ends_with_what_members_compare(secagg: Command, federation: Path) -> None:
    """The last line has the plan's digest, and says that it is not the file's; a missing folder is refused before."""
    arguments = [*NEW_PLAN,
                 "--roster", federation / "coordinator" / "roster.json", "--shape", 3, "--classes",
                 "no,yes", "--radius", 1]  # fmt: skip
    said = secagg(*arguments, "--out", federation / "mine.json")
    digest = read_plan(federation / "mine.json").digest.hex()
    assert said.err.splitlines()[-1].startswith(f"compare the plan SHA-256 {digest} (of its canonical bytes; not")
    missing = secagg(*arguments, "--out", federation / "nowhere" / "x.json")
    assert missing.code == 2
    assert "there is no folder" in missing.complaint
    assert "make it first" in missing.complaint


def test_plan_check(secagg: Command, federation: Path) -> None:
    """`plan check` accepts a plan with its policy and data, and refuses as the client does."""
    home = federation / "alice"
    arguments = ["plan", "check", "--plan", federation / "plan.json", "--roster", home / "roster.json", "--policy",
                 home / "policy.toml", "--data", home / "records.npz"]  # fmt: skip
    said = secagg(*arguments, "--json", "-")
    assert (said.code, said.json["accepted"]) == (0, True)
    assert "the ledger was not asked: give --state" in secagg(*arguments).out
    policy = home / "policy.toml"
    policy.write_text(policy.read_text().replace("min_clients_in_sum = 3", "min_clients_in_sum = 9"))
    said = secagg(*arguments)
    assert said.code == 2
    assert "min_clients_in_sum" in said.complaint


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


@pytest.mark.parametrize("words", ["client --server a:1 --data x --policy y", "server --listen a:1",
                                   "aggregator --server a:1 --listen a:1", "key-holder --server a:1"])  # fmt: skip
def test_long_running_commands_write_for_their_owner_alone(secagg: Command, tmp_path: Path, words: str) -> None:
    """Whatever umask a party's command is started with, all that it and its libraries write is its owner's alone."""
    before = os.umask(0)
    try:
        assert secagg(*words.split(), "--plan", tmp_path, "--state", tmp_path, "--tls", tmp_path).code == 2
        assert os.umask(0) == 0o077
    finally:
        os.umask(before)


def test_pki_show(secagg: Command, federation: Path) -> None:
    """`pki show` lists members with their keys, and says of each digest what it is of: one is what sha256sum prints."""
    file = federation / "alice" / "roster.json"
    content = secagg("pki", "show", file, "--json", "-").json
    assert [each["name"] for each in content["members"]] == ["coordinator", *MEMBERS]
    roster = read_roster(file)
    assert [each["identity"] for each in content["members"]] == [each.identity.hex() for each in roster.members]
    pins = [each.tls_spki_sha256.hex() for each in roster.members]
    assert [each["tls_spki_sha256"] for each in content["members"]] == pins
    assert content["roster_sha256"] == roster.digest.hex() == json.loads(
        (federation / "plan.json").read_text())["roster"]  # fmt: skip
    assert content["file_sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    said = secagg("pki", "show", file).out
    for line in ((roster.digest.hex(), "plans and policies"), (content["file_sha256"], "sha256sum"), (pins[1], "TLS")):
        assert any(all(word in printed for word in line) for printed in said.splitlines())


def test_purge_command(secagg: Command, tmp_path: Path) -> None:
    """`purge` says what it deleted; `verify` then exits with 4, not 3, and `audit` takes the transcript no more."""
    world = make_session(tmp_path)
    asyncio.run(SessionRun(world).run())
    state = world.home(0).parent
    content = secagg("purge", "--state", state, "--json", "-", "--quiet").json
    assert content == {"deleted": 3, "sums": 0, "sessions": {world.home(0).name: "3 vectors deleted"}}
    said = secagg("verify", world.transcript(0), "--quiet")
    assert said.code == 4
    assert "consistent, but" in said.out
    assert "purged: digests only" in said.out
    assert secagg("audit", world.transcript(0), "--quiet").code == 2
    with closing(Journal(world.transcript(0))):
        assert "another process is at work" in secagg("purge", "--state", state, "--quiet").err
    assert secagg("purge", "--state", tmp_path / "none").code == 2


@pytest.mark.parametrize("words", [words for words in COMMANDS if [*words, "show"] in COMMANDS or not words], ids=str)
def test_group_alone_shows_its_help(secagg: Command, words: list[str]) -> None:
    """A group of commands without one prints its help, line by line, on stderr with exit code 2."""
    said = secagg(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err == secagg(*words, "--help").out


def test_guide_and_help_list_every_exit_code(secagg: Command) -> None:
    """The command line's guide and help say every code with its meaning, in the words of the one table."""
    said = " ".join((ROOT / "secagg" / "cli" / "README.md").read_text(encoding="utf-8").split())
    help_text = " ".join(secagg("--help").out.split())
    for code in ExitCode:
        assert f"{code.value} {code.meaning}" in said
        assert f"{code.value} {code.meaning}" in help_text


def test_a_command_is_in_the_file_of_its_name() -> None:
    """`secagg key-holder` is the function in secagg/cli/key_holder.py, a group the typer app of such a file."""
    found = {name: place.partition(":")[0] for name, (place, _) in TABLE.items()}
    assert found == {name: name.replace("-", "_") for name in found}
    assert set(found) == {words[0] for words in COMMANDS if words}
