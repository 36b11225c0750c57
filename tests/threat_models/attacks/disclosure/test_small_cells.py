"""Records alone in a cell, and audits of sums that divide classes into slots."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.data.records import DOMAIN
from secagg.encoding import Normalisation
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulated_federation import SimulatedFederation
from tests.threat_models.attacks.audited import attacked, measured, rehearsed
from tests.threat_models.attacks.rounds import rounds_of
from tests.threat_models.attacks.sums import knowledge_of, plan_of, records_of, seen_by, session_of
from tests.worlds.chance import repeatable
from threat_models.adversary import adversary_named
from threat_models.attacks import ATTACKS
from threat_models.attacks.disclosure.label_counts import LABEL_COUNTS
from threat_models.attacks.disclosure.small_cells import SMALL_CELLS, find_single, recognise, records_between
from threat_models.attacks.disclosure.subtraction import subtract
from threat_models.attacks.gaussian_likelihood import total
from threat_models.attacks.membership.aggregate import MEMBERSHIP_RELEASE, score_by_release
from threat_models.attacks.membership.metrics import Scores
from threat_models.attacks.reconstruction.inversion import INVERSION
from threat_models.estimation.intervals import Comparisons
from threat_models.evidence.simulation import main_session, rehearse
from threat_models.examination import examine
from threat_models.findings import Verdict
from threat_models.report.gate import all_metrics
from threat_models.session import AuditRecords, by_class
from threat_models.views import view_of

METHODS = ("fedtc", "mpft")
WHOLE = "the sum of all"


def with_domains(data):
    """Data of two domains in turn."""
    train, test = (
        replace(each, columns={DOMAIN: np.array(["art", "photo"])[np.arange(len(each)) % 2]})
        for each in (data.train, data.test)
    )
    return replace(data, train=train, test=test)


@cache
def slotted(method="fedtc", parameters="slots=64", epsilon=math.inf, dataset="digits", **given):
    """A rehearsal of slot sums of four clients, with a short training and the same noise in every run.

    Exact ones are of a plan that hides nobody, which alone may open slots of one record, unless it has a gate.
    """
    promise = {} if math.isinf(epsilon) else {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
    settings = SimulationSettings(
        clients=4,
        method=method,
        parameters=f"{parameters} epochs=2",
        protection="masked" if promise or "class_gate" in given else "none",
        **promise,
        **given,
    )
    data = open_dataset(dataset)
    with repeatable(f"{dataset} {settings}"):
        return rehearse(with_domains(data) if method == "mpft" else data, settings)


def in_cells(integers, cells):
    """Records of one class in these cells."""
    integers = np.array(integers)
    return AuditRecords(
        integers, np.zeros(len(cells), dtype=np.int64), integers.astype(float), in_cells=np.array(cells)
    )


def test_cells_of_one_record_show_it():
    """Golden: of three cells one holds one record; it is recognised, neither one beside it nor one of another cell."""
    records = in_cells([[3, -1], [5, 5], [2, 2]], [0, 2, 2])
    blocks = total(records, 3, frozenset())
    assert find_single(blocks).tolist() == [0]
    tried = in_cells([[3, -1], [5, 5], [3, 0], [3, -1], [3, -1]], [0, 2, 0, 1, 2])
    assert recognise(blocks, tried).tolist() == [True, False, False, False, False]


def test_class_with_one_record_is_a_cell():
    """Sums of whole classes are audited alike: a class of which there is one record in all shows it."""
    plan = plan_of(3, 3, protection="masked")
    features = np.random.default_rng(0).uniform(0, 0.5, (12, 3))
    labels = [0, 0, 1, 1, 0, 0, 1, 1, 2, 0, 1, 2]
    records = records_of(plan, features, labels)
    parts = [records.take(slice(0, 4)), records.take(slice(4, 9))]
    knowledge, session = knowledge_of(parts, records.take(slice(9, 12))), session_of(plan, parts)
    finding = SMALL_CELLS.run((seen_by("curious_server", session),), knowledge, lambda *_: None)
    assert finding.verdict is Verdict.SUCCEEDS
    assert '1 of 9 records is alone in a cell and shown whole ("class 2")' in finding.sentence
    assert measured(finding, "recognised.members", "the sum of all").value == 1
    assert measured(finding, "recognised.strangers", "the sum of all").value == 0
    parts = [records.take(slice(0, 8)), records.take(slice(9, 12)), records.take(slice(8, 12))]
    knowledge, larger = knowledge_of(parts, records.take(slice(9, 12))), session_of(plan, parts)
    finding = SMALL_CELLS.run((seen_by("curious_server", larger),), knowledge, lambda *_: None)
    assert finding.verdict is Verdict.FAILS
    assert "the smallest holds 3" in finding.sentence


def test_class_of_one_client_is_its_own_sum():
    """A class that one client alone holds stands in the exact sum as that client's own; the finding names it."""
    plan = plan_of(3, 3, protection="masked")
    labels = [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 0, 0, 0, 0]
    records = records_of(plan, np.random.default_rng(0).uniform(0, 0.5, (14, 3)), labels)
    parts = [records.take(slice(0, 6)), records.take(slice(6, 10))]
    knowledge, session = knowledge_of(parts, records.take(slice(10, 14))), session_of(plan, parts)
    assert np.array_equal(session.release["class_sums"][2], session.contributions["client-0"]["class_sums"][2])
    view = seen_by("curious_server", session)
    finding = SMALL_CELLS.run((view,), knowledge, lambda *_: None)
    assert finding.verdict is Verdict.SUCCEEDS
    assert '1 class is one client\'s alone, whose own sum stands there bit for bit ("class 2")' in finding.sentence
    assert "--class-gate K, or a finite epsilon" in finding.sentence
    assert measured(finding, "cells_of_one_client", "the sum of all").value == 1


