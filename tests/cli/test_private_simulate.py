"""`secagg simulate` and `secagg plan` at finite ε: the contract, the exit codes, and that a refusal runs nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.agreement.plan import NoiseFrom, read_plan, write_plan
from secagg.agreement.policy import read_policy
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.privacy import Adjacency
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.transport import read_credentials
from tests.cli.command import MEMBERS, NEW_PLAN, SERVER, Command
from tests.cli.test_simulate import DIGITS, KEYS, simulated

PROMISE = ["--epsilon", 2, "--delta", 1e-5, "--adjacency", "add-remove"]
ONE_SUM = ["--refine", 0]
NOT_PRIVATE = (
    "accuracy, accuracy interval, accuracy reference, metrics, rounds, bad records, bad held out, diverged, "
    "client seconds, server seconds, seconds, ring, upload bytes per client, bytes saved by grid"
)
DEFAULT_SHARES = "counts=0.02,class_sums=0.58,second_moment=0.4"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Ninety records of three classes."""
    return write(tmp_path / "own.npz")


def write(path: Path, bad: tuple[int, ...] = ()) -> Path:
    """An .npz in which some training records hold a NaN."""
    labels = np.arange(90) % 3
    features = np.random.default_rng(6).normal(size=(90, 5)) + 3 * np.eye(5)[labels]
    test = features[:30].copy()
    features[list(bad), 2] = np.nan
    np.savez(path, train_features=features, train_labels=labels, test_features=test, test_labels=labels[:30])
    return path


