"""FedBiP: what members send of their pictures' latents and concepts, under which promises, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from methods import method_named
from methods.baselines.baseline import ClientData
from methods.round import Examples, Local, OpenedTotal
from methods.slots.fedbip import OF_CLASS, OF_DOMAIN, FedBiP, LatentRound
from methods.slots.slots import slot_of
from secagg.data import Dataset, open_dataset
from secagg.encoding import Grid, Normalisation, quantise
from secagg.errors import BadInput, MalformedMessage, SecaggError
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features import FeatureMap, latents_of, open_backbone
from secagg.generation import ConceptTraining, train_concepts
from secagg.heads import to_safetensors
from secagg.networks import SlotMeans
from secagg.networks.slot_means import read_slot_means
from secagg.privacy.gaussian import epsilon_of
from tests.methods.training import seeded
from tests.reproduction import fedbip_published
from tests.reproduction.fedbip_published import FedBiPPublished
from tests.worlds.diffusion import DIMENSION, SIDE, WIDTH, pictures, save_diffusion

PUBLISHED = f"{fedbip_published.__file__}:FedBiPPublished"
PROTECTIONS = ("masked", "shared", "encrypted")
RECORD = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove"}
CLIENTS = 6
CONCEPTS = f"slots=1 domains=d0+d1 concepts=1 width={WIDTH} epochs=1"
GRID = Grid(1.0, 1 << 16, normalisation=Normalisation.UNIT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and pictures of two classes in two domains."""
    made = tmp_path_factory.mktemp("fedbip")
    save_diffusion(made / "tiny")
    np.savez(made / "two.npz", **pictures(per_cell=36, domains=2))
    return made


@pytest.fixture(scope="module")
def data(folder: Path) -> Dataset:
    """The pictures."""
    return open_dataset(str(folder / "two.npz"))


@pytest.fixture(scope="module")
def feature_map(folder: Path) -> FeatureMap:
    """The model's autoencoder."""
    return FeatureMap(open_backbone(f"diffusers:{folder / 'tiny'}", (SIDE, SIDE, 3)))


def settings_of(folder: Path, parameters: str, **given: Any) -> SimulationSettings:
    """Six members with records of both domains, behind a gate of two honest ones."""
    chosen = {"clients": CLIENTS, "class_gate": 4, "seed": 1, **given}
    return SimulationSettings(
        method="fedbip", backbone=f"diffusers:{folder / 'tiny'}", parameters=parameters, dropouts=0, **chosen
    )


def local(feature_map: FeatureMap, data: Dataset, rows: slice = slice(None)) -> Local:
    """What a member with these pictures has."""
    records = quantise(feature_map.extract(data.train.inputs[rows]), GRID)
    domains = (data.train.columns["domain"][rows] == "d1").astype(np.int64)
    examples = Examples(records, data.train.labels[rows], domains)
    return Local(examples, 2, GRID, randomness=seeded(1), feature_map=feature_map)


@pytest.mark.parametrize(
    ("parameters", "given"),
    [
        ("slots=2 domains=d0+d1", {}),
        ("slots=1 domains=d0+d1", RECORD),
        ("slots=1", {**RECORD, "unit": "client"}),
        (CONCEPTS, {}),
        (CONCEPTS, RECORD),
        (CONCEPTS, {**RECORD, "unit": "client"}),
    ],
)
def test_every_protection_opens_the_same_sums(
    folder: Path, data: Dataset, parameters: str, given: Mapping[str, Any]
) -> None:
    """Exact, at record level and at client level: the artifact has the same bits where members draw the same."""
    ended = set()
    for protection in PROTECTIONS:
        chosen = {**given, "protection": protection, "noise_seed": 3, "class_gate": 0 if given else 4}
        run = simulate_dataset(data, settings_of(folder, parameters, **chosen))
        said = run.to_json()
        ended.add((said["aggregate_sha256"], said["head_sha256"]))
        assert (said["epsilon"] == "inf") == (not given)
    assert len(ended) == 1


def test_opened_means_are_those_of_latents(folder: Path, data: Dataset, feature_map: FeatureMap) -> None:
    """Exact sums: a slot's mean is that of its pictures' latents, to the grid, and concepts come beside it."""
    run = simulate_dataset(data, settings_of(folder, CONCEPTS))
    means = run.head
    assert isinstance(means, SlotMeans)
    features, labels = feature_map.extract(data.train.inputs), data.train.labels
    domains = (data.train.columns["domain"] == "d1").astype(np.int64)
    assert len(means.cells) == 4
    for (label, domain, _), mean, count in zip(means.cells, means.means, means.counts, strict=True):
        own = features[(labels == label) & (domains == domain)]
        assert count == len(own)
        np.testing.assert_allclose(mean, own.mean(axis=0), atol=1e-3)
    assert means.concepts is not None
    assert [each.shape for each in means.concepts] == [(2, WIDTH), (2, WIDTH)]
    assert all(np.abs(each).max() > 0.01 for each in means.concepts)


