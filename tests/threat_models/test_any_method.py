"""A method is audited by its own `contribute` and its blocks' kinds, whatever their names, with counts or without."""

from __future__ import annotations

from typing import Any

import pytest

import methods
from secagg.plan_facts import planning
from tests.cli.command import Command, command
from tests.methods.readme import readme_method
from tests.threat_models.ridge import Ridge

NOISE = ("--epsilon", "4", "--delta", "1e-5", "--adjacency", "add-remove")
GREEN_OR_UNCLEAR = (0, 4)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`secagg` in this process, where the README's methods and a ridge are registered."""
    for each in (readme_method("naive-bayes"), readme_method("averaging"), Ridge):
        monkeypatch.setitem(methods.METHODS, each.name, each)
    return command(monkeypatch, capsys)


def audited(
    run: Command, method: str, *options: str, code: tuple[int, ...] = GREEN_OR_UNCLEAR, dataset: str = "digits"
) -> dict[str, Any]:
    """The report of an audit by a curious server."""
    asked = ("--threat-model", "curious_server", "--method", method, *options, "--json", "-")
    said = run("audit", "--simulate", "--dataset", dataset, *asked)
    assert said.code in code, said
    return said.json


def attacks(report: dict[str, Any]) -> dict[str, str]:
    """The verdict of each attack."""
    return {finding["attack"]: finding["verdict"] for finding in report["adversaries"][0]["findings"]}


def sentence_of(report: dict[str, Any], attack: str) -> str:
    """The sentence of one attack."""
    return next(each["sentence"] for each in report["adversaries"][0]["findings"] if each["attack"] == attack)


def places(report: dict[str, Any]) -> set[str]:
    """Where noise was measured."""
    assert report["promise"]["drawn"]["flaws"] == []
    return {place["name"] for place in report["promise"]["drawn"]["places"]}


def test_method_with_a_block_of_its_own(run: Command) -> None:
    """Naive Bayes is attacked by its counts and class sums; the noise of its squares is measured with the rest."""
    report = audited(run, "naive-bayes", *NOISE, "--expand", "64", dataset="breast-cancer")
    assert places(report) == {"counts", "class sums", "squares"}
    assert attacks(report)["unmixing"] == "inconclusive"
    assert "noise in each of its blocks was measured" in sentence_of(report, "membership_release")
    assert any("squares" in limit for limit in report["limits"])


def test_method_without_counts(run: Command) -> None:
    """Noise and lengths of a ridge are audited, triangle and diagonal apart; no attack says that nothing is there."""
    report = audited(run, "ridge", *NOISE)
    assert places(report) == {"gram, diagonal", "gram, off the diagonal", "targets"}
    assert report["promise"]["agrees"]
    for name in ("unmixing", "property_inference", "gradient_inversion", "score_inference"):
        assert attacks(report)[name] == "inconclusive", name
        assert sentence_of(report, name).endswith("hold: gram, targets."), name
    assert "best test under the plan's noise" in sentence_of(report, "membership_release")


def test_method_of_updates(run: Command) -> None:
    """The updates of three rounds of averaging are measured, and their promise for clients is recomputed."""
    report = audited(run, "averaging", "--epsilon", "8", *NOISE[2:], "--unit", "client")
    assert places(report) == {"update"}
    assert report["promise"]["recomputed"] == pytest.approx(8.0, rel=2e-3)


@pytest.mark.long
def test_noise_of_members_training(run: Command) -> None:
    """That epsilon is recomputed from the plan's steps; as nobody saw the noise, the audit is inconclusive."""
    trained = "--noise", "member", "--parameters", "rounds=2 sampling=0.1 steps=5 batch=30"
    report = audited(run, "fedavg", *NOISE, *trained, code=(4,))
    assert report["promise"]["claimed"] == 4.0
    assert report["promise"]["recomputed"] == pytest.approx(4.0, rel=1e-3)
    assert report["promise"]["drawn"] is None
    assert attacks(report)["membership_training"] != "not applicable"


def test_exact_updates_do_not_pass(run: Command) -> None:
    """Federated averaging without noise is attacked, and what its updates may tell beside keeps it from passing."""
    report = audited(run, "fedavg", "--parameters", "rounds=2", code=(4,), dataset="wine")
    assert attacks(report)["gradient_inversion"] != "not applicable"
    lines = [line["sentence"] for line in report["gate"]["lines"] if line["outcome"] == "inconclusive"]
    assert any("What else they tell is not known" in line for line in lines)
    assert any("searching for records" in limit for limit in report["limits"])


def test_exact_sum_that_no_attack_reads_does_not_pass(run: Command) -> None:
    """Without noise, blocks that nothing here can read leave the audit inconclusive, by name."""
    report = audited(run, "averaging", code=(4,))
    lines = [line["sentence"] for line in report["gate"]["lines"] if line["outcome"] == "inconclusive"]
    assert any("No attack here reads these blocks" in line and "update" in line for line in lines)
    assert any("policy, as it begins, refuses this plan" in limit for limit in report["limits"])


def test_method_that_sums_more_than_it_declares(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets three times as long as declared are found by trying, and the promise fails (exit 1)."""
    monkeypatch.setattr(planning, "check_declaration", lambda *arguments: None)  # it would be refused
    report = audited(run, "ridge", *NOISE, "--parameters", "factor=3", code=(1,))
    assert not report["promise"]["agrees"]
    assert report["promise"]["recomputed"] > 1.5 * report["promise"]["claimed"]
