"""The metrics that attacks declare, as gates name them and threat_models/MEASURES.md lists them."""

from pathlib import Path

import pytest

import threat_models
from tests.threat_models.attacks.audited import rehearsed
from threat_models.adversary import adversary_named
from threat_models.examination import examine
from threat_models.findings import Metric, covers
from threat_models.report.gate import all_metrics

TABLE = Path(threat_models.__file__).parent / "MEASURES.md"


def row(attack, metric):
    """The line of the table of measures."""
    cells = (f"`{attack}`", f"`{metric.id}`", metric.label, metric.unit, metric.each, metric.good)
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def test_table_lists_every_measure():
    """The table of ids is exactly what the attacks declare, in their order."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| attack | id |")) + 2
    assert lines[start:] == [row(attack, metric) for attack, metrics in all_metrics().items() for metric in metrics]


def test_ids_are_unique_and_each_attack_may_be_summed_up():
    """No attack has two metrics of one id, and each declares one that leads."""
    for metrics in all_metrics().values():
        assert len({metric.id for metric in metrics}) == len(metrics)
        assert any(metric.leads for metric in metrics)


def test_one_id_has_one_meaning():
    """Attacks that share an id share its label, unit and what would be good."""
    shared = {}
    for metric in (each for metrics in all_metrics().values() for each in metrics):
        assert shared.setdefault(metric.id, metric) == metric


@pytest.mark.parametrize("epsilon", [float("inf"), 1.0])
def test_attacks_measure_what_they_declare(epsilon):
    """A measure that an attack does not declare could not be named by a gate; those of one metric differ in `of`."""
    rehearsal = rehearsed(epsilon=epsilon)
    for name in ("no_protection", "rerunning_server", "colluding_clients"):
        for finding in examine(
            adversary_named(name), rehearsal.sessions, rehearsal.knowledge, lambda *_: None
        ).findings:
            assert {measure.metric for measure in finding.measures} <= set(all_metrics()[finding.attack])
            assert len({(measure.metric.id, measure.of) for measure in finding.measures}) == len(finding.measures)


@pytest.mark.parametrize(
    ("name", "is_covered"), [("auc.loss", True), ("auc", True), ("*", True), ("au", False), ("auc.", False)]
)
def test_a_name_covers_whole_parts_of_an_id(name, is_covered):
    """The part before the dot stands for all that begin with it; any other beginning for nothing."""
    assert covers(name, Metric("auc.loss", "AUC")) is is_covered
