"""The cells that an audit names for slot sums, in simulations and in transcripts alike."""

import asyncio
import math

import numpy as np
import pytest

from methods.slots.slots import slot_of
from secagg.data import open_dataset
from secagg.encoding import Normalisation
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.audited import measured
from tests.threat_models.recorded import read_session
from tests.worlds.federation import SimulatedFederation, run_federation
from threat_models.adversary import adversary_named
from threat_models.attacks.disclosure.small_cells import SMALL_CELLS
from threat_models.attacks.targets import targets_in
from threat_models.evidence.blocks import assign_cells
from threat_models.evidence.canaries import plant
from threat_models.evidence.simulation import rehearse
from threat_models.evidence.transcripts import known_of
from threat_models.session import AuditRecords
from threat_models.views import view_of

SERVER = 0
EXACT = {"epsilon": math.inf, "delta": None, "adjacency": None, "normalise": Normalisation.CENTRED_UNIT}
PLANS = {
    "fedtc": {"method": "fedtc", "parameters": (("slots", 8), ("epochs", 2)), "refine": 0},
    "threshold": {"method": "fedtc", "parameters": (("slots", 8), ("epochs", 2), ("threshold", 0.5)), "class_gate": 1},
    "mpft": {"method": "mpft", "parameters": (("domains", "art+photo"), ("slots", 3), ("epochs", 2)), "class_gate": 1},
    "cluster": {
        "method": "mpft",
        "parameters": (("domains", "art+photo"), ("sampling", "cluster"), ("slots", 2), ("rounds", 2), ("epochs", 2)),
        "class_gate": 1,
    },
}


@pytest.fixture(scope="module", params=PLANS)
def recorded(request, tmp_path_factory):
    """The server's transcripts of a plan without noise or protection, and the members' records."""
    world = SimulatedFederation.of(
        tmp_path_factory.mktemp(request.param), protection="none", **EXACT, **PLANS[request.param]
    )
    stages = asyncio.run(run_federation(world)).stages
    return world, [read_session(path) for path in world.transcripts(SERVER, stages)]


def records_of(local):
    """A member's records as an audit has them."""
    return AuditRecords(local.integers, local.labels, local.integers.astype(float), domains=local.domains)


def test_transcript_places_records_where_they_were_summed(recorded):
    """In every sum of cells each member's contribution is that of its records in the cells that the audit names."""
    world, sessions = recorded
    tried = 0
    for session in (each for each in sessions if "counts" in each.release):
        for member, local in world.records.items():
            own = assign_cells(session, records_of(local))
            sums = np.zeros((len(session.cells), session.plan.dimension), dtype=np.int64)
            inside = own.take(own.cells >= 0)
            np.add.at(sums, inside.cells, inside.integers)
            contribution = session.contributions[world.setup.roster.name(member)]
            counts = np.bincount(inside.cells, minlength=len(sums))
            assert np.array_equal(contribution["counts"], counts)
            assert np.array_equal(contribution["class_sums"], sums)
            tried += 1
    assert tried >= 4


def test_known_files_are_placed_like_the_members_records(recorded, tmp_path):
    """Of a member's file those in a cell are candidates, in the cells of the sum, and its singles are recognised."""
    world, sessions = recorded
    session, local = sessions[-1], world.records[1]
    features = np.random.default_rng(1).normal(size=(30, 4)) + 3 * np.eye(4)[local.labels]  # as `some_records` has them
    domains = np.array(["art", "photo"])[local.domains]
    for name, rows in (("known", slice(None)), ("same", slice(0, 10)), ("public", slice(28, 30))):
        np.savez(tmp_path / f"{name}.npz", features=features[rows], labels=local.labels[rows], domain=domains[rows])
    knowledge = known_of(session, str(tmp_path / "known.npz"), None)
    contribution = session.contributions[world.setup.roster.name(1)]
    counts = np.bincount(knowledge.candidates.cells, minlength=len(session.cells))
    assert np.array_equal(counts, contribution["counts"])
    finding = SMALL_CELLS.run((view_of(session, adversary_named("no_protection")),), knowledge, lambda *_: None)
    single = measured(finding, "recognised.members", "each client's own vector")
    assert single.value == (contribution["counts"] == 1).sum()
    with pytest.raises(BadInput, match=r"elsewhere/net\.pt2"):  # where the plan's backbone is kept
        known_of(session, str(tmp_path / "known.npz"), None, backbone="elsewhere/net.pt2")
    whole = targets_in(view_of(session, adversary_named("curious_server")))[-1]
    assert whole.holds(knowledge).all()  # whose they are the file does not say; the sum of all holds them
    with pytest.raises(BadInput, match=r"known\.npz are in .*same\.npz too"):
        known_of(session, str(tmp_path / "known.npz"), str(tmp_path / "same.npz"))
    both = known_of(session, str(tmp_path / "known.npz"), str(tmp_path / "public.npz"))
    assert len(both.candidates) == counts.sum() + (~both.is_member).sum()
    assert len(both.public) + (~both.is_member).sum() <= 10


