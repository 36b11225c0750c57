"""Images out of features: reading pixels, decoder, descent, deep image prior, and the attack on whole views."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from secagg.encoding import Normalisation
from secagg.errors import BadInput
from tests.threat_models.attacks.audited import measured
from tests.threat_models.attacks.reconstruction.test_unmixing import federation
from tests.threat_models.attacks.sums import plan_of, records_of, seen_by, session_of
from tests.threat_models.backbones import ResNet18, SqueezeNet
from threat_models.attacks.reconstruction.inversion import (
    CLASS,
    INVERSION,
    MARGIN,
    NEAREST,
    RANDOM,
    RAW,
    choose_inverter,
    deep_image_prior,
    descend,
    known_levels,
    learn_decoder,
    score,
)
from threat_models.findings import Verdict, covers
from threat_models.session import Knowledge


def network():
    """Images (n, 1, 8, 8) to 96 features ≥ 0, of fixed random weights."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator) / 8
    bias = torch.randn(96, generator=generator) / 5
    return lambda images: torch.relu(images.flatten(1) @ weight.T + bias)


def through_a_network(knowledge, **kind):
    """A plan whose features are those of `network`, and the same knowledge under it."""
    backbone = network()

    def again(records):
        pixels = torch.from_numpy(records.images[:, None, :, :, 0]).float() / 255
        return records_of(plan, backbone(pixels).double().numpy(), records.labels, records.images)

    plan = replace(plan_of(96, 10, radius=8.0 if not kind else 1.0, **kind), backbone="a network")
    return plan, Knowledge(again(knowledge.candidates), knowledge.owners, again(knowledge.public), backbone)


def attacked(adversary, session, knowledge):
    """What the attack finds, and that it told its progress to the end."""
    steps = []
    finding = INVERSION.run((seen_by(adversary, session),), knowledge, lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1]
    return finding


def test_pixels_are_read_out_of_a_small_client():
    """Features that are pixels come back as the images, of single records too, and the picture shows them in order."""
    session, knowledge = federation([20, 400])
    finding = attacked("curious_server", session, knowledge)
    assert finding.verdict is Verdict.SUCCEEDS
    assert all(control.holds for control in finding.controls)
    assert measured(finding, "psnr", "N, A and B of its client").low > 30
    assert measured(finding, "reidentified", "N, A and B").value == 1
    (picture,) = finding.pictures
    assert picture.columns[:3] == ("original", RAW, "N, A and B of its client")
    assert np.abs(picture.rows[0][0].astype(int) - picture.rows[0][1]).max() <= 1
    assert {image.shape for row in picture.rows for image in row} == {(8, 8, 1)}


def test_masked_sum_of_many_records_shows_no_image():
    """Negative: the class means of a large sum re-identify nobody, though the control on raw features does."""
    finding = attacked("curious_server", *federation([300, 300], protection="masked"))
    assert finding.verdict is Verdict.FAILS
    rate = measured(finding, "reidentified", "class mean of sum of all")
    assert rate.low < max(NEAREST, rate.baseline)
    assert finding.leading.metric.id == "fewer_nearer"  # what decided
    assert finding.leading.high <= MARGIN
    assert measured(finding, "reidentified", f"{RAW}").value == 1


@pytest.mark.parametrize(
    "kind",
    [pytest.param({}, marks=pytest.mark.long), {"normalisation": Normalisation.CENTRED_UNIT}],
    ids=["none", "centred-unit"],
)
def test_images_come_back_through_a_network(kind):
    """With the backbone and public images a client's features show its images, whatever the normalisation."""
    _, knowledge = federation([20, 20])
    plan, knowledge = through_a_network(knowledge, **kind)
    parts = [knowledge.candidates.take(np.array(knowledge.owners) == f"client-{index}") for index in range(2)]
    finding = attacked("curious_server", session_of(plan, parts), knowledge)
    assert finding.verdict is Verdict.SUCCEEDS
    assert measured(finding, "reidentified", "N, A and B of its client").low > 0.4


def test_aggregate_says_no_more_than_the_class():
    """The key claim: through a network too, raw features show the images, and means of a large sum only their class."""
    _, knowledge = federation([300, 300])
    plan, knowledge = through_a_network(knowledge)
    parts = [knowledge.candidates.take(np.array(knowledge.owners) == f"client-{index}") for index in range(2)]
    finding = attacked("curious_server", session_of(replace(plan, protection="masked"), parts), knowledge)
    assert finding.verdict is Verdict.FAILS
    assert all(control.holds for control in finding.controls)
    raw, aggregate = (measured(finding, "rank.mean", name) for name in (RAW, "class mean of sum of all"))
    assert raw.high < aggregate.low
    assert measured(finding, "rank.mean", CLASS).low < aggregate.value