@pytest.mark.parametrize(
    ("gate", "dropouts", "colluders", "cells", "verdict"),
    [
        (0, 0, 0, (), Verdict.INCONCLUSIVE),
        (1, 0, 0, (), Verdict.INCONCLUSIVE),
        (2, 0, 0, (), Verdict.FAILS),
        (3, 2, 0, (), Verdict.INCONCLUSIVE),
        (2, 0, 1, (), Verdict.INCONCLUSIVE),
        (3, 0, 1, (), Verdict.FAILS),
        (2, 0, 0, ("a, slot 0", "a, slot 1", "b, slot 0", "b, slot 1"), Verdict.INCONCLUSIVE),
    ],
)
def test_who_holds_a_class_is_known_or_sure_or_open(gate, dropouts, colluders, cells, verdict):
    """Where it is not known who holds a class, a class gate that leaves two others in it is sure, and nothing else."""
    plan = plan_of(3, 2, protection="masked", parameters=f'{{"gate":{gate}}}', dropouts=dropouts)
    records = records_of(plan, np.random.default_rng(0).uniform(0, 0.5, (16, 3)), [0, 0, 1, 1] * 4)
    parts = [records.take(slice(4 * client, 4 * client + 4)) for client in range(3)]
    session = replace(session_of(plan, parts), cells=cells)
    view = view_of(session, replace(adversary_named("colluding_clients"), colluders=colluders))
    known = knowledge_of(parts, records.take(slice(12, 16)))
    assert SMALL_CELLS.run((view,), known, lambda *_: None).verdict is Verdict.FAILS
    finding = SMALL_CELLS.run((view,), replace(known, held={}), lambda *_: None)
    assert finding.verdict is verdict
    assert ("--class-gate K" in finding.sentence) == (verdict is Verdict.INCONCLUSIVE)