def refused(secagg: Command, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> str:
    """The one line with exit code 2; no client's vector was computed."""
    monkeypatch.setattr("secagg.experiments.simulation._prepare", None)
    monkeypatch.setattr("secagg.experiments.baselines.DpSgd", None)
    said = secagg("simulate", "--quiet", "--json", "-", *arguments)
    assert said.code == 2
    return said.complaint


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("noise", ["client", "aggregator"])
def test_json_is_the_contract(secagg: Command, adjacency: str, noise: str) -> None:
    """`--json -` prints the keys of the contract with the promise that was asked for, and nothing else."""
    content = simulated(secagg, "--epsilon", 2, "--delta", 1e-5, "--adjacency", adjacency, "--noise", noise, *ONE_SUM)
    assert set(content) >= KEYS
    stated = ("epsilon", "delta", "adjacency", "unit", "noise", "normalisation", "levels", "vector_length")
    assert [content[key] for key in stated] == [2.0, 1e-5, adjacency, "record", noise, "centred-unit", 1024, DIGITS]
    assert f"(epsilon 2, {adjacency}, record level)" in content["promise"]
    assert content["ring"] < simulated(secagg, "--normalise", "centred-unit")["ring"]
    assert content["bytes_saved_by_grid"] > 0
    assert content["upload_bytes_per_client"] >= DIGITS * content["ring"] // 8
    assert content["bad_records"] == 0


def test_lines_for_people_state_the_promise(secagg: Command, own: Path, tmp_path: Path) -> None:
    """Without `--json -` the promise and the bytes saved stand on stdout, and the JSON in its file."""
    said = secagg("simulate", "--dataset", own, *PROMISE, "--json", tmp_path / "result.json")
    assert said.code == 0
    assert "What is opened tells to a limited degree whether" in said.out
    assert "bytes saved by grid" in said.out
    name, _, listed = said.out.splitlines()[-1].partition("ε")
    assert (name.strip(), listed.strip()) == ("not private: outside", NOT_PRIVATE)
    assert "\n  bad records" not in said.out
    assert json.loads((tmp_path / "result.json").read_text())["promise"] in said.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--unit", "client"],
        ["--unit", "client", "--noise", "aggregator", "--max-records", 40],
        ["--shares", DEFAULT_SHARES],
        ["--shares", "equal"],
        ["--clients", 8, "--dropouts", 2],
        ["--refine", 2],
        ["--method", "prototypes"],
        ["--protection", "none", "--clients", 1],
        ["--normalise", "unit", "--centre", 0.5],
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_every_flag_works_with_noise(secagg: Command, own: Path, arguments: list[object]) -> None:
    """Flags that change the plan give a run with a stated promise."""
    said = secagg("simulate", "--quiet", "--json", "-", "--dataset", own, *PROMISE, *arguments)
    assert said.code == 0
    assert "epsilon 2" in said.json["promise"]
    assert said.json["survivors"] >= said.json["clients"] - 2


def test_default_shares_are_the_stated_ones(secagg: Command, federation: Path) -> None:
    """The shares that the help names as the default give the very noise of the default."""
    plans = [new_plan(secagg, federation, *PROMISE, *ONE_SUM, *more) for more in ([], ["--shares", DEFAULT_SHARES])]
    assert plans[0].plan.noises == plans[1].plan.noises


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--epsilon", 2], "without its delta and adjacency"),
        (["--epsilon", 2, "--delta", 1e-5], "without its delta and adjacency"),
        (["--epsilon", 2, "--adjacency", "add-remove"], "without its delta and adjacency"),
        (["--epsilon", 0], "epsilon cannot be"),
        (["--epsilon", "nan"], "epsilon cannot be"),
        (["--epsilon", "much"], "epsilon cannot be"),
        ([*PROMISE, "--noise", "magic"], "no such noise: magic"),
        (["--noise", "magic"], "no such noise: magic"),
        ([*PROMISE, "--shares", "counts=0.5,class_sums=0.5"], "second_moment"),
        ([*PROMISE, "--shares", "counts"], "unknown rule"),
        ([*PROMISE, "--normalise", "none"], "normalised records"),
        (["--refine", 1, "--normalise", "none"], "takes records of one length"),
        ([*PROMISE, "--radius", 3], "leave the radius out"),
        ([*PROMISE, "--unit", "patient"], "no such unit"),
        ([*PROMISE, "--method", "dp-sgd", "--unit", "client"], "records in one place"),
        ([*PROMISE, "--method", "dp-sgd", "--dropouts", 1], "records in one place"),
        ([*PROMISE, "--method", "dp-sgd", "--refine", 1], "records in one place"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_what_keeps_no_promise_is_refused(
    secagg: Command, monkeypatch: pytest.MonkeyPatch, own: Path, arguments: list[object], words: str
) -> None:
    """A promise that is incomplete or cannot be kept exits with 2 and one line, and nothing is run."""
    assert words in refused(secagg, monkeypatch, "--dataset", own, *arguments)


def test_replace_one_is_not_for_dp_sgd(secagg: Command, own: Path) -> None:
    """The accountant of DP-SGD does not cover replacing: exit code 2 with the remedy."""
    arguments = ["--method", "dp-sgd", "--epsilon", 2, "--delta", 1e-5, "--adjacency", "replace-one"]
    said = secagg("simulate", "--quiet", "--json", "-", "--dataset", own, *arguments)
    assert said.code == 2
    assert "use add-remove" in said.complaint


DELTA, ADJACENCY, INFINITE = ("--delta", 1e-5), ("--adjacency", "add-remove"), ("--epsilon", "inf")


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (("simulate",), DELTA),
        (("simulate",), ADJACENCY),
        (("simulate", *INFINITE), DELTA),
        (("simulate", *INFINITE), ADJACENCY),
        (("sweep", "--out", "out"), DELTA),
        (("sweep", "--out", "out", *INFINITE), ADJACENCY),
        (("compare", "--out", "out", "--methods", "fedcgs"), ADJACENCY),
        (("compare", "--out", "out", "--methods", "fedcgs", *INFINITE), DELTA),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_delta_and_adjacency_without_noise(
    secagg: Command,
    own: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[object, ...],
    given: tuple[object, ...],
) -> None:
    """Where no epsilon is finite, delta or adjacency is accepted, as scripts that loop over ε give it, and remarked."""
    monkeypatch.chdir(tmp_path)
    seeds = () if command[0] == "simulate" else ("--seeds", 1, "--workers", 1)
    said = secagg(*command, *seeds, "--dataset", own, *given)
    assert said.code == 0
    assert f"note: {str(given[0])[2:]} promises nothing at epsilon inf: there is no noise" in said.err


def test_refinement_without_noise_normalises(secagg: Command, own: Path) -> None:
    """`--refine` at ε = inf brings records to length 1 and is exact, however many clients there are."""
    runs = [simulated(secagg, "--dataset", own, "--refine", 2, "--clients", clients) for clients in (3, 5)]
    assert {run["normalisation"] for run in runs} == {"centred-unit"}
    assert len({run["head_sha256"] for run in runs}) == 1
    assert runs[0]["accuracy"] == runs[0]["accuracy_reference"]


@pytest.mark.parametrize("bad", [(), (4,), (0, 17, 89)])
def test_bad_records_are_counted_under_noise(secagg: Command, tmp_path: Path, bad: tuple[int, ...]) -> None:
    """With noise NaN rows change neither exit code nor survivors; the operator's count and a note tell."""
    said = secagg("simulate", "--json", "-", "--dataset", write(tmp_path / "own.npz", bad), *PROMISE)
    content = said.json
    assert (said.code, content["survivors"], content["bad_records"], content["bad_held_out"]) == (0, 5, len(bad), 0)
    note = f"{len(bad)} of 90 training records are bad and count as zero; 0 of 30 held-out records are bad"
    assert any(note in each for each in content["notes"]) == (f"note: {note}" in said.err) == bool(bad)
    assert {"bad_records", "bad_held_out", "accuracy", "accuracy_reference"} <= set(content["not_private"])


@pytest.mark.parametrize("method", ["fedcgs", "dp-sgd"])
def test_bad_record_without_noise_is_named(
    secagg: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    """At ε = inf a NaN row exits with 2 and its file and row, before anything runs."""
    path = write(tmp_path / "own.npz", (16,))
    said = refused(secagg, monkeypatch, "--dataset", path, "--method", method)
    assert "own.npz" in said
    assert "row 17" in said


def new_plan(secagg: Command, federation: Path, *arguments: object) -> RoundSetup:
    """What `plan new` writes, as members read it."""
    roster, out = federation / SERVER / "roster.json", federation / "plan.json"
    chosen = ["--roster", roster, "--out", out, "--shape", "3", "--classes", "no,yes", "--max-records", 100]
    said = secagg(*NEW_PLAN, *chosen, *arguments, "--json", "-")
    assert said.code == 2, "what is there is not written over"
    out.unlink()
    said = secagg(*NEW_PLAN, *chosen, *arguments, "--json", "-")
    assert said.code == 0, said.err
    setup = RoundSetup.of(read_plan(out), read_credentials(federation / MEMBERS[0]).roster)
    assert said.json["plan_sha256"] == setup.plan.digest.hex()
    return setup


def arguments_of(federation: Path) -> list[object]:
    """Plan, roster and policy of the first member."""
    home = federation / MEMBERS[0]
    return ["--plan", federation / "plan.json", "--roster", home / "roster.json", "--policy", home / "policy.toml"]


def set_policy(federation: Path, old: str, new: str) -> None:
    """Change a line of the first member's policy."""
    path = federation / MEMBERS[0] / "policy.toml"
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))


def test_plan_with_a_promise_round_trips(secagg: Command, federation: Path) -> None:
    """`plan new` writes what was asked for, `plan show` says the same of the file, members recompute the claim."""
    options = ["--epsilon", 0.7, "--delta", 1e-6, "--adjacency", "replace-one", "--unit", "client", "--refine", 1]
    setup = new_plan(secagg, federation, *options)
    plan = setup.plan
    assert (plan.epsilon, plan.delta, plan.adjacency, plan.unit) == (0.7, 1e-6, "replace-one", "client")
    assert (plan.noise, plan.normalisation, setup.rounds) == ("client", "centred-unit", 2)
    shown = secagg("plan", "show", "--plan", federation / "plan.json", "--roster", federation / SERVER / "roster.json")
    assert shown.code == 0
    assert setup.facts.claim is not None
    assert setup.facts.claim.sentence() in shown.out
    assert "epsilon 0.7, replace-one, client level" in shown.out
    assert plan.digest.hex() in shown.out


def test_plan_asks_for_rounds(secagg: Command, federation: Path, tmp_path: Path) -> None:
    """With noise `plan new` wants rounds asked for or declined, saying what they bring and cost, and does as told."""
    roster, out = federation / SERVER / "roster.json", tmp_path / "asked.json"
    chosen = ["--roster", roster, "--out", out, "--shape", "3", "--classes", "no,yes", *PROMISE]
    said = secagg(*NEW_PLAN, *chosen)
    assert said.code == 2
    for word in ("16", "points of accuracy", "further sums", "bytes", "seconds", "--refine auto", "--refine 0"):
        assert word in said.complaint, word
    assert not out.exists()
    for told, rounds in (("auto", 17), (0, 1), (3, 4)):
        assert secagg(*NEW_PLAN, *chosen, "--refine", told).code == 0
        assert RoundSetup.of(read_plan(out), read_credentials(federation / MEMBERS[0]).roster).rounds == rounds
        out.unlink()


@pytest.mark.parametrize(
    "arguments",
    [[], [*PROMISE, "--unit", "client"], [*PROMISE, "--result", "server"], [*PROMISE, "--method", "prototypes"]],
    ids=["no noise", "client", "server", "prototypes"],
)
def test_plan_without_rounds_to_decide_does_not_ask(secagg: Command, federation: Path, arguments: list[object]) -> None:
    """Where the rule has no rounds, nothing need be said of them."""
    assert new_plan(secagg, federation, *(arguments or ["--radius", 1])).rounds == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--radius", 1], "there is no noise"),
        ([*PROMISE, "--unit", "client"], "noise about records alone"),
        ([*PROMISE, "--result", "server"], "do not learn the head"),
    ],
)
def test_plan_says_why_the_rule_has_no_rounds(
    secagg: Command, federation: Path, tmp_path: Path, arguments: list[object], reason: str
) -> None:
    """Whoever asks for `--refine auto` and gets none is told why."""
    roster, out = federation / SERVER / "roster.json", tmp_path / "none.json"
    chosen = ["--roster", roster, "--out", out, "--shape", "3", "--classes", "no,yes", *arguments]
    said = secagg(*NEW_PLAN, *chosen, "--refine", "auto")
    assert said.code == 0
    assert "--refine auto: no rounds, since" in said.err
    assert reason in said.err


