"""Membership from a released model: told where it knows a few records by heart, not of thousands."""

from dataclasses import replace

import numpy as np
import pytest

from secagg.networks import TrainedModel
from tests.threat_models.attacks.audited import attacked, measured
from tests.threat_models.attacks.trained import trained
from threat_models.attacks.of_methods import lira
from threat_models.attacks.of_methods.head import LOSS_ENTROPY_GAPS, MEMBERSHIP_HEAD, MemorisingRecipe
from threat_models.attacks.of_methods.lira import HeadRecipe
from threat_models.findings import Verdict

READER = "released_head_white_box"


def test_members_of_a_model_of_few_records_are_told():
    """Whoever has the model of 24 records with more features tells which they were, by shadows and by its loss."""
    rehearsal = trained(parameters="rounds=3 rate=0.5 clip=10")
    assert isinstance(rehearsal.sessions[0].head, TrainedModel)
    for attack, name in ((MEMBERSHIP_HEAD, "auc.lira_online"), (LOSS_ENTROPY_GAPS, "auc.loss")):
        finding = attacked(attack, READER, rehearsal)
        assert all(control.holds for control in finding.controls)
        assert finding.verdict is Verdict.SUCCEEDS
        assert measured(finding, name).low > 0.6


def test_a_model_of_thousands_withstands():
    """Of a softmax regression over 9,000 records no member is told, surely."""
    rehearsal = trained("plenty", "rounds=1 clip=10")
    finding = attacked(MEMBERSHIP_HEAD, READER, rehearsal)
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS
    assert "shadow models" in finding.sentence


def test_a_model_under_noise_keeps_its_ceiling():
    """At epsilon 1 the model of the same few records tells members no better than is promised."""
    finding = attacked(MEMBERSHIP_HEAD, READER, trained(parameters="rounds=2 gradients=1", epsilon=1.0))
    assert finding.verdict is not Verdict.SUCCEEDS
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)


def test_a_model_that_takes_too_long_to_make_anew_passes_nothing(monkeypatch):
    """Without shadows the loss alone is tried: that it tells nobody is no sign that shadows would not."""
    monkeypatch.setattr(lira, "MOST_WORK", 1)
    finding = attacked(MEMBERSHIP_HEAD, READER, trained("plenty", "rounds=1 clip=10"))
    assert "take too long" in finding.sentence
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("method", "parameters"), [("fedpcl", "rounds=2 width=16"), ("fedproto", "rounds=2 width=16")])
def test_every_kind_of_model_can_be_known_by_heart(method, parameters):
    """The model that controls try is of the program that was released, and puts random labels right."""
    session = trained("plenty", parameters, method=method).sessions[0]
    records = trained("plenty", parameters, method=method).knowledge.candidates.take(np.arange(8))
    shuffled = replace(records, labels=np.array([0, 1, 1, 0, 1, 0, 0, 1]))
    made = MemorisingRecipe.like(session.plan, session.head).head_of(shuffled)
    assert made.program == session.head.program
    inputs = records.integers / session.plan.grid.unit(session.plan.dimension)
    assert (made.predict(inputs) == shuffled.labels).all()


def test_shadows_of_rounds_with_private_states_carry_them():
    """A model that is made anew from all of the records is the one that one member alone would have made."""
    rehearsal = trained("plenty", "rounds=3 width=16", method="fedpcl", clients=2)
    plan = rehearsal.sessions[0].plan
    one = HeadRecipe(plan, sums=3).head_of(rehearsal.knowledge.candidates)
    first = HeadRecipe(plan, sums=3).first
    assert one.program == rehearsal.sessions[0].head.program
    assert one.parameters["weight"].tobytes() == rehearsal.sessions[0].head.parameters["weight"].tobytes()
    assert first.number == 1
