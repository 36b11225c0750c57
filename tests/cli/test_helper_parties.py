"""Plans with aggregators or a key holder at the command line: what is refused, and when nothing has been sent yet."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from secagg.agreement.plan import NoiseFrom, write_plan
from secagg.cli import helper
from secagg.errors import ExitCode, SessionAborted
from secagg.federation import FederationHelper, endpoints
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.privacy import Adjacency
from secagg.randomness import OperatingSystem
from secagg.transport import Link, read_credentials
from tests.cli.command import MEMBERS, NEW_PLAN, SERVER, Command, Said, nothing_sent
from tests.cli.test_simulate import simulated

HELPERS = {"aggregator": ("north", "south"), "key-holder": ("holder",)}
TOGETHER = {"shared": "aggregator", "encrypted": "key-holder"}


@pytest.fixture(scope="module")
def _enrolled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the consortium that the tests copy is made, by whoever needs it first."""
    return tmp_path_factory.mktemp("helpers") / "consortium"


@pytest.fixture
def consortium(_enrolled: Path, secagg: Command, tmp_path: Path) -> Path:
    """A server, three clients, two aggregators and a key holder, enrolled by the commands that people use."""
    roles = {SERVER: "server", **dict.fromkeys(MEMBERS, "client")}
    roles |= {name: role for role, names in HELPERS.items() for name in names}
    if not _enrolled.exists():
        assert secagg("pki", "init", "--ca", _enrolled / "ca", "--consortium", "cli").code == 0
        for name, role in roles.items():
            assert secagg("pki", "request", name, "--tls", _enrolled / name, "--role", role).code == 0
        requests = [_enrolled / name / "request.json" for name in roles]
        assert secagg("pki", "issue", *requests, "--ca", _enrolled / "ca").code == 0
        for name in roles:
            shutil.copytree(_enrolled / "ca" / "issued" / name, _enrolled / name, dirs_exist_ok=True)
    return Path(shutil.copytree(_enrolled, tmp_path / "consortium"))


def planned(consortium: Path, protection: str, **choices: object) -> Path:
    """A plan with this protection for the consortium's members."""
    roster = read_credentials(consortium / SERVER).roster
    data = PublicData("features", (3,), ("no", "yes"), None, None)
    given = {"radius": 1.0, "max_records": 100, "join_seconds": 1, **choices}
    write_plan(
        make_plan(data, roster, PlanChoices(protection=protection, **given), OperatingSystem()),  # type: ignore[arg-type]
        consortium / "plan.json",
    )
    return consortium / "plan.json"


def run_helper(secagg: Command, consortium: Path, role: str, name: str) -> Said:
    """What an aggregator or a key holder says that is started with the plan."""
    arguments = ["--plan", consortium / "plan.json", "--state", consortium / "state", "--tls", consortium / name]
    listen = ["--listen", "127.0.0.1:0"] if role == "aggregator" else []
    return secagg(role, "--quiet", *arguments, *listen, "--server", "127.0.0.1:1", "--wait", "0")


@pytest.mark.parametrize(
    ("protection", "role", "name"),
    [
        ("masked", "aggregator", "north"),
        ("none", "aggregator", "north"),
        ("encrypted", "aggregator", "south"),
        ("masked", "key-holder", "holder"),
        ("shared", "key-holder", "holder"),
    ],
)
def test_second_party_without_a_part_is_refused(
    secagg: Command, consortium: Path, protection: str, role: str, name: str
) -> None:
    """Who has no part in the plan's protection exits with 2 and one line that says so, and leaves nothing behind."""
    planned(consortium, protection)
    said = run_helper(secagg, consortium, role, name)
    assert said.code == 2
    assert f"the plan's protection is {protection}, which has no {role}" in said.complaint
    assert not (consortium / "state").exists()


@pytest.mark.parametrize(("role", "name"), [("aggregator", "holder"), ("key-holder", "north"), ("aggregator", SERVER)])
def test_another_role_is_refused(secagg: Command, consortium: Path, role: str, name: str) -> None:
    """A member cannot play another role than the roster's."""
    planned(consortium, "shared")
    said = run_helper(secagg, consortium, role, name)
    assert said.code == 2
    assert f"{name} is no {role} in the roster" in said.complaint


@pytest.mark.parametrize(("protection", "role"), TOGETHER.items())
def test_second_party_that_finds_no_server_says_so(
    secagg: Command, consortium: Path, protection: str, role: str
) -> None:
    """Without a server a helper exits with 75 and one line."""
    planned(consortium, protection)
    said = run_helper(secagg, consortium, role, HELPERS[role][0])
    assert said.code == 75
    assert "cannot reach the server" in said.complaint


