"""`secagg join`, `pki kit`, `plan sign | approvals`, `plan limits`, and limits that are no copy of a plan's wishes."""

import re
import shutil
from pathlib import Path

import pytest

from secagg.agreement.policy import Policy, read_policy
from tests.cli.command import MEMBERS, SERVER, Command


@pytest.fixture
def kits(secagg: Command, federation: Path) -> Path:
    """The federation, its members' keys in tls/ of folders of their own, and kits that nobody has joined by."""
    limits = federation / "limits.toml"
    assert secagg("plan", "limits", "--out", limits).code == 0
    limits.write_text(re.sub(r"^(max_epsilon(_total)?) = 1.0$", r'\1 = "inf"', limits.read_text(), flags=re.MULTILINE))
    options = ("--plan", federation / "plan.json", "--limits", federation / "limits.toml")
    made = ("--address", f"{SERVER}=localhost:7443", "--out", federation / "kits")
    said = secagg("pki", "kit", "--ca", federation / "ca", *options, *made)
    assert (said.code, said.out) == (0, "")
    for name in (SERVER, *MEMBERS):
        (federation / "home" / name / "tls").mkdir(parents=True)
        for file in ("key.pem", "identity.key", "request.json"):
            shutil.copy2(federation / name / file, federation / "home" / name / "tls")
    return federation


def test_commands_of_the_kit_are_ready_to_run(secagg: Command, kits: Path) -> None:
    """Joining prints the commands that come next; the last of them is a dry run under the consortium's limits."""
    home = kits / "home" / "alice"
    said = secagg("join", kits / "kits" / "alice.kit", "--home", home)
    assert said.code == 0
    *_, show, policy, client = (line.strip() for line in said.out.splitlines())
    assert secagg(*show.split()[1:]).code == 0
    assert secagg(*policy.replace("NAME", "alice").split()[1:]).code == 0
    said = secagg(*client.replace("DATA", str(kits / "alice" / "records.npz")).split()[1:])
    assert (said.code, "Dry run: nothing was sent" in said.out) == (0, True)


@pytest.mark.parametrize(
    ("role", "words"),
    [(SERVER, "secagg server --home"), ("alice", "secagg client --home")],
)
def test_next_command_is_that_of_the_role(secagg: Command, kits: Path, role: str, words: str) -> None:
    """The command that comes next is that of the party's role, by its folder."""
    said = secagg("join", kits / "kits" / f"{role}.kit", "--home", kits / "home" / role)
    assert (said.code, words in said.out.splitlines()[-1]) == (0, True)


def test_server_is_not_counted_among_the_members(secagg: Command, kits: Path) -> None:
    """`join` counts the clients of the roster as members, on the terminal and in JSON: the server is not one."""
    words = ("join", kits / "kits" / "alice.kit", "--home", kits / "home" / "alice")
    counted = re.search(r"^  members +(\d+)$", secagg(*words).out, re.MULTILINE)
    assert (counted and int(counted[1]), secagg(*words, "--json", "-").json["members"]) == (len(MEMBERS),) * 2


def test_another_kit_is_refused_in_one_line(secagg: Command, kits: Path) -> None:
    """Exit code 2, and nothing changed."""
    said = secagg("join", kits / "kits" / "bob.kit", "--home", kits / "home" / "alice")
    assert (said.code, "for other keys of bob" in said.complaint) == (2, True)
    assert not (kits / "home" / "alice" / "plan.json").exists()


@pytest.mark.parametrize("address", ["alice=localhost:1", f"{SERVER}=localhost", f"{SERVER}", "nobody=x:1"])
def test_bad_address_makes_no_kits(secagg: Command, federation: Path, address: str) -> None:
    """An address of a client, without a port, or of nobody is refused before anything is written."""
    said = secagg("pki", "kit", "--ca", federation / "ca", "--address", address, "--out", federation / "none")
    assert said.code == 2
    assert not (federation / "none").exists()


def test_limits_that_refuse_the_plan_make_no_kits(secagg: Command, federation: Path) -> None:
    """What every member's client would refuse is refused before any kit is written, all broken lines at once."""
    limits, out = federation / "limits.toml", federation / "none"
    assert secagg("plan", "limits", "--out", limits).code == 0
    limits.write_text(limits.read_text().replace('protections = ["masked"]', 'protections = ["shared"]'))
    given = ("pki", "kit", "--ca", federation / "ca", "--plan", federation / "plan.json", "--limits", limits)
    said = secagg(*given, "--out", out)
    assert said.code == 2
    for line in ("protections: masked", "max_epsilon: the plan spends inf", "max_epsilon_total: the plan alone spends"):
        assert line in said.complaint
    assert said.complaint.count("max_epsilon_total") == 1
    assert "no kit was written" in said.complaint
    assert not out.exists()


