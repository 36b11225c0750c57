"""Budgets that explain themselves: spent, this plan, left and limit, in dry runs and by `plan check --state`."""

import math
import shutil
from pathlib import Path

import pytest

from secagg.agreement.plan import read_plan
from secagg.agreement.policy import Budget
from secagg.agreement.roster import read_roster
from secagg.federation import release_of
from secagg.ledger import Ledger
from secagg.session import RoundSetup
from tests.cli.command import NEW_PLAN, Command

NOISE = ("--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove", "--refine", "0")
SHAPE = ("--shape", "3", "--classes", "no,yes", "--radius", "1", "--max-records", "100")


@pytest.fixture
def noisy(secagg: Command, federation: Path) -> Path:
    """A federation with two plans of ε = 1 for alice, whose policy allows 1.2 in all."""
    alice = federation / "alice"
    for name in ("first", "second"):
        new = ("--roster", alice / "roster.json", "--out", federation / f"{name}.json")
        assert secagg(*NEW_PLAN, *new, *SHAPE, *NOISE).code == 0
    policy = federation / "noisy.toml"
    given = ("--plan", federation / "first.json", "--data-name", "alice", "--out", policy)
    assert secagg("plan", "policy", *given).code == 0
    policy.write_text(policy.read_text().replace("max_epsilon_total = 1.0", "max_epsilon_total = 1.2"))
    return federation


def check(secagg: Command, folder: Path, plan: str, *more: object) -> tuple[object, ...]:
    """`plan check` of a plan against alice's policy and ledger."""
    roster = folder / "alice" / "roster.json"
    state = folder / "alice" / "state"
    given = ("--plan", folder / f"{plan}.json", "--roster", roster, "--policy", folder / "noisy.toml", "--state", state)
    return ("plan", "check", *given, *more)


def test_check_asks_the_ledger(secagg: Command, noisy: Path) -> None:
    """The first plan fits and leaves something; once it is spent the second does not; nothing is made or changed."""
    said = secagg(*check(secagg, noisy, "first"))
    assert (said.code, "together" in said.out, "1, at most 1.2" in said.out) == (0, True, True)
    assert not (noisy / "alice" / "state").exists()
    setup = RoundSetup.of(read_plan(noisy / "first.json"), read_roster(noisy / "alice" / "roster.json"))
    (noisy / "alice" / "state").mkdir()
    Ledger(noisy / "alice" / "state").record(release_of(setup.facts, "alice"), Budget(math.inf, 1e-5, may_repeat=True))
    again = secagg(*check(secagg, noisy, "first", "--json", "-")).json["budget"]
    assert (again["sessions"], again["plan"], again["limit"]) == (0, pytest.approx(1.0), 1.2)
    refused = secagg(*check(secagg, noisy, "second"))
    assert (refused.code, "alice has spent epsilon 1 in 1 other session(s)" in refused.complaint) == (2, True)


def test_dry_run_shows_the_budget(secagg: Command, noisy: Path) -> None:
    """A dry run says spent, this plan, together, limit and left, in words and numbers."""
    home = noisy / "alice"
    dry = (
        *("client", "--plan", noisy / "first.json", "--server", "localhost:1", "--data", home / "records.npz"),
        *("--policy", noisy / "noisy.toml", "--state", home / "state", "--tls", home, "--dry-run"),
    )
    said = secagg(*dry)
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "budget of alice: epsilon at delta 1e-05, add-remove, record level" in lines
    assert {"spent before 0 in 0 other session(s)", "this plan 1", "together 1, at most 1.2"} <= set(lines)
    assert any(line.startswith("left 0.") for line in lines)
    budget = secagg(*dry, "--json", "-").json["budget"]
    assert 0.5 < budget["left"] < 1.2
    assert (budget["spent"], budget["plan"], budget["limit"]) == (0.0, pytest.approx(1.0), 1.2)


def test_lost_ledger_is_missed_by_the_check(secagg: Command, noisy: Path) -> None:
    """A damaged ledger is no empty one."""
    state = noisy / "alice" / "state"
    state.mkdir()
    (state / "ledger.sqlite").write_bytes(b"damaged" * 200)
    assert secagg(*check(secagg, noisy, "first")).code == 2
    shutil.rmtree(state)
    assert secagg(*check(secagg, noisy, "first")).code == 0