@pytest.mark.parametrize(
    ("method", "parameters", "gate", "number"),
    [
        ("fedcgs", "", 0, 1),
        ("fedcgs", "", 2, 2),
        ("fedtc", "slots=8", 2, 2),
        ("fedtc", "slots=8 keep=0.7", 2, 2),
        ("fedtc", "slots=8 threshold=0.4", 2, 3),
        ("fedtc", "slots=1", 0, 1),
        ("mpft", "slots=8", 2, 2),
        ("mpft", "sampling=cluster slots=4 rounds=2", 2, 4),
    ],
)
def test_simulated_members_are_where_their_client_summed_them(method, parameters, gate, number):
    """The last sum of counts is audited; the members in it are exactly those that each client put into its cells."""
    epochs = "" if method == "fedcgs" else " epochs=1"
    settings = SimulationSettings(clients=3, method=method, parameters=parameters + epochs, class_gate=gate)
    rehearsal = rehearse(open_dataset("breast-cancer"), settings)
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    assert session.number == number
    assert knowledge.records == session.release["counts"].sum() == knowledge.is_member.sum()
    owners = np.array(knowledge.owners)
    for client in session.clients:
        own = knowledge.candidates.take(owners == client)
        counts = np.bincount(own.cells, minlength=len(session.cells))
        assert np.array_equal(counts, session.contributions[client]["counts"])
    assert (knowledge.candidates.in_cells is None) == (len(session.cells) == 2)
    assert (knowledge.public.cells >= 0).all()


def test_records_that_a_gate_leaves_out_are_no_members():
    """Where too few clients have records of a class, the gate leaves them out of the sum and out of the audit."""
    data = open_dataset("digits")
    settings = SimulationSettings(clients=4, colluders=0, partition="shards:7", class_gate=3)
    rehearsal = rehearse(data, settings)
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    empty = np.flatnonzero(session.release["counts"] == 0)
    assert len(empty)
    assert not np.isin(knowledge.candidates.labels, empty).any()
    assert not np.isin(knowledge.public.labels, empty).any()
    assert knowledge.records == session.release["counts"].sum()


def test_cells_are_named_class_by_class():
    """Golden: slots within a class; a class that is not divided has its own name."""
    named = {}
    for parameters in ("slots=2", "slots=1"):
        settings = SimulationSettings(clients=3, method="fedtc", parameters=f"{parameters} epochs=1", class_gate=2)
        named[parameters] = rehearse(open_dataset("breast-cancer"), settings).sessions[0]
    classes = named["slots=1"].plan.classes
    assert named["slots=1"].cells == classes
    assert named["slots=2"].cells == tuple(f"{name}, slot {slot}" for name in classes for slot in (0, 1))


def test_slots_are_the_public_ones():
    """A record's cell is its class and the slot that anybody computes from its integers."""
    settings = SimulationSettings(clients=3, method="fedtc", parameters="slots=8 epochs=1", class_gate=2)
    candidates = rehearse(open_dataset("breast-cancer"), settings).knowledge.candidates
    assert np.array_equal(candidates.cells, candidates.labels * 8 + slot_of(candidates.integers, 8))


@pytest.mark.parametrize("protection", ["none", "masked", "shared", "encrypted"])
def test_who_drops_out_is_in_no_sum(protection):
    """With dropouts the audited sums hold those who stay alone, under the least noise that the plan allows.

    Their records are the members', as many as the sum says; the canaries are theirs.
    """
    promise = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove"} if protection != "encrypted" else {}
    settings = SimulationSettings(clients=5, dropouts=2, colluders=0, refine=0, protection=protection, **promise)
    data = open_dataset("breast-cancer")
    rehearsal = rehearse(data, settings)
    session, knowledge = rehearsal.sessions[0], rehearsal.knowledge
    assert (len(session.clients), len(session.members)) == (5, 3)
    assert set(session.contributions) == set(session.members) == set(knowledge.held)
    assert set(knowledge.owners) - {""} == set(session.members)
    held = sum(int(counts.sum()) for counts in knowledge.held.values())
    assert knowledge.records == (None if promise else held)  # add-remove protects it
    assert knowledge.is_member.sum() == held
    assert rehearsal.sessions[1].members == session.members[:-1]
    if promise:
        own = next(each for each in session.calibration.blocks if each.block.name == "counts")
        left = session.calibration.left_of(own.sigma, 2)
        assert session.noise["counts"].sigma == pytest.approx(math.sqrt(3) * left / own.multiplier)
    else:
        assert np.array_equal(session.release["counts"], sum(knowledge.held.values()))
        planted = plant(data, settings, 12)
        assert planted.session.release["counts"].sum() == len(planted.known) + planted.canaries.included.sum()