def test_stated_records_are_in_the_plan(secagg: Command, federation: Path) -> None:
    """`--at-least` stands in the plan, `plan show` says who says so, and a δ that is too large for them is doubted."""
    plan = new_plan(secagg, federation, *PROMISE, *ONE_SUM, "--at-least", 300).plan
    assert plan.at_least == 300
    shown = secagg("plan", "show", "--plan", federation / "plan.json", "--roster", federation / SERVER / "roster.json")
    assert "300 of all members at the least, as whoever wrote the plan states" in shown.out
    (federation / "plan.json").unlink()
    roster = federation / SERVER / "roster.json"
    chosen = ["--roster", roster, "--out", federation / "plan.json", "--shape", "3", "--classes", "no,yes"]
    said = secagg(*NEW_PLAN, *chosen, *PROMISE, *ONE_SUM, "--at-least", 10**6, "--max-records", 10**6)
    assert "is not below 1 in 1000000 records" in said.err


def test_plan_cannot_validate(secagg: Command, federation: Path, tmp_path: Path) -> None:
    """Validation on members' records is a release that no ε covers: `plan new` refuses it in words."""
    chosen = ["--roster", federation / SERVER / "roster.json", "--out", tmp_path / "none.json", "--shape", "3"]
    said = secagg(*NEW_PLAN, *chosen, "--classes", "no,yes", *PROMISE, *ONE_SUM, "--validate", 0.2)
    assert said.code == 2
    assert "epsilon" in said.complaint
    assert "simulate --validate" in said.complaint