def test_normalised_features_keep_the_latent(feature_map: FeatureMap, data: Dataset) -> None:
    """A plan with noise brings records to one length: the latent is there again, brightness and all."""
    features = feature_map.extract(data.train.inputs)
    again = latents_of(quantise(features, GRID) / GRID.unit(DIMENSION + 1))
    np.testing.assert_allclose(again, features[:, :-1], atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), math.sqrt(DIMENSION))


def test_a_slot_is_the_record_s_own(feature_map: FeatureMap, data: Dataset) -> None:
    """No plan parameter but their number decides in which slot a picture is, whatever else a member has."""
    everything, half = local(feature_map, data), local(feature_map, data, slice(0, 30))
    method = FedBiP(slots=5, domains="d0+d1")
    assert (method.cell_of(everything.examples)[:30] == method.cell_of(half.examples)).all()
    assert (method.cell_of(half.examples) % 5 == slot_of(half.examples.records, 5)).all()


def test_slots_of_few_members_are_left_out(folder: Path, data: Dataset) -> None:
    """The census counts each slot of each domain by itself: one that too few hold has no mean."""
    run = simulate_dataset(data, settings_of(folder, "slots=4 domains=d0+d1", class_gate=CLIENTS - 2))
    assert run.federated is not None
    left = run.federated.classes_left_out
    assert left
    assert all("slot" in name and " in d" in name for name in left)
    assert isinstance(run.head, SlotMeans)
    assert len(run.head.cells) + len(left) == 16


def test_a_domain_of_one_member_is_left_out(folder: Path, data: Dataset) -> None:
    """With a member for each domain no cell passes, and nothing is opened but the census."""
    alone = {"partition": "column:domain", "clients": 2, "class_gate": 2}
    with pytest.raises(SecaggError, match="0 of 2 classes"):
        simulate_dataset(data, settings_of(folder, "domains=d0+d1", **alone))


def test_domains_need_a_gate_or_noise(folder: Path, data: Dataset) -> None:
    """An exact plan that tells domains apart is refused without a gate."""
    with pytest.raises(BadInput, match="without a class gate"):
        simulate_dataset(data, settings_of(folder, "domains=d0+d1", class_gate=0))


def test_what_a_member_sends_of_concepts_is_inside_the_lengths(feature_map: FeatureMap, data: Dataset) -> None:
    """Whatever it trains: both blocks are no longer than what the sensitivity states, and rows are marked as held."""
    method = FedBiP(domains="d0+d1", concepts=1, width=WIDTH, epochs=2, rate=100.0, clip=0.5)
    spec = method.sums(DIMENSION + 1, 2, GRID.levels)[0]
    blocks = method.contribute(local(feature_map, data, slice(0, 20))).blocks
    lengths = {each.name: each.l2 for each in spec.sensitivities[0].blocks}
    for name, block in blocks.items():
        assert (block.astype(object) ** 2).sum() <= lengths[name] ** 2
    moved = blocks[OF_CLASS][:, :-1]
    assert (moved.astype(object) ** 2).sum() > 0.9 * GRID.levels**2  # it was cut
    assert (blocks[OF_DOMAIN][:, -1] > 0).all() == (set(data.train.columns["domain"][:20]) == {"d0", "d1"})


def test_concepts_lower_the_loss_that_they_are_trained_by(feature_map: FeatureMap, data: Dataset) -> None:
    """Against the frozen network, on the same noise and times, trained vectors do better than zeros."""
    import torch

    from secagg.generation.concepts import noise_loss, tell

    own, latents = local(feature_map, data), feature_map.latents
    z = feature_map.extract(data.train.inputs)[:, :-1]
    start = np.zeros((2, WIDTH)), np.zeros((2, WIDTH))
    records = z, own.examples.labels, own.examples.domains
    trained = train_concepts(latents, start, records, ConceptTraining(8, 0.1, 16), seeded(7))

    def loss(vectors: tuple[np.ndarray, np.ndarray]) -> float:
        pairs = zip(vectors, records[1:], strict=True)
        told = tell(latents, *(torch.tensor(each[rows], dtype=torch.float32) for each, rows in pairs))
        shaped = torch.tensor(z, dtype=torch.float32).reshape(-1, *latents.shape)
        with torch.inference_mode():
            random = (torch.Generator().manual_seed(number) for number in range(20))
            found = [noise_loss(latents.unet, latents.scheduler, shaped, told, each) for each in random]
        return float(np.mean(found))

    assert loss(trained) < loss(start)