@pytest.mark.parametrize(("protection", "role"), TOGETHER.items())
def test_roster_without_second_parties_is_refused(
    secagg: Command, federation: Path, protection: str, role: str
) -> None:
    """`plan new` refuses a protection whose parties the roster lacks, and says which role to add."""
    arguments = ["--roster", federation / SERVER / "roster.json", "--out", federation / "other.json"]
    arguments += ["--shape", "3", "--classes", "no,yes", "--radius", "1", "--protection", protection]
    said = secagg(*NEW_PLAN, *arguments)
    assert said.code == 2
    assert f"the role {role}" in said.complaint
    assert not (federation / "other.json").exists()


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["north=127.0.0.1:1"],
        ["north=127.0.0.1:1", "north=127.0.0.1:2"],
        ["north=127.0.0.1:1", "south=127.0.0.1:2", "holder=127.0.0.1:3"],
        ["127.0.0.1:1", "127.0.0.1:2"],
    ],
    ids=["none", "one", "one twice", "a stranger", "no names"],
)
def test_client_needs_every_aggregators_address(secagg: Command, consortium: Path, given: list[str]) -> None:
    """A client that is not told where each aggregator is exits with 2 before it reads its records."""
    said = run_client(secagg, consortium, planned(consortium, "shared"), given)
    assert said.code == 2
    assert "the plan's aggregators are north, south" in said.complaint
    assert "--aggregator south=HOST:PORT" in said.complaint


@pytest.mark.parametrize("protection", ["masked", "encrypted", "none"])
def test_client_of_another_plan_takes_no_aggregators(secagg: Command, consortium: Path, protection: str) -> None:
    """Addresses of aggregators mean nothing where the plan has none, and are refused."""
    said = run_client(secagg, consortium, planned(consortium, protection), ["north=127.0.0.1:1"])
    assert said.code == 2
    assert "the plan's aggregators are none" in said.complaint


def run_client(secagg: Command, consortium: Path, plan: Path, given: list[str]) -> Said:
    """What a client says, for which nothing is there but its keys and its policy."""
    home = consortium / MEMBERS[0]
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "alice", "--out", home / "policy.toml").code == 0
    arguments = ["--plan", plan, "--policy", home / "policy.toml", "--tls", home, "--state", home / "state"]
    arguments += ["--data", home / "absent.npz", "--server", "127.0.0.1:1"]
    said = secagg("client", "--quiet", *arguments, *(word for text in given for word in ("--aggregator", text)))
    assert nothing_sent(home / "state")
    return said


@pytest.mark.parametrize("protection", ["masked", "none"])
def test_server_adds_no_noise_of_its_own(secagg: Command, consortium: Path, protection: str) -> None:
    """A server refuses a plan whose only noise is that of the one party that opens the exact sum."""
    promise = {"epsilon": 1.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "radius": None}
    plan = planned(consortium, protection, noise=NoiseFrom.AGGREGATOR, **promise)
    state = consortium / "state"
    arguments = ["--plan", plan, "--state", state, "--tls", consortium / SERVER, "--listen", "127.0.0.1:0"]
    said = secagg("server", "--quiet", *arguments)
    assert said.code == 2
    assert "would open the exact sum" in said.complaint
    assert not state.exists()


@pytest.mark.parametrize("protection", TOGETHER)
def test_plan_can_be_shown(secagg: Command, consortium: Path, protection: str) -> None:
    """`plan show` explains such a plan."""
    arguments = ["--plan", planned(consortium, protection), "--roster", consortium / SERVER / "roster.json"]
    said = secagg("plan", "show", *arguments)
    assert said.code == 0
    assert "may leave" in said.out


@pytest.mark.parametrize("protection", TOGETHER)
def test_simulate_has_it(secagg: Command, protection: str) -> None:
    """`simulate` gives the aggregate that every other protection gives."""
    content = simulated(secagg, "--protection", protection)
    assert content["protection"] == protection
    assert content["aggregate_sha256"] == simulated(secagg)["aggregate_sha256"]


@pytest.mark.parametrize("is_well", [True, False], ids=["at_its_end", "after_a_failure"])
def test_endpoint_of_an_aggregator_ends_as_the_server_does(
    secagg: Command, consortium: Path, monkeypatch: pytest.MonkeyPatch, is_well: bool
) -> None:
    """An aggregator that has ended well leaves answers under way as long as a server does, one that fails a second."""
    planned(consortium, "shared")
    graces: list[float] = []

    class Endpoint:
        async def stop(self, grace: float) -> None:
            graces.append(grace)

    async def serve(*_: object) -> tuple[Endpoint, str]:
        return Endpoint(), "127.0.0.1:1"

    async def run(federation: FederationHelper, _: object) -> list[object]:
        if not is_well:
            raise SessionAborted("too few are left")
        return [(federation.setup, SimpleNamespace(members=(), aggregate_sha256=b""))]

    async def do_nothing(*_: object) -> None: ...

    monkeypatch.setattr(helper, "serve", serve)
    monkeypatch.setattr(helper, "compute_aside", do_nothing)
    monkeypatch.setattr(Link, "check_plan", do_nothing)
    monkeypatch.setattr(FederationHelper, "run", run)
    monkeypatch.setattr(endpoints, "ANSWERS_A_SECOND", 1)
    code = run_helper(secagg, consortium, "aggregator", "north").code
    assert code == (ExitCode.DONE if is_well else ExitCode.ABORTED)
    roster = read_credentials(consortium / "north").roster
    assert graces == [len(roster.members) if is_well else 1.0]
