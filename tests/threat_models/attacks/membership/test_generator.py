"""Membership from a shared generator: told where one record taught it, not where many did."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from methods import method_named
from secagg.encoding import Grid, Normalisation, quantise
from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.audited import attacked, measured, plenty, rehearsed
from tests.threat_models.attacks.trained import few, trained
from tests.worlds.chance import repeatable
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.metrics import Scores
from threat_models.attacks.of_methods.generator import MEMBERSHIP_GENERATOR, score
from threat_models.attacks.updates import play
from threat_models.evidence.simulation import rehearse
from threat_models.findings import Verdict
from threat_models.session import AuditRecords

SMALL = {"model": "mlp:32", "hidden": 16, "latent": 8, "steps": 10, "rate": 0.1}
DIMENSION, GRID = 60, Grid(1.0, 1 << 16, 0.0, Normalisation.CENTRED_UNIT)


@cache
def taught(dataset="few", rounds=4, **parameters):
    """A rehearsal of FRAug over few records, or plenty."""
    chosen = {**SMALL, "rounds": rounds, **parameters}
    words = " ".join(f"{name}={value}" for name, value in chosen.items())
    settings = SimulationSettings(clients=6, method="fraug", parameters=words, unit="client")
    with repeatable(f"{dataset} {settings}"):
        return rehearse(few() if dataset == "few" else plenty(), settings)


def test_who_taught_it_lies_farther():
    """A record that a generator learnt from alone is told from others of its class, by its distance in every round."""
    draw = np.random.default_rng(0)
    first = method_named("fraug", {**SMALL, "rounds": 9}).begin(DIMENSION, 2, GRID.levels)
    parts, others = [], []
    for _ in range(16):
        labels = draw.integers(0, 2, 80)
        integers = quantise(draw.normal(size=(80, DIMENSION)), GRID)
        records = AuditRecords(integers, labels, integers.astype(np.float64))
        after = [play(first, records.take(slice(1)), rounds, GRID) for rounds in (1, 2)]
        values = score(after, records.take(slice(40)), records.take(slice(40, None)), GRID)
        parts.append(Scores(values, np.arange(40) < 1))
        others.append(Scores(values[1:], np.arange(39) < 1))
    assert metrics.succeeds(metrics.pool_scores(parts))
    assert not metrics.succeeds(metrics.pool_scores(others))


@pytest.mark.long
def test_two_dozen_are_hardly_told():
    """Of 24 records the generator says too little for a verdict, though the attack works on its own control."""
    finding = attacked(MEMBERSHIP_GENERATOR, "curious_server", taught())
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.INCONCLUSIVE
    pointed = measured(finding, "reidentified.generator")
    assert pointed.low < pointed.baseline


def test_thousands_withstand():
    """Of 9,000 records surely no more than chance is told, by distances or among those pointed at."""
    finding = attacked(MEMBERSHIP_GENERATOR, "curious_server", taught("plenty", 2))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS
    pointed = measured(finding, "reidentified.generator")
    assert pointed.low < pointed.baseline < pointed.high


def test_fewer_rounds_are_no_sign_of_protection():
    """The same session without its earlier rounds is inconclusive at best."""
    rehearsal = taught("plenty", 2)
    finding = attacked(MEMBERSHIP_GENERATOR, "curious_server", rehearsal, replace(rehearsal.sessions[0], earlier=()))
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "1 of 2 rounds" in finding.sentence


@pytest.mark.long
def test_another_training_has_a_control_of_its_own():
    """Where even a generator that one record taught by squares is not told, thousands are no sign of protection."""
    finding = attacked(MEMBERSHIP_GENERATOR, "curious_server", taught("plenty", 2, generator_distance="l2"))
    assert [control.holds for control in finding.controls] == [False, True]
    assert finding.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("made", [rehearsed, trained, lambda: taught(augment=0)], ids=["one sum", "fedavg", "plain"])
def test_no_generator_is_nothing_to_attack(made):
    """Where nothing generates embeddings the attack does not apply."""
    assert attacked(MEMBERSHIP_GENERATOR, "curious_server", made()).verdict is Verdict.NOT_APPLICABLE
