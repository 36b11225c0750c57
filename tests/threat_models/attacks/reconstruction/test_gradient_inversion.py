"""Records out of models' updates: read where one record moved a unit, not where thousands did."""

from dataclasses import replace

import numpy as np
import pytest

from methods.round import OpenedTotal
from secagg.networks import TrainingSettings, program_named, record_gradients, train
from secagg.randomness import OperatingSystem
from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from tests.threat_models.attacks.trained import trained
from threat_models.adversary import adversary_named
from threat_models.attacks.reconstruction.gradient_inversion import GRADIENT_INVERSION, read_records
from threat_models.attacks.reconstruction.similarity import cosines
from threat_models.attacks.targets import subtract
from threat_models.attacks.updates import DIFFERENCE, moves_in
from threat_models.findings import Verdict
from threat_models.views import view_of


@pytest.mark.parametrize("name", ["softmax", "mlp:8"])
def test_one_record_is_read_off_its_gradient_and_off_training_on_it(name):
    """Units that it moved show the record itself, after one gradient and after five epochs."""
    program, record = program_named(name, 5, 3), np.array([[0.3, -1.0, 2.0, 0.5, 1.0]], dtype=np.float32)
    start, label = program.start(bytes(32)), np.array([1])
    (gradient,) = record_gradients(program, start, record, label)
    after = train(program, start, record, label, TrainingSettings(5, 0.1, 1), OperatingSystem())
    for move in (gradient[0].astype(np.float64), after - start):
        found = read_records(program, move)
        best = found[np.argmax(cosines(record.astype(np.float64), found))]
        assert best == pytest.approx(record[0], rel=1e-3)


def test_first_layer_that_is_a_convolution_is_not_read():
    """There is no ratio of weights and offsets that would be an image."""
    program = program_named("cnn", 64, 3)
    assert read_records(program, np.ones(program.size)) is None


def test_members_of_few_records_are_read_in_clear():
    """Who sees each update of a perceptron over four records recovers most of them, and no stranger's."""
    rehearsal = trained(parameters="rounds=2 gradients=1 model=mlp:64")
    finding = attacked(GRADIENT_INVERSION, "no_protection", rehearsal)
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "recovered.members", "one member").value > 0.5
    assert measured(finding, "recovered.strangers", "one member").value == 0


def test_sum_of_thousands_withstands():
    """The sum of 9,000 records' gradients shows the server none of them, surely."""
    finding = attacked(GRADIENT_INVERSION, "curious_server", trained("plenty"))
    assert all(control.holds for control in finding.controls)
    assert finding.verdict is Verdict.FAILS


def test_noise_hides_few_records():
    """At epsilon 1 nothing is recovered of the same few records that are read without it."""
    rehearsal = trained(parameters="rounds=2 gradients=1 model=mlp:64", epsilon=1.0)
    finding = attacked(GRADIENT_INVERSION, "no_protection", rehearsal)
    assert finding.verdict is not Verdict.SUCCEEDS
    assert measured(finding, "recovered.members", "one member").value == 0


def test_a_program_that_cannot_be_read_is_inconclusive():
    """That no record is read off a convolution's update is no sign that none could be."""
    finding = attacked(GRADIENT_INVERSION, "curious_server", trained(parameters="rounds=1 gradients=1 model=cnn"))
    assert finding.verdict is Verdict.INCONCLUSIVE


def _without(session, name, number):
    """The session as if `name` had been away in the round of this number; the rounds after are as they were."""
    sums = [*session.earlier, session]
    own, one = sums[number - 1].contributions[name], sums[number - 1]
    present = {member: blocks for member, blocks in one.contributions.items() if member != name}
    sums[number - 1] = replace(one, release=subtract(one.release, [own]), members=tuple(present), contributions=present)
    return replace(sums[-1], earlier=tuple(sums[:-1]))


def test_who_comes_back_is_the_difference_of_two_rounds():
    """The server reads a member's records off the sums of two rounds, of which it was in one alone."""
    rehearsal = trained(parameters="rounds=2 gradients=1 model=mlp:64")
    session = _without(rehearsal.sessions[0], "client-0002", 1)
    view = view_of(session, adversary_named("curious_server"))
    (found,) = [each for each in moves_in(view) if each.name == DIFFERENCE]
    assert found.owners == {"client-0002"}
    true = found.round.work.mean(OpenedTotal(session.contributions["client-0002"], session.plan.grid))
    assert cosines(found.move[None], true[None]) > 0.9
    finding = attacked(GRADIENT_INVERSION, "curious_server", rehearsal, session)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "recovered.members", "the difference").value > 0.5
    assert measured(finding, "recovered.strangers", "the difference").value == 0


def test_sums_of_classes_are_no_updates():
    """The attack has nothing to work on where no model is trained."""
    assert attacked(GRADIENT_INVERSION, "curious_server", rehearsed()).verdict is Verdict.NOT_APPLICABLE
