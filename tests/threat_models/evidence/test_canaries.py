"""Canaries of a real federation: made by a member, put into its data by coins, and guessed from a transcript."""

import asyncio
import stat
from dataclasses import replace

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.encoding import Normalisation
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.features import open_backbone
from secagg.plan_facts.records import read_records
from tests.threat_models.recorded import read_session
from tests.worlds.federation import SimulatedFederation, run_federation
from tests.worlds.setups import make_setup
from threat_models.estimation.one_run_audit import audit_canaries
from threat_models.evidence.canaries import CANARY_FILE, DATA_FILE, canaries_of, plant, prepare
from threat_models.session import AuditRecords

GRIDS = [Normalisation.NONE, Normalisation.UNIT, Normalisation.CENTRED_UNIT]


def plan_of(normalise=Normalisation.CENTRED_UNIT, **choices):
    """A plan for 64 features, without noise."""
    radius = 10.0 if normalise is Normalisation.NONE else None
    chosen = {
        "epsilon": float("inf"),
        "delta": None,
        "adjacency": None,
        "max_records": 128,
        "radius": radius,
        **choices,
    }
    return make_setup(4, dimension=64, normalise=normalise, **chosen)


def own_data(path, count=40, dimension=64, seed=1):
    """A member's file: features that vary in the first half of the dimensions only."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    features = generator.normal(size=(count, dimension)) * (np.arange(dimension) < dimension / 2)
    features[:, :3] += 3 * np.eye(3)[labels]
    np.savez(path, features=features / np.linalg.norm(features, axis=1, keepdims=True), labels=labels)
    return str(path)


@pytest.mark.parametrize("normalisation", GRIDS)
def test_prepared_data_hold_the_canaries_that_the_coins_put_in(tmp_path, normalisation):
    """The member's data are its own, then the included canaries; the canary file holds all, with the coins."""
    plan = plan_of(normalisation).plan
    prepare(plan, own_data(tmp_path / "mine.npz"), 20, None, tmp_path)
    canaries = canaries_of(plan, tmp_path / CANARY_FILE)
    included = int(canaries.included.sum())
    with np.load(tmp_path / DATA_FILE) as data, np.load(tmp_path / CANARY_FILE) as file:
        assert len(data["labels"]) == 40 + included
        assert np.array_equal(data["features"][40:], file["features"][file["included"]])
        assert np.array_equal(canaries.included, file["included"])
    assert len(canaries) == 20
    lengths = np.linalg.norm(canaries.integers, axis=1)
    assert lengths.min() > 0.99 * plan.levels
    assert lengths.max() <= plan.levels
    products = canaries.integers @ canaries.integers.T / plan.levels**2
    assert np.abs(products - np.diag(np.diag(products))).max() < 1e-3
    for name in (CANARY_FILE, DATA_FILE):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_coins_differ_from_file_to_file(tmp_path):
    """They come from the operating system: two files of 60 coins are alike once in 2⁶⁰ runs."""
    plan, data = plan_of().plan, own_data(tmp_path / "mine.npz")
    for name in "ab":
        prepare(plan, data, 60, None, tmp_path / name)
    one, other = (canaries_of(plan, tmp_path / name / CANARY_FILE).included for name in "ab")
    assert (one != other).any()


def test_canaries_of_a_real_session_are_found(tmp_path):
    """From the server's transcript, knowing one member's own records, all canaries of an exact masked sum are told."""
    exact = {"epsilon": float("inf"), "delta": None, "adjacency": None}
    grid = {"normalise": Normalisation.CENTRED_UNIT, "max_records": 128}
    world = SimulatedFederation.of(tmp_path, refine=0, dimension=64, **exact, **grid)
    setup = world.setup
    members = {}
    for member in setup.roster.clients:
        mine = own_data(tmp_path / f"{member}.npz", seed=member)
        if member == 1:
            prepare(setup.plan, mine, 24, None, tmp_path)
            known = read_records(setup.plan, mine)
            mine = str(tmp_path / DATA_FILE)
        members[member] = read_records(setup.plan, mine)
    world = replace(world, records=members)
    stages = asyncio.run(run_federation(world)).stages
    session = read_session(world.transcripts(0, stages)[0])
    canaries = canaries_of(session.plan, tmp_path / CANARY_FILE)
    bound = audit_canaries(session, canaries, AuditRecords(known.integers, known.labels, np.zeros((40, 0))))
    assert (bound.right, bound.guesses) == (24, 24)
    assert bound.lower == bound.largest > 2
    assert "There is no claim to disprove" in bound.sentence


