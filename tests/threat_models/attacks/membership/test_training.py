"""Membership from the rounds of training: told where a model memorises, not where thousands made it."""

from dataclasses import replace

import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from tests.threat_models.attacks.trained import trained
from threat_models.adversary import adversary_named
from threat_models.attacks.membership.training import MEMBERSHIP_TRAINING
from threat_models.attacks.updates import count_rounds, states_in
from threat_models.findings import Verdict
from threat_models.views import view_of

ROUNDS = "rounds=3 rate=0.5 clip=10"


@pytest.mark.parametrize("adversary", ["curious_server", "curious_client"])
def test_members_of_few_records_are_told(adversary):
    """Who sees the models of three rounds over 24 records with more features tells which they were."""
    finding = attacked(MEMBERSHIP_TRAINING, adversary, trained(parameters=ROUNDS))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "auc.losses").low > 0.6
    assert measured(finding, "auc.gradients").low > 0.6


def test_thousands_withstand():
    """Of 9,000 records surely no more than chance is told."""
    finding = attacked(MEMBERSHIP_TRAINING, "curious_server", trained("plenty", "rounds=2 gradients=1"))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS


def test_fewer_rounds_are_no_sign_of_protection():
    """The same session without its earlier rounds, which its adversary saw, is inconclusive at best."""
    rehearsal = trained("plenty", "rounds=2 gradients=1")
    last = replace(rehearsal.sessions[0], earlier=())
    finding = attacked(MEMBERSHIP_TRAINING, "curious_server", rehearsal, last)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "1 of 2 rounds" in finding.sentence


def test_noise_of_epsilon_one_hides_few_records():
    """With a promise the same few records are told no better than it allows."""
    finding = attacked(MEMBERSHIP_TRAINING, "curious_server", trained(parameters=ROUNDS, epsilon=1.0))
    assert finding.verdict is not Verdict.SUCCEEDS
    area = measured(finding, "auc.losses")
    assert area.low < area.ceiling < 0.6


def test_states_are_those_that_members_were_told():
    """A view has the model before every round and after the last, and who sees no sum has none of them."""
    session = trained(parameters=ROUNDS).sessions[0]
    view = view_of(session, adversary_named("curious_client"))
    states = states_in(view)
    assert len(states) == 1 + count_rounds(session.plan)
    assert len({state.digest for state in states}) == len(states)
    assert states[1].digest == session.earlier[1].round.model.digest
    assert view_of(session, adversary_named("network_observer")).round is None


def test_head_of_class_sums_was_not_trained():
    """The attack has nothing to work on where no rounds move a model."""
    assert attacked(MEMBERSHIP_TRAINING, "curious_server", rehearsed()).verdict is Verdict.NOT_APPLICABLE