def test_plan_of_prototypes(secagg: Command, federation: Path) -> None:
    """`plan new` writes a plan for every method."""
    assert new_plan(secagg, federation, *PROMISE, "--method", "prototypes").plan.method == "prototypes"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--epsilon", 1],
        ["--epsilon", 1, "--delta", 1e-5],
        ["--epsilon", 1, "--adjacency", "add-remove"],
        [*PROMISE, *ONE_SUM, "--normalise", "none"],
        [*PROMISE, *ONE_SUM, "--radius", 2],
        [*PROMISE, *ONE_SUM, "--shares", "counts=1"],
        ["--refine", 1, "--radius", 2],
        [*PROMISE, "--refine", 1, "--result", "server"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments)),
)
def test_plan_without_a_whole_promise_is_not_written(
    secagg: Command, federation: Path, tmp_path: Path, arguments: list[object]
) -> None:
    """An incomplete or impossible promise exits with 2, and no file is written."""
    chosen = ["--roster", federation / SERVER / "roster.json", "--out", tmp_path / "none.json"]
    said = secagg(*NEW_PLAN, "--quiet", *chosen, "--shape", "3", "--classes", "no,yes", *arguments)
    assert said.code == 2
    assert said.complaint
    assert not (tmp_path / "none.json").exists()