def test_spare_records_serve_where_features_are_not_taken_as_they_are(tmp_path):
    """Canaries of another backbone are records of a file; without one they are refused."""
    generator = np.random.default_rng(3)
    pixels = bytes.fromhex(open_backbone("pixels", (8, 8)).digest)
    images = {"data_kind": "images", "backbone": "pixels", "backbone_digest": pixels, "input_shape": (8, 8)}
    plan = replace(plan_of().plan, **images)
    for name, count in (("mine", 12), ("spare", 9)):
        images = generator.integers(0, 255, (count, 8, 8)).astype(np.uint8)
        np.savez(tmp_path / f"{name}.npz", images=images, labels=np.arange(count) % 3)
    with pytest.raises(BadInput, match="records that nobody has"):
        prepare(plan, str(tmp_path / "mine.npz"), 9, None, tmp_path)
    with pytest.raises(BadInput, match="holds 9 records, not 10"):
        prepare(plan, str(tmp_path / "mine.npz"), 10, str(tmp_path / "spare.npz"), tmp_path)
    prepare(plan, str(tmp_path / "mine.npz"), 9, str(tmp_path / "spare.npz"), tmp_path)
    included = int(canaries_of(plan, tmp_path / CANARY_FILE).included.sum())
    with np.load(tmp_path / DATA_FILE) as data, np.load(tmp_path / "spare.npz") as spare:
        assert data["images"].dtype == np.uint8
        assert data["images"].shape == (12 + included, 8, 8)
        rows = {image.tobytes() for image in spare["images"]}
        assert {image.tobytes() for image in data["images"][12:]} <= rows


def test_what_cannot_be_prepared_is_refused(tmp_path):
    """A second throw of coins, more canaries than directions or than the plan has room for, and tables."""
    plan, data = plan_of().plan, own_data(tmp_path / "mine.npz")
    prepare(plan, data, 2, None, tmp_path / "once")
    with pytest.raises(BadInput, match="already"):
        prepare(plan, data, 2, None, tmp_path / "once")
    with pytest.raises(BadInput, match="orthogonal"):
        prepare(plan, data, 65, None, tmp_path / "many")
    with pytest.raises(BadInput, match="exceed the plan's 40"):
        prepare(replace(plan, max_records=40), data, 60, None, tmp_path / "room")  # no coin says in: once in 2⁶⁰
    with pytest.raises(BadInput, match="takes tables"):
        prepare(replace(plan, data_kind="table", schema="{}"), data, 2, None, tmp_path / "table")
    assert not (tmp_path / "many" / CANARY_FILE).exists()


def test_file_without_coins_is_no_canary_file(tmp_path):
    """The coins must be there, and be coins."""
    plan = plan_of().plan
    with pytest.raises(BadInput, match="`included`"):
        canaries_of(plan, own_data(tmp_path / "mine.npz"))
    with np.load(tmp_path / "mine.npz") as mine:
        np.savez(tmp_path / "odd.npz", **mine, included=np.full(40, 2))
    with pytest.raises(BadInput, match="`included`"):
        canaries_of(plan, tmp_path / "odd.npz")


def test_simulated_canaries_need_room(tmp_path):
    """A plan with a fixed number of records per client refuses canaries beyond it."""
    with pytest.raises(BadInput, match="max-records"):
        plant(open_dataset("digits"), SimulationSettings(max_records=290), 60)