def test_policy_of_an_older_roster_is_carried_over(secagg: Command, federation: Path) -> None:
    """A plan for a new roster is refused with the accepted roster's digest, and the command that the refusal names."""
    old, new = federation / "alice" / "policy.toml", federation / "alice" / "newer.toml"
    known = read_policy(old).roster
    old.write_text(old.read_text().replace(known, "ab" * 32))
    check = ("plan", "check", "--plan", federation / "plan.json", "--roster", federation / "alice" / "roster.json")
    said = secagg(*check, "--policy", old)
    assert said.code == 2
    assert "this policy accepts abababababab…: compare the new roster with the authority" in said.complaint
    assert "plan policy --limits OLD-POLICY --out NEW-POLICY" in said.complaint
    words = ("--plan", federation / "plan.json", "--limits", old, "--data-name", "alice", "--out", new)
    assert secagg("plan", "policy", *words).code == 0
    assert read_policy(new).roster == known
    assert secagg(*check, "--policy", new).code == 0


def test_limits_are_no_copy_of_the_plan(secagg: Command, federation: Path) -> None:
    """A policy by limits has the plan's roster and code, the limits' bounds, and refuses what these do not concede."""
    limits, plan = federation / "limits.toml", federation / "plan.json"
    assert secagg("plan", "limits", "--out", limits).code == 0
    limits.write_text(limits.read_text().replace("min_clients_in_sum = 3", "min_clients_in_sum = 2"))
    out = federation / "by-limits.toml"
    given = ("--plan", plan, "--data-name", "alice")
    assert secagg("plan", "policy", *given, "--limits", limits, "--out", out).code == 0
    own, copied = read_policy(out), read_policy(federation / "alice" / "policy.toml")
    assert (own.roster, own.backbones) == (copied.roster, copied.backbones)
    assert (own.max_epsilon, own.min_clients_in_sum) == (Policy("x", "", ()).max_epsilon, 2)
    roster = federation / "alice" / "roster.json"
    said = secagg("plan", "check", "--plan", plan, "--roster", roster, "--policy", out)
    assert (said.code, "max_epsilon" in said.complaint) == (2, True)
    again = federation / "again.toml"
    assert secagg("plan", "policy", *given, "--limits", out, "--out", again).code == 0
    assert read_policy(again) == own


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[accept]\nmax_epsilom = 1", "did you mean max_epsilon"),
        ("[accept]\nmax_epsilon = true", "max_epsilon cannot be True"),
        ("max_epsilon = 1", "have the table"),
        ("[", "not TOML"),
    ],
)
def test_bad_limits_are_refused(secagg: Command, federation: Path, text: str, words: str) -> None:
    """A key that is none, a value of another type, another table: named, and no policy is written."""
    (federation / "limits.toml").write_text(text)
    given = ("--plan", federation / "plan.json", "--data-name", "x", "--limits", federation / "limits.toml")
    said = secagg("plan", "policy", *given, "--out", federation / "none.toml")
    assert (said.code, words in said.complaint) == (2, True)
    assert not (federation / "none.toml").exists()


def test_plan_is_countersigned(secagg: Command, federation: Path) -> None:
    """Who has signed is shown; a member whose policy refuses the plan signs nothing."""
    folder = federation / "made" / "approvals"
    plan, roster = ("--plan", federation / "plan.json"), ("--roster", federation / SERVER / "roster.json")
    for name in ("alice", "bob"):
        policy = ("--policy", federation / name / "policy.toml")
        assert secagg("plan", "sign", *plan, "--tls", federation / name, *policy, "--out", folder).code == 0
    strict = federation / "carol" / "policy.toml"
    strict.write_text(strict.read_text().replace('max_epsilon = "inf"', "max_epsilon = 1.0"))
    said = secagg("plan", "sign", *plan, "--tls", federation / "carol", "--policy", strict, "--out", folder)
    assert (said.code, "max_epsilon" in said.complaint) == (2, True)
    shown = secagg("plan", "approvals", folder, *plan, *roster, "--json", "-").json
    assert (shown["approved_by"], shown["not_by"], shown["refused"]) == (["alice", "bob"], ["carol"], {})
    (folder / "carol.approval").write_text((folder / "bob.approval").read_text().replace("bob", "carol"))
    said = secagg("plan", "approvals", folder, *plan, *roster)
    assert "carol.approval does not count  it is not signed by carol" in said.out
    refused = secagg("plan", "sign", *plan, "--tls", federation / "alice", "--out", federation / "plan.json")
    assert (refused.code, "cannot make the folder" in refused.complaint) == (2, True)