def test_policy_decides_about_epsilon(secagg: Command, federation: Path) -> None:
    """The policy written for a plan accepts it; with a smaller max_epsilon the refusal names it and both numbers."""
    new_plan(secagg, federation, *PROMISE, *ONE_SUM)
    policy = federation / MEMBERS[0] / "policy.toml"
    policy.unlink()
    written = ["--plan", federation / "plan.json", "--data-name", "own", "--out", policy]
    assert secagg("plan", "policy", *written).code == 0
    assert read_policy(policy).max_epsilon == 2.0
    data = ["--data", federation / MEMBERS[0] / "records.npz"]
    assert secagg("plan", "check", *arguments_of(federation), *data).code == 0
    set_policy(federation, "max_epsilon = 2.0", "max_epsilon = 1.5")
    said = secagg("plan", "check", "--quiet", *arguments_of(federation))
    assert said.code == 2
    assert "max_epsilon: the plan spends 2.0, more than 1.5" in said.complaint
    assert "max_epsilon_total" not in said.complaint


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("max_epsilon_total = 2.0", "max_epsilon_total = 1.9", "max_epsilon_total"),
        ("max_delta = 1e-05", "max_delta = 1e-06", "max_delta"),
        ('adjacencies = ["add-remove", "replace-one"]', 'adjacencies = ["replace-one"]', "adjacencies"),
        ('units = ["record", "client"]', 'units = ["client"]', "units"),
        ('noise_from = ["client"]', 'noise_from = ["aggregator"]', "noise_from"),
    ],
)
def test_policy_decides_about_the_promise(secagg: Command, federation: Path, old: str, new: str, name: str) -> None:
    """Total, δ, adjacency, unit and the origin of the noise are lines of their own."""
    new_plan(secagg, federation, *PROMISE, *ONE_SUM)
    written = ["--plan", federation / "plan.json", "--data-name", "own"]
    (federation / MEMBERS[0] / "policy.toml").unlink()
    assert secagg("plan", "policy", *written, "--out", federation / MEMBERS[0] / "policy.toml").code == 0
    set_policy(federation, old, new)
    said = secagg("plan", "check", "--quiet", *arguments_of(federation))
    assert said.code == 2
    assert f"{name}: " in said.complaint


def test_check_counts_bad_records_under_noise(secagg: Command, federation: Path) -> None:
    """`plan check` with a promise says how many records count for nothing, and without one names the row."""
    records = federation / MEMBERS[0] / "records.npz"
    features = np.random.default_rng(0).uniform(-0.5, 0.5, size=(20, 3))
    features[6, 1] = np.nan
    np.savez(records, features=features, labels=np.arange(20) % 2)
    said = secagg("plan", "check", "--quiet", *arguments_of(federation), "--data", records)
    assert said.code == 2
    assert "row 7" in said.complaint
    new_plan(secagg, federation, *PROMISE, *ONE_SUM)
    set_policy(federation, 'max_epsilon = "inf"', "max_epsilon = 2.0")
    said = secagg("plan", "check", *arguments_of(federation), "--data", records)
    assert said.code == 0
    assert "20 records fit the plan, 1 of which count for nothing" in said.out


def aggregated(federation: Path) -> Path:
    """The federation's plan with an aggregator's noise."""
    roster = read_credentials(federation / SERVER).roster
    data = PublicData("features", (3,), ("no", "yes"), None, None)
    promise: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
    choices = PlanChoices(**promise, noise=NoiseFrom.AGGREGATOR, max_records=100, join_seconds=1)
    path = federation / "plan.json"
    write_plan(make_plan(data, roster, choices, OperatingSystem()), path)
    return path


def test_server_refuses_to_add_the_noise(secagg: Command, federation: Path) -> None:
    """A server of this protection would open the exact sum: it does not start, and leaves nothing behind."""
    state = federation / "state"
    arguments = ["--plan", aggregated(federation), "--state", state, "--tls", federation / SERVER]
    said = secagg("server", "--quiet", *arguments, "--listen", "127.0.0.1:0")
    assert said.code == 2
    assert "let the clients add noise" in said.complaint
    assert not state.exists()


def test_client_refuses_an_aggregators_noise_by_default(secagg: Command, federation: Path) -> None:
    """A member's policy trusts no aggregator unless it says so."""
    aggregated(federation)
    home = federation / MEMBERS[0]
    arguments = [*arguments_of(federation)[:2], *arguments_of(federation)[4:], "--server", "127.0.0.1:1", "--tls", home]
    said = secagg("client", "--quiet", *arguments, "--state", home / "state", "--data", home / "records.npz")
    assert said.code == 2
    assert "noise_from: the noise would come from the aggregator" in said.complaint