def test_random_features_say_nothing_of_the_record():
    """What the negative control inverts is a mixture of public records, or a random direction, of no chosen record."""
    session, knowledge = federation([20, 400])
    view, rows = seen_by("curious_server", session), np.arange(8)
    for known in (knowledge, replace(knowledge, public=None)):
        levels = known_levels(view, known, rows)
        assert levels[RANDOM].shape == levels[RAW].shape
        again = known_levels(view, known, rows + 8)
        assert (CLASS in levels) == (known.public is not None)
        if known.public is not None:
            assert np.array_equal(levels[RANDOM], again[RANDOM])


def test_descent_finds_the_image():
    """From grey, descent under total variation brings the feature nearer, and the image too."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    wanted = knowledge.candidates.integers[:4] / plan.levels
    images = knowledge.candidates.images[:4] / 255
    start = np.full(images.shape, 0.5)
    made = descend(wanted, start, knowledge.backbone, plan.grid, variation=0.01)
    assert np.mean((made - images) ** 2) < np.mean((start - images) ** 2) / 4
    assert made.min() >= 0
    assert made.max() <= 1


def test_more_variation_is_smoother():
    """The weight of total variation trades the feature for smoothness; weight 0 is the plain attack."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    wanted = knowledge.candidates.integers[:4] / plan.levels
    start = np.full((4, 8, 8, 1), 0.5)
    steps = [
        np.abs(np.diff(descend(wanted, start, knowledge.backbone, plan.grid, variation=weight), axis=1)).mean()
        for weight in (0.0, 1.0, 10.0)
    ]
    assert steps[0] > steps[1] > steps[2]


def test_decoder_learns_from_public_images():
    """A decoder learned on some images maps features of others nearer to their images than the mean image is."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    public, others = knowledge.public, knowledge.candidates
    decode = learn_decoder(public.integers / plan.levels, public.images / 255, steps=200)
    made, images = decode(others.integers / plan.levels), others.images / 255
    assert made.shape == images.shape
    assert np.mean((made - images) ** 2) < 0.7 * np.mean((images - public.images.mean(axis=0) / 255) ** 2)


def test_decoder_on_noise_learns_nothing():
    """Negative: of features that have nothing to do with the images it makes no better guess than the mean image."""
    _, knowledge = through_a_network(federation([20, 20])[1])
    public, others = knowledge.public, knowledge.candidates
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((len(public), 96))
    decode = learn_decoder(noise, public.images / 255, steps=200)
    made = decode(generator.standard_normal((len(others), 96)))
    images = others.images / 255
    assert np.mean((made - images) ** 2) > 0.9 * np.mean((images - public.images.mean(axis=0) / 255) ** 2)
    with pytest.raises(BadInput, match="to learn from"):
        learn_decoder(noise[:1], public.images[:1] / 255)


def test_deep_image_prior_comes_near():
    """An untrained network's output is brought to the feature; the same seed gives the same image."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    wanted, images = knowledge.candidates.integers[:1] / plan.levels, knowledge.candidates.images[:1] / 255
    made = deep_image_prior(wanted, (8, 8, 1), knowledge.backbone, plan.grid, steps=80)
    assert np.mean((made - images) ** 2) < np.mean((0.5 - images) ** 2) / 4
    assert np.allclose(made, deep_image_prior(wanted, (8, 8, 1), knowledge.backbone, plan.grid, steps=80), atol=1e-4)


def test_equal_features_have_equal_images():
    """Members of one class share its mean: its image is made once, whichever other features are asked for with it."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    wanted = knowledge.candidates.integers[[0, 1, 0]] / plan.levels
    made = deep_image_prior(wanted, (8, 8, 1), knowledge.backbone, plan.grid, steps=3, restarts=1)
    assert np.array_equal(made[0], made[2])
    assert not np.allclose(made[0], made[1])


def test_random_state_is_left_alone():
    """Attacks neither use nor move torch's global generator."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    before = torch.random.get_rng_state()
    wanted = knowledge.public.integers / plan.levels
    learn_decoder(wanted, knowledge.public.images / 255, steps=2)
    deep_image_prior(wanted[:1], (8, 8, 1), knowledge.backbone, plan.grid, steps=2)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("method", ["variation", "decoder", "deep image prior"])