@pytest.mark.parametrize(("partition", "gate", "verdict"), [("shards:2", 0, True), ("shards:7", 2, False)])
def test_simulation_knows_who_holds_a_class(partition, gate, verdict):
    """Two shards for each of five clients make every class of digits one client's own; a class gate leaves none so."""
    settings = SimulationSettings(clients=5, partition=partition, class_gate=gate)
    found = rehearse(open_dataset("digits"), settings)
    finding = attacked(SMALL_CELLS, "curious_server", found)
    lone = np.sum([each["counts"] > 0 for each in found.sessions[0].contributions.values()], axis=0)
    assert measured(finding, "cells_of_one_client", "the sum of all").value == (lone == 1).sum()
    assert (finding.verdict is Verdict.SUCCEEDS) == verdict == bool((lone == 1).any())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"method": "fedtc", "parameters": "slots=1 epochs=2 threshold=0.4"}, True),
        ({"method": "fedtc", "parameters": "slots=1 epochs=2 threshold=0.3"}, False),
        ({"method": "mpft", "parameters": "sampling=cluster slots=2 rounds=6 epochs=2", "class_gate": 2}, True),
    ],
)
@pytest.mark.parametrize("adversary", ["curious_server", "colluding_clients"])
def test_records_between_the_sums_of_a_plan_are_members(settings, expected, adversary):
    """What two exact sums of a plan differ by is attacked: each record that is shown whole is one that was summed.

    The grid's own test finds them: no record is known. Golden: the threshold 0.4 leaves out one digit 4.
    """
    chosen = SimulationSettings(clients=4, normalise="centred-unit", **settings)
    cast = SimulatedFederation.of(Features.of(open_dataset("digits"), chosen), chosen)
    _, session = main_session(cast)
    members = {row.tobytes() for own in cast.members.values() for row in own.integers}
    view = view_of(session, adversary_named(adversary))
    nobody = AuditRecords(np.zeros((0, 64), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros((0, 64)))
    found = records_between(view, nobody)
    assert {row.tobytes() for row in found.integers} <= members
    if adversary == "curious_server":
        assert bool(len(found)) == expected
        if chosen.parameters.endswith("0.4"):
            assert found.labels.tolist() == [4]


def test_a_plans_other_sums_must_be_at_hand():
    """Without the first of a plan's two sums of class sums it is open what the two differ by: inconclusive."""
    rehearsal = slotted(parameters="slots=1 threshold=0.3")
    alone_in_it = replace(rehearsal.sessions[0], earlier=())
    finding = attacked(SMALL_CELLS, "curious_server", rehearsal, alone_in_it)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "What the plan's other sums (1) and this one differ by is not known" in finding.sentence
    assert attacked(SMALL_CELLS, "curious_server", rehearsal).verdict is Verdict.FAILS


def test_record_between_two_sums_is_a_finding():
    """Nobody is alone in the last sum; what the first has more shows a record: the attack succeeds and says so."""
    plan = plan_of(3, 2, protection="masked")
    records = records_of(plan, np.random.default_rng(0).uniform(0, 0.5, (16, 3)), [0, 0, 1, 1] * 4)
    parts = [records.take(slice(0, 6)), records.take(slice(6, 12))]
    first = session_of(plan, parts)
    rest = subtract(first.release, [total(records.take([0]), 2, frozenset(first.release))])
    known = knowledge_of(parts, records.take(slice(12, 16)))
    for earlier, verdict in (((), Verdict.FAILS), ((first,), Verdict.SUCCEEDS)):
        view = seen_by("curious_server", replace(first, release=rest, earlier=earlier))
        finding = SMALL_CELLS.run((view,), known, lambda *_: None)
        assert finding.verdict is verdict
        assert ("Between the plan's sums 1 record is shown whole" in finding.sentence) == bool(earlier)


def test_three_records_apart_are_no_record():
    """Where a cell swaps two records for one, the difference of counts is 1 and the difference is no record."""
    plan = plan_of(3, 2, protection="masked", normalisation=Normalisation.UNIT)
    records = records_of(plan, np.random.default_rng(0).uniform(0, 0.5, (8, 3)), [0, 0, 1, 1] * 2)
    first = session_of(plan, [records])
    gone, come = (total(records.take(rows), 2, frozenset(first.release)) for rows in ([0, 1, 2], [4]))
    second = {name: block - gone[name] + come[name] for name, block in first.release.items()}
    second["counts"][1] += 3  # not one within the other
    view = seen_by("curious_server", replace(first, release=second, earlier=(first,)))
    assert not len(records_between(view, records.take(slice(0))))


@pytest.mark.parametrize("method", METHODS)
def test_singles_of_slot_sums_are_those_of_the_data(method):
    """The number of records alone in a slot, in the sum and in single vectors, is that of counts made by hand."""
    rehearsal = slotted(method)
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    whole, own = np.zeros(len(session.cells)), 0
    for client in session.clients:
        counts = np.asarray(session.contributions[client]["counts"])
        whole, own = whole + counts, own + int((counts == 1).sum())
    finding = attacked(SMALL_CELLS, "no_protection", rehearsal)
    singles = int((whole == 1).sum())
    assert singles > 0
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "alone_in_cell", WHOLE).value == singles
    assert measured(finding, "alone_in_cell", "each client's own vector").value == own
    sums, members = np.asarray(session.release["class_sums"]), knowledge.candidates.take(knowledge.is_member)
    shown = {tuple(sums[cell]) for cell in np.flatnonzero(whole == 1)}
    seen = sum(tuple(row) in shown for row in members.integers)
    assert measured(finding, "recognised.members", "the sum of all").value == seen > 0
    assert measured(finding, "recognised.strangers", "the sum of all").value == 0
    assert [(each.expected, each.holds) for each in finding.controls] == [(True, True), (False, True)]


