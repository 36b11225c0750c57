"""`secagg ledger`: what was released, what it adds up to, and everything as JSON."""

import datetime
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from secagg.agreement.plan import read_plan
from secagg.agreement.policy import Budget
from secagg.agreement.roster import read_roster
from secagg.ledger import FILE_NAME, Ledger
from secagg.ledger.spending import Release, Spent, total_epsilon
from secagg.privacy import GaussianCost, SampledSteps, TrainingCost
from secagg.privacy.gaussian import epsilon_of
from secagg.session import RoundSetup
from tests.cli.command import Command
from tests.federation.test_recovery import charge

ANYTHING = Budget(math.inf, 1e-5, may_repeat=True)
WHEN = datetime.datetime(2026, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
COSTS = (
    Spent("record", "add-remove", GaussianCost(0.2**2, 1e-21)),
    Spent("record", "replace-one", GaussianCost(0.3**2, 1e-21)),
)
FIRST = Release("heart/v1", bytes([1]) * 32, bytes([9]) * 32, "record", "add-remove", 0.8123456, 1e-6, COSTS)
SECOND = replace(FIRST, data_name="heart/v2", session=bytes([2]) * 32)
EXACT = Release("digits", bytes([3]) * 32, bytes([8]) * 32, "record", "", math.inf, 0.0, ())


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder whose ledger has two noisy releases of one data set and an exact one of another."""
    for release, at in ((FIRST, None), (EXACT, WHEN), (SECOND, WHEN)):
        Ledger(tmp_path).record(release, ANYTHING, at)
    return tmp_path


def test_show_lists_by_data_set(secagg: Command, state: Path) -> None:
    """Every row stands under its data set with its numbers rounded up, and the totals follow."""
    said = secagg("ledger", "show", "--state", state)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert [line for line in lines if line and not line.startswith(" ")] == ["digits", "heart", "Ledger"]
    first = "1 - 090909090909 010101010101 0.8124 1e-06 record add-remove heart/v1"
    exact = "2 2026-03-04 05:06 080808080808 030303030303 inf 0 record - digits"
    assert {first, exact} <= {" ".join(line.split()) for line in lines}
    both = math.ceil(total_epsilon([FIRST, SECOND], "record", "add-remove", 1e-5) * 1e4) / 1e4
    spent = [" ".join(line.split()) for line in lines]
    assert f"record level, add-remove epsilon {both}" in spent
    assert "client level, replace-one epsilon inf" in spent
    assert Ledger(state).entries()[-1].head.hex() in said.out


def test_show_as_json(secagg: Command, state: Path) -> None:
    """The JSON has every number exactly, and "inf" where no total is finite."""
    said = secagg("ledger", "show", "--state", state, "--delta", "1e-7", "--json", "-")
    assert said.err == ""
    assert (said.json["delta"], said.json["head"]) == (1e-7, Ledger(state).entries()[-1].head.hex())
    digits, heart = said.json["data_sets"]
    assert (digits["data_set"], heart["data_set"]) == ("digits", "heart")
    assert [row["number"] for row in heart["releases"]] == [1, 3]
    assert heart["releases"][1] == {
        "number": 3, "at": WHEN.isoformat(), "data_name": "heart/v2", "session": "02" * 32, "plan": "09" * 32,
        "epsilon": 0.8123456, "delta": 1e-6, "unit": "record", "adjacency": "add-remove",
    }  # fmt: skip
    totals = {(each["unit"], each["adjacency"]): each["epsilon"] for each in heart["spent"]}
    assert totals["record", "replace-one"] == pytest.approx(epsilon_of(0.3 * math.sqrt(2), 1e-7), rel=1e-9)
    assert totals["client", "add-remove"] == totals["client", "replace-one"] == "inf"
    assert {each["epsilon"] for each in digits["spent"]} == {"inf"}


@pytest.mark.parametrize("name", ["heart", "heart/v1", "heart/v3"])
def test_show_one_data_set(secagg: Command, state: Path, name: str) -> None:
    """One data set can be asked for under any version of its name, and all versions are listed."""
    content = secagg("ledger", "show", "--state", state, "--data", name, "--json", "-").json
    (only,) = content["data_sets"]
    assert [row["data_name"] for row in only["releases"]] == ["heart/v1", "heart/v2"]


def test_show_an_empty_ledger(secagg: Command, tmp_path: Path) -> None:
    """A ledger without rows is shown as such."""
    Ledger(tmp_path)
    said = secagg("ledger", "show", "--state", tmp_path)
    assert said.out.split() == ["Ledger", "rows", "0", "head", "-"]


def test_export_is_complete(secagg: Command, state: Path) -> None:
    """The exported file gives every release and head back, bit for bit."""
    out = state / "ledger.json"
    said = secagg("ledger", "export", "--state", state, "--out", out)
    assert (said.code, said.out) == (0, "")
    content = json.loads(out.read_text())
    assert content["version"] == 3
    entries = Ledger(state).entries()
    assert [row["head"] for row in content["entries"]] == [entry.head.hex() for entry in entries]
    for row, entry in zip(content["entries"], entries, strict=True):
        costs = tuple(
            Spent(each["unit"], each["adjacency"], GaussianCost(each["squared_mu"], each["gap"]))
            for each in row["spent"]
        )
        session, plan = bytes.fromhex(row["session"]), bytes.fromhex(row["plan"])
        promise = (row["unit"], row["adjacency"], float(row["epsilon"]), row["delta"])
        assert Release(row["data_name"], session, plan, *promise, costs) == entry.release


def test_training_is_exported_with_its_parameters(secagg: Command, tmp_path: Path) -> None:
    """A plan that trained has its rate, multiplier, steps, further μ² and gap in the exported file."""
    cost = TrainingCost(SampledSteps(0.01, 2.5, 70), 0.003, 1e-16)
    release = replace(FIRST, spent=(Spent("record", "add-remove", cost),))
    Ledger(tmp_path).record(release, ANYTHING)
    out = tmp_path / "ledger.json"
    assert secagg("ledger", "export", "--state", tmp_path, "--out", out).code == 0
    (exported,) = json.loads(out.read_text())["entries"][0]["spent"]
    parameters = {"rate": 0.01, "multiplier": 2.5, "steps": 70, "squared_mu": 0.003, "gap": 1e-16}
    assert exported == {"unit": "record", "adjacency": "add-remove", **parameters}


@pytest.mark.parametrize("arguments", [["show"], ["export", "--out", "never.json"]])
def test_missing_ledger_is_said(secagg: Command, tmp_path: Path, arguments: list[str]) -> None:
    """Where there is no ledger, one line says so, with exit code 2, and nothing is created."""
    for folder in (tmp_path, tmp_path / "none"):
        said = secagg("ledger", *arguments, "--state", folder, "--quiet")
        assert said.code == 2
        assert "there is no ledger in" in said.complaint
    assert list(tmp_path.iterdir()) == []
    assert not Path("never.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "--delta", "0"], "delta cannot be"),
        (["show", "--delta", "1"], "delta cannot be"),
        (["show", "--delta", "nan"], "delta cannot be"),
        (["show", "--data", "lungs"], "no data set lungs; it has digits, heart"),
        (["show", "--json", "/no/such/file"], "cannot be written"),
        (["export", "--out", "/no/such/file"], "cannot write"),
        (["export"], "--out"),
    ],
)
def test_bad_option(secagg: Command, state: Path, arguments: list[str], words: str) -> None:
    """A value that cannot be is said in one line, with exit code 2."""
    said = secagg("ledger", *arguments, "--state", state, "--quiet")
    assert said.code == 2
    assert words in said.err.splitlines()[-1]


def test_damaged_ledger_is_not_shown(secagg: Command, state: Path) -> None:
    """A file that is no ledger is refused, and left as it is."""
    (state / FILE_NAME).write_bytes(b"damaged" * 200)
    for arguments in (["show"], ["export", "--out", state / "out.json"]):
        said = secagg("ledger", *arguments, "--state", state)
        assert said.code == 2
        assert "cannot use the ledger" in said.complaint
    assert [path.name for path in state.iterdir()] == [FILE_NAME]


def test_lost_ledger_is_missed_and_recovered(secagg: Command, federation: Path) -> None:
    """Without its ledger a member that has released is refused before anything is sent, told how, and then goes on."""
    alice = federation / "alice"
    setup = RoundSetup.of(read_plan(federation / "plan.json"), read_roster(alice / "roster.json"))
    entry = charge(alice / "state", setup, "alice")
    (alice / "state" / FILE_NAME).unlink()
    asked = ("client", "--plan", federation / "plan.json", "--server", "localhost:1", "--data", alice / "records.npz",
             "--policy", alice / "policy.toml", "--state", alice / "state", "--tls", alice, "--dry-run",
             "--quiet")  # fmt: skip
    said = secagg(*asked)
    assert (said.code, "secagg ledger recover --state" in said.complaint) == (2, True)
    recovered = secagg("ledger", "recover", "--state", alice / "state", "--json", "-")
    assert (recovered.code, recovered.json["proven"]) == (0, True)
    assert [row["data_name"] for row in recovered.json["releases"]] == ["alice"]
    assert Ledger(alice / "state").entries() == (entry,)
    assert secagg(*asked).code == 0
    again = secagg("ledger", "recover", "--state", alice / "state")
    assert (again.code, "names a release that its ledger lacks" in again.complaint) == (2, True)


def test_budget_by_a_policy(secagg: Command, state: Path, federation: Path) -> None:
    """With a policy its data set says what is spent and left; one that the ledger does not know has it all."""
    policy = federation / "alice" / "policy.toml"
    text = policy.read_text().replace('max_epsilon_total = "inf"', "max_epsilon_total = 2.0")
    for name, left in (("heart/v9", 1.0), ("lungs", 2.0)):
        policy.write_text(text.replace('name = "alice"', f'name = "{name}"'))
        said = secagg("ledger", "show", "--state", state, "--policy", policy)
        assert (said.code, "at most 2" in said.out, "left" in said.out) == (0, True, True)
        content = secagg("ledger", "show", "--state", state, "--policy", policy, "--json", "-").json
        (budget,) = [each["budget"] for each in content["data_sets"] if "budget" in each]
        assert left <= budget["left"] <= 2.0
        assert budget["limit"] == 2.0
