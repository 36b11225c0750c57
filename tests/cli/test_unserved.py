"""Protections that only `simulate` has yet: the processes of a federation refuse them before anything is sent."""

from pathlib import Path

import pytest

from secagg.parties.planning import PlanChoices, PublicData, make_plan
from secagg.plan import write_plan
from secagg.randomness import OperatingSystem
from secagg.transport import read_credentials
from tests.cli.command import MEMBERS, SERVER, Command, nothing_sent
from tests.cli.test_simulate import simulated

UNSERVED = ("shared", "encrypted")


def planned(federation: Path, protection: str) -> Path:
    """A plan with this protection for the federation's members."""
    roster = read_credentials(federation / SERVER).roster
    data = PublicData("features", (3,), ("no", "yes"), None, None)
    choices = PlanChoices(radius=1.0, max_records=100, protection=protection, join_seconds=1)
    write_plan(make_plan(data, roster, choices, OperatingSystem()), federation / "plan.json")
    return federation / "plan.json"


@pytest.mark.parametrize("protection", UNSERVED)
def test_server_refuses(secagg: Command, federation: Path, protection: str) -> None:
    """The server exits with 2 and one line, listens nowhere and leaves nothing behind."""
    state = federation / "state"
    arguments = ["--plan", planned(federation, protection), "--state", state, "--tls", federation / SERVER]
    said = secagg("server", "--quiet", *arguments, "--listen", "127.0.0.1:0")
    assert said.code == 2
    assert "is served in a later version" in said.complaint
    assert "simulate" in said.complaint
    assert not state.exists()


@pytest.mark.parametrize("protection", UNSERVED)
def test_client_refuses(secagg: Command, federation: Path, protection: str) -> None:
    """A client exits with 2 and one line before it reads its records or looks for a server."""
    home = federation / MEMBERS[0]
    arguments = ["--plan", planned(federation, protection), "--policy", home / "policy.toml", "--tls", home]
    arguments += ["--state", home / "state", "--data", home / "absent.npz", "--server", "127.0.0.1:1"]
    said = secagg("client", "--quiet", *arguments)
    assert said.code == 2
    assert "is served in a later version" in said.complaint
    assert nothing_sent(home / "state")


@pytest.mark.parametrize("protection", UNSERVED)
def test_demo_refuses(secagg: Command, tmp_path: Path, protection: str) -> None:
    """The demo exits with 2 and one line, starts no process and touches no folder."""
    said = secagg("demo", "--quiet", "--protection", protection, "--out", tmp_path / "demo")
    assert said.code == 2
    assert "is served in a later version" in said.complaint
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("protection", UNSERVED)
def test_plan_can_be_shown(secagg: Command, federation: Path, protection: str) -> None:
    """`plan show` explains such a plan."""
    arguments = ["--plan", planned(federation, protection), "--roster", federation / SERVER / "roster.json"]
    said = secagg("plan", "show", *arguments)
    assert said.code == 0
    assert "may leave" in said.out


@pytest.mark.parametrize("protection", UNSERVED)
def test_simulate_has_it(secagg: Command, protection: str) -> None:
    """`simulate` gives the aggregate that every other protection gives."""
    content = simulated(secagg, "--protection", protection)
    assert content["protection"] == protection
    assert content["aggregate_sha256"] == simulated(secagg)["aggregate_sha256"]