def test_few_slots_leave_nobody_alone():
    """With 4 slots for each of ten classes of digits every slot of the sum holds many; the finding says how many."""
    rehearsal = slotted(parameters="slots=4", class_gate=2)
    finding, counts = attacked(SMALL_CELLS, "curious_server", rehearsal), rehearsal.sessions[0].release["counts"]
    assert finding.verdict is Verdict.FAILS
    assert f"the smallest holds {counts.min()}." in finding.sentence


def test_a_gated_slot_is_no_record():
    """Of 64 slots behind a gate none that is opened holds one record or one client's alone, though many do ungated."""
    assert (np.asarray(slotted().sessions[0].release["counts"]) == 1).any()
    rehearsal = slotted(class_gate=2, colluders=1, dropouts=0)
    counts = np.asarray(rehearsal.sessions[0].release["counts"])
    assert counts.any()
    assert (counts[counts > 0] >= 3).all()
    assert attacked(SMALL_CELLS, "curious_server", rehearsal).verdict is Verdict.FAILS


def test_colluders_leave_records_alone():
    """Less the colluders' own, the sum is the last client's vector, whose singles stand in clear."""
    rehearsal = slotted(parameters="slots=4", class_gate=2)
    last = rehearsal.sessions[0].contributions[rehearsal.sessions[0].clients[-1]]
    finding = attacked(SMALL_CELLS, "colluding_clients", slotted(class_gate=2))
    session = slotted(class_gate=2).sessions[0]
    own = session.contributions[session.clients[-1]]
    assert measured(finding, "alone_in_cell", "the sum without the colluders'").value == len(find_single(own)) > 0
    assert len(find_single(last)) == 0
    assert attacked(SMALL_CELLS, "colluding_clients", rehearsal).verdict is Verdict.FAILS


@pytest.mark.parametrize("method", METHODS)
def test_no_cell_of_a_noisy_sum_is_a_record(method):
    """Noise of the clients is in their vectors and in the sum; noise of an aggregator leaves single vectors exact."""
    noisy = attacked(SMALL_CELLS, "no_protection", slotted(method, epsilon=1.0))
    assert noisy.verdict is Verdict.NOT_APPLICABLE
    rehearsal = slotted(method, epsilon=1.0, noise="aggregator")
    assert attacked(SMALL_CELLS, "curious_server", rehearsal).verdict is Verdict.NOT_APPLICABLE
    opened = attacked(SMALL_CELLS, "no_protection", rehearsal)
    assert opened.verdict is Verdict.SUCCEEDS
    assert not any("the sum of all" in each.of for each in opened.measures)


@pytest.mark.parametrize(
    ("method", "parameters", "epsilon"),
    [
        ("fedtc", "slots=64", math.inf),
        pytest.param("fedtc", "slots=64", 4.0, marks=pytest.mark.long),
        ("fedtc", "slots=16 threshold=0.9", 8.0),
        pytest.param("fedtc", "slots=16 keep=0.8", math.inf, marks=pytest.mark.long),
        pytest.param("mpft", "slots=8", 4.0, marks=pytest.mark.long),
        ("mpft", "sampling=cluster slots=3 rounds=2", math.inf),
    ],
)
@pytest.mark.parametrize("adversary", ["no_protection", "colluding_clients", "rerunning_server"])
def test_slot_sums_are_audited_to_a_verdict(method, parameters, epsilon, adversary):
    """Every attack on sums ends, its controls hold, and what does not apply says why; all measures have a meaning."""
    rehearsal = slotted(method, parameters, epsilon)
    seen = adversary_named(adversary)
    with Comparisons(40).apply():  # as an audit has it: a control is not to fail by chance
        findings = examine(seen, rehearsal.sessions, rehearsal.knowledge, lambda *_: None).findings
    for finding in findings:
        assert finding.sentence.endswith(".")
        assert all(control.holds for control in finding.controls)
        assert {each.metric for each in finding.measures} <= set(all_metrics()[finding.attack])
        if finding.verdict is not Verdict.NOT_APPLICABLE:
            assert finding.controls


