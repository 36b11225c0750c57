"""Membership from shared prototypes: told where a class's sum is of a few records, not where it is of thousands."""

from dataclasses import replace

import pytest

from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from tests.threat_models.attacks.trained import trained
from threat_models.adversary import adversary_named
from threat_models.attacks.of_methods.prototypes import MEMBERSHIP_PROTOTYPES, model_after, prototype_rounds
from threat_models.findings import Verdict
from threat_models.views import view_of

ROUNDS = "rounds=3 width=256"


@pytest.mark.parametrize("method", ["fedpcl", "fedproto"])
@pytest.mark.parametrize("adversary", ["curious_server", "curious_client"])
def test_members_behind_prototypes_of_few_records_are_told(method, adversary):
    """Who sees the prototypes of 24 records tells which they were, by the sums and by likeness."""
    finding = attacked(MEMBERSHIP_PROTOTYPES, adversary, trained(method=method, parameters=ROUNDS))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "auc.sums").low > 0.6
    assert measured(finding, "auc.likeness").low > 0.6


def test_prototypes_of_thousands_withstand():
    """Of 9,000 records surely no more than chance is told; of some of the rounds alone that is not said."""
    rehearsal = trained("plenty", "rounds=2 width=16", method="fedpcl")
    finding = attacked(MEMBERSHIP_PROTOTYPES, "curious_server", rehearsal)
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS
    last = replace(rehearsal.sessions[0], earlier=())
    fewer = attacked(MEMBERSHIP_PROTOTYPES, "curious_server", rehearsal, last)
    assert fewer.verdict is Verdict.INCONCLUSIVE
    assert "1 of 2 rounds" in fewer.sentence


def test_noise_of_a_promise_about_members_hides_few_records():
    """At epsilon 8 for a member the same few records are told no better than it allows."""
    rehearsal = trained(method="fedpcl", parameters=f"{ROUNDS} cap=4", epsilon=8.0, unit="client")
    finding = attacked(MEMBERSHIP_PROTOTYPES, "curious_server", rehearsal)
    assert finding.verdict is not Verdict.SUCCEEDS
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)


def test_the_last_model_is_the_one_that_was_released():
    """What the attack makes of each round's sum is, after the last, the artifact itself; no round's is another's."""
    session = trained(method="fedpcl", parameters=ROUNDS).sessions[0]
    rounds = prototype_rounds(view_of(session, adversary_named("curious_server")))
    models = [model_after(each) for each in rounds]
    assert [each.number for each in rounds] == [1, 2, 3]
    assert models[-1].digest == session.head.digest
    assert len({model.digest for model in models}) == 3


def test_other_sums_open_no_prototypes_of_projections():
    """The attack has nothing to work on in class sums of features."""
    assert attacked(MEMBERSHIP_PROTOTYPES, "curious_server", rehearsed()).verdict is Verdict.NOT_APPLICABLE


def test_sums_beside_training_with_noise_are_read_too():
    """Where members train with noise for what they send, the sums are tried all the same, and keep the ceiling."""
    rehearsal = trained(method="fedpcl", parameters="rounds=2 width=16 sampling=0.5", epsilon=8.0)
    finding = attacked(MEMBERSHIP_PROTOTYPES, "curious_server", rehearsal)
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is not Verdict.SUCCEEDS
    assert all(each.low <= each.ceiling for each in finding.measures if each.ceiling is not None)


def test_sums_that_open_no_prototype_tell_nothing():
    """A sum in which noise left no class a mean gives no model, and the audit goes on."""
    rehearsal = trained(method="fedpcl", parameters=ROUNDS)
    session = rehearsal.sessions[0]
    empty = replace(session, release={name: -abs(block) for name, block in session.release.items()}, earlier=())
    finding = attacked(MEMBERSHIP_PROTOTYPES, "curious_server", rehearsal, empty)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert not finding.measures