def test_every_method_can_be_asked_for(method):
    """Each method makes images of the right shape from the same knowledge."""
    plan, knowledge = through_a_network(federation([20, 20])[1])
    invert = choose_inverter(knowledge, plan, method=method, steps=3, learning=3)
    assert invert(knowledge.candidates.integers[:2] / plan.levels).shape == (2, 8, 8, 1)


def test_without_a_way_back_it_does_not_apply():
    """Neither backbone nor public images, no images at all, or nobody known: not applicable, in one sentence why."""
    session, knowledge = federation([20, 20])
    through, nothing = through_a_network(knowledge)
    parts = [nothing.candidates.take(np.array(nothing.owners) == f"client-{index}") for index in range(2)]
    cases = {
        "neither a backbone": (session_of(through, parts), Knowledge(nothing.candidates, nothing.owners)),
        "no images": (session, Knowledge(replace(knowledge.candidates, images=None), knowledge.owners)),
        "no class sums of members": (session, replace(knowledge, owners=("",) * len(knowledge.owners))),
    }
    for why, (seen, known) in cases.items():
        finding = INVERSION.run((seen_by("curious_server", seen),), known, lambda *_: None)
        assert finding.verdict is Verdict.NOT_APPLICABLE
        assert why in finding.sentence
        assert finding.sentence.startswith("The ")


def test_a_blind_attack_says_so():
    """Where features say nothing of the image, the control fails: inconclusive, with the figures, and no all-clear."""
    _, knowledge = federation([300, 300])
    plan, knowledge = through_a_network(knowledge)
    candidates, public = (
        records_of(plan, np.tile(np.eye(1, 96), (len(each), 1)), each.labels, each.images)
        for each in (knowledge.candidates, knowledge.public)
    )
    knowledge = Knowledge(candidates, knowledge.owners, public)
    parts = [candidates.take(np.array(knowledge.owners) == f"client-{index}") for index in range(2)]
    finding = attacked("curious_server", session_of(replace(plan, protection="masked"), parts), knowledge)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "Not even the raw features show the images" in finding.sentence
    assert "at most 1 of 96 features" in finding.sentence


def test_scores_by_hand():
    """The true image itself has rank 0; strangers' images are nearer than it to themselves."""
    _, knowledge = federation([20, 20])
    rows = np.arange(20)
    images = knowledge.candidates.images / 255
    perfect = score(images[rows], knowledge, rows)
    assert (set(perfect.nearer), set(perfect.psnr), perfect.ssim) == ({0.0}, {60.0}, ())
    assert set(perfect.nearer_of_all) == {0.0}
    assert perfect.tells_more_than(None)
    assert not perfect.tells_more_than(perfect)
    mean = np.broadcast_to(images[~knowledge.is_member].mean(axis=0), (20, 8, 8, 1))
    assert not score(mean, knowledge, rows).tells_more_than(None)
    assert perfect.tells_more_than(score(mean, knowledge, rows))


def test_ranks_among_all_candidates_by_hand():
    """To an image's negative nearly all others are nearer; other images, shuffled, have half nearer (fixed seed)."""
    _, knowledge = federation([20, 400])
    images = knowledge.candidates.images / 255
    rows = np.arange(300)
    shuffled = np.random.default_rng(0).permutation(300)
    scores = score(images[shuffled], knowledge, rows)
    assert abs(np.mean(scores.nearer_of_all) - 0.5) < 0.15
    worst = score((images[:1] < 0.5).astype(float), knowledge, rows[:1])
    assert worst.nearer_of_all[0] > 0.9
    mean, median = (each for each in scores.measures("x", None) if covers("rank", each.metric))
    assert (mean.baseline, median.baseline) == (0.5, 0.5)
    assert mean.low < mean.value < mean.high


def test_stored_features_are_the_networks(data_folder):
    """The test's ResNet-18 gives the stored features of CIFAR-10, to their quantisation of 8 bits."""
    with (
        np.load(data_folder / "cifar10_images_3k.npz") as images,
        np.load(data_folder / "cifar10_resnet18_layer3_features.npz") as stored,
    ):
        inputs = torch.from_numpy(images["train_images"][:32]).permute(0, 3, 1, 2).float() / 255
        wanted = stored["train_features"][images["train_index"][:32]] * stored["scale"]
        largest = stored["scale"].max()
    features = ResNet18(data_folder / "backbones")(inputs).numpy()
    assert np.abs(np.minimum(features, wanted.max()) - wanted).mean() < largest
    assert SqueezeNet(data_folder / "backbones")(inputs).shape == (32, 512)