def test_every_adversary_that_sees_others_sums_counts_small_cells():
    """Whoever runs unmixing on a sum looks for records alone in its cells too."""
    for name in ("curious_server", "no_protection", "colluding_clients", "curious_key_holder", "curious_client"):
        assert SMALL_CELLS.name in adversary_named(name).attacks
    assert ATTACKS[SMALL_CELLS.name] is SMALL_CELLS


@pytest.mark.parametrize("method", METHODS)
def test_unprotected_slot_sums_are_disclosed(method):
    """Vectors in clear give class counts; the exact sum of many slots tells members, that of ε = 1 does not."""
    assert attacked(LABEL_COUNTS, "no_protection", slotted(method)).verdict is Verdict.SUCCEEDS
    assert attacked(MEMBERSHIP_RELEASE, "curious_server", slotted(method)).verdict is Verdict.SUCCEEDS
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", slotted(method, epsilon=1.0))
    assert finding.verdict is Verdict.FAILS
    judged = [each for each in finding.measures if each.ceiling is not None]
    assert judged
    assert all(each.low <= each.ceiling for each in judged)


@pytest.mark.parametrize("method", METHODS)
def test_slot_sums_with_a_quarter_of_the_noise_are_found(method):
    """A sum whose noise is 4 times too small breaks the claim, where all records are known."""
    rehearsal = slotted(method, "slots=8", 1.0, "breast-cancer")
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    members = knowledge.candidates.take(knowledge.is_member)
    exact = total(members, len(session.cells), frozenset())
    planned = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsal)
    noise = measured(planned, "noise_variance")
    assert noise.low <= 1 <= noise.high
    shrunk = {name: exact[name] + (block - exact[name]) / 4 for name, block in session.release.items()}
    finding = attacked(MEMBERSHIP_RELEASE, "curious_server", rehearsal, replace(session, release=shrunk))
    assert measured(finding, "noise_variance").value == pytest.approx(noise.value / 16)
    assert finding.verdict is Verdict.SUCCEEDS
    assert "less noise in the sum than planned" in finding.sentence


def test_member_alone_in_a_slot_is_told_for_sure():
    """From the exact sum alone: a record alone in its slot scores above all strangers, one in an empty slot below."""
    rehearsal = slotted()
    session, known = rehearsal.sessions[0], rehearsal.knowledge
    values = score_by_release(session.release, None, known.candidates, known.public)
    counts = np.asarray(session.release["counts"])[known.candidates.cells]
    single = Scores(values, known.is_member).take((counts == 1) & known.is_member | ~known.is_member)
    assert single.area().value > 0.99
    assert np.isneginf(values[counts == 0]).all()
    assert (counts[known.is_member] > 0).all()


def test_slots_of_a_class_add_up_to_it():
    """The blocks by class are those of class prototypes over the same clients."""
    fine, coarse = slotted().sessions[0], rehearsed("digits", method="prototypes", clients=4).sessions[0]
    for name, block in by_class(fine.release, 10).items():
        assert np.array_equal(block, coarse.release[name])
    whole = by_class(coarse.release, 10)
    assert all(np.array_equal(block, coarse.release[name]) for name, block in whole.items())


def test_images_come_out_of_slots_of_few():
    """From the means of 64 slots a class images of members are re-identified, by the server and where nothing protects.

    Not beyond their class from the slots of a sum with noise of ε = 1.
    """
    for adversary, epsilon, succeeds in (
        ("curious_server", math.inf, True),
        ("no_protection", math.inf, True),
        ("curious_server", 1.0, False),
    ):
        finding = attacked(INVERSION, adversary, slotted(epsilon=epsilon))
        assert (finding.verdict is Verdict.SUCCEEDS) == succeeds
        assert all(control.holds for control in finding.controls)


def test_a_class_of_one_member_is_found_in_sums_of_projections_too():
    """What the only member with a class sends of it is in the sum bit for bit, whatever it was made of."""
    skewed = rounds_of(parameters="rounds=2 width=64", clients=5, partition="dirichlet:0.1")
    session, knowledge = skewed.sessions[0], skewed.knowledge
    finding = attacked(SMALL_CELLS, "curious_server", skewed)
    holders = sum(counts > 0 for counts in knowledge.held.values())
    assert (holders == 1).any()
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "cells_of_one_client").value == (holders == 1).sum()
    (alone,) = np.flatnonzero(holders == 1)[:1]
    (owner,) = [name for name, counts in knowledge.held.items() if counts[alone]]
    own = session.contributions[owner]["other class_sums"][alone]
    assert np.array_equal(session.release["other class_sums"][alone], own)