def test_training_that_leaves_the_numbers_sends_zeros(folder: Path, data: Dataset) -> None:
    """A network that gives no number: the movement is zeros, the member is there."""
    broken = FeatureMap(open_backbone(f"diffusers:{folder / 'tiny'}", (SIDE, SIDE, 3)))
    broken.latents.unet.conv_out.bias.fill_(math.nan)
    method = FedBiP(domains="d0+d1", concepts=1, width=WIDTH, epochs=1)
    blocks = method.contribute(local(broken, data)).blocks
    assert not blocks[OF_CLASS][:, :-1].any()
    assert blocks[OF_CLASS][:, -1].all()


def test_a_member_without_records_sends_zeros(feature_map: FeatureMap, data: Dataset) -> None:
    """No records, no class: all of both contributions is zero."""
    none = local(feature_map, data, slice(0, 0))
    method = FedBiP(concepts=1, width=WIDTH, epochs=1)
    for blocks in (method.contribute(none).blocks, method.slot_blocks(none)):
        assert not any(block.any() for block in blocks.values())


def test_the_round_is_told_exactly(feature_map: FeatureMap, data: Dataset) -> None:
    """Members read the concept vectors of the broadcast, and find others than the sum's."""
    method = FedBiP(domains="d0+d1", concepts=1, width=WIDTH, epochs=1)
    own = local(feature_map, data)
    following = method.finalize(OpenedTotal(method.contribute(own).blocks, GRID)).next_round
    assert isinstance(following, LatentRound)
    told = method.decode_broadcast(following.broadcast(), GRID)
    following.require_equal(told)
    other = following.concepts.copy()
    other[-1, -1] += 1
    for concepts in (other, following.concepts[:-1]):
        with pytest.raises(SecaggError, match="do not follow"):
            following.require_equal(LatentRound(method, concepts))
    with pytest.raises(MalformedMessage):
        FedBiP(concepts=1, width=WIDTH + 1).decode_broadcast(following.broadcast(), GRID)


def test_an_artifact_is_read_back(folder: Path, data: Dataset) -> None:
    """Its file gives the same digest; one with a tensor less, or of another kind, is refused."""
    means = simulate_dataset(data, settings_of(folder, CONCEPTS)).head
    assert isinstance(means, SlotMeans)
    again, _ = read_slot_means(to_safetensors(means, {}))
    assert again.digest == means.digest
    assert again.is_close_to(means)
    broken = SlotMeans(2, (), False, means.means, means.cells * (1, 0, 1), means.counts)
    content = to_safetensors(broken, {"kind": "slot means"})
    assert read_slot_means(content)[0].digest == broken.digest != means.digest
    with pytest.raises(BadInput, match="no means"):
        read_slot_means(content.replace(b"slot means", b"slot beans"))


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"slots": 0}, "slots"),
        ({"domains": "a+a"}, "domains"),
        ({"concepts": 2}, "concepts"),
        ({"clip": math.nan}, "clip"),
        ({"width": 0}, "width is 0; give 1 to 8192"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, Any], reason: str) -> None:
    """Each with its reason."""
    with pytest.raises(BadInput, match=reason):
        method_named("fedbip", parameters)


def test_vectors_that_the_network_does_not_take_are_refused(feature_map: FeatureMap, data: Dataset) -> None:
    """Of another width; and members' own noise, for which nothing is trained by DP-SGD."""
    method = FedBiP(concepts=1, width=WIDTH + 1, epochs=1)
    with pytest.raises(BadInput, match=f"vectors of {WIDTH} numbers"):
        method.contribute(local(feature_map, data))


def test_members_own_noise_is_refused(folder: Path, data: Dataset) -> None:
    """No training with noise is declared, so that no promise could rest on it."""
    with pytest.raises(BadInput, match="noise"):
        simulate_dataset(data, settings_of(folder, CONCEPTS, **RECORD, noise="member", class_gate=0))


def test_other_backbones_cannot_train_concepts(data: Dataset) -> None:
    """Pixels have no network: refused with what to give instead."""
    settings = SimulationSettings(
        method="fedbip", backbone="pixels", clients=CLIENTS, parameters="concepts=1 epochs=1 slots=1", class_gate=2,
        dropouts=0,
    )  # fmt: skip
    with pytest.raises(BadInput, match="no latents of a diffusion model"):
        simulate_dataset(data, settings)


def test_centred_records_are_refused(folder: Path, data: Dataset) -> None:
    """A latent's own mean is brightness: a plan that takes it away is no plan for this."""
    with pytest.raises(BadInput, match="own mean"):
        simulate_dataset(data, settings_of(folder, "slots=1", normalise="centred-unit"))


def moved_by(form: FedBiPPublished, z: np.ndarray, other: np.ndarray, labels: np.ndarray) -> float:
    """How far, in σ, the expected release of one member moves from z to `other` where the permutation is the same."""
    sent = [form.publish(each, labels, np.random.default_rng(1)).means.astype(np.float64) for each in (z, other)]
    return float(np.linalg.norm(sent[0] - sent[1])) / math.sqrt(1 - form.kept**2)


def test_the_published_form_amounts_to_what_theory_says() -> None:
    """R = 128, one record for another: μ = 17.5 at γ = 1, 12.4 at γ = ½ with a partner, and 17.5 alone in a class."""
    for mixed, alone, mu in ((1.0, False, 17.5), (0.5, False, 12.4), (0.5, True, 17.5)):
        told = FedBiPPublished(mixed=mixed).epsilon(128.0, alone=alone)
        assert told == pytest.approx(epsilon_of(mu, 1e-5), rel=0.02)


@pytest.mark.parametrize("mixed", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("held", [(1,), (2,), (3, 1), (5, 4)])
def test_no_record_moves_the_release_further_than_its_epsilon_says(mixed: float, held: tuple[int, ...]) -> None:
    """The longest move of opposite records, in classes of these sizes, has the stated ε: reached, and not passed."""
    form, labels = FedBiPPublished(mixed=mixed), np.repeat(np.arange(len(held)), held)
    z = np.random.default_rng(0).normal(size=(len(labels), 9))
    z *= 3 / np.linalg.norm(z, axis=1, keepdims=True)
    moves = []
    for row in range(len(z)):
        other = z.copy()
        other[row] *= -1
        moves.append(moved_by(form, z, other, labels))
    told = form.epsilon(3.0, alone=1 in held)
    assert epsilon_of(max(moves), 1e-5) == pytest.approx(told, abs=2e-3)
    assert told <= form.epsilon(3.0)


def test_the_published_epsilon_is_of_the_public_length() -> None:
    """Features that are not of length √d have none: neither shorter ones, nor normalised, nor longer."""
    x = np.random.default_rng(0).normal(size=(40, 65))
    x *= 8 / np.linalg.norm(x, axis=1, keepdims=True)
    labels = np.arange(40) % 2
    told = FedBiPPublished().fit([ClientData.of(x, labels)], 2, 0).note
    assert "ε = 4.8" in told
    assert "another of its class" in told
    for scale in (1 / 8, 0.99, 2.0):
        scaled = np.where(np.arange(40)[:, None] == 3, scale * x, x)
        with pytest.raises(BadInput, match="takes latents"):
            FedBiPPublished().fit([ClientData.of(scaled, labels)], 2, 0)


def test_published_latents_are_one_for_each_picture(folder: Path, data: Dataset) -> None:
    """Each mixed with another of its class, noised by the schedule's last step; under no protection alone."""
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(400, 500)), np.arange(400) % 2
    sent = FedBiPPublished(kept=0.8).publish(z, labels, rng)
    assert len(sent.means) == 400
    own = (sent.means * z).mean(axis=1)
    assert own.mean() == pytest.approx(0.4, abs=0.01)
    assert sent.means.var() == pytest.approx(0.8**2 / 2 + 1 - 0.8**2, abs=0.01)
    settings = settings_of(folder, "", class_gate=0)
    with pytest.raises(BadInput, match="protection none"):
        simulate_dataset(data, replace(settings, method=PUBLISHED))
    run = simulate_dataset(data, replace(settings, method=PUBLISHED, protection="none"))
    assert any("amounts to ε" in note for note in run.notes)
    for other in ({"normalise": "unit"}, {"backbone": "random-features:9"}):
        with pytest.raises(BadInput, match="takes latents"):
            simulate_dataset(data, replace(settings, method=PUBLISHED, protection="none", **other))
