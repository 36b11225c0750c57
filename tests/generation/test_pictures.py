"""Pictures from slot means: what is interpolated, where the diffusion starts, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from secagg.crypto.labels import digest
from secagg.encoding import inputs_of
from secagg.errors import BadInput
from secagg.features import Latents, open_backbone
from secagg.generation import GenerationSettings, Pictures, generate, train_classifier
from secagg.generation.pictures import GRID, RELEASED, TRAINING, as_inputs, denoise, interpolate
from secagg.networks import SlotMeans, TrainedModel, program_named, train
from secagg.randomness import OperatingSystem, SeededRandomness
from secagg.unsafe_for_tests import TOKEN
from tests.worlds.diffusion import DIMENSION, SIDE, WIDTH, pictures, save_diffusion

QUICK = GenerationSettings(count=3, steps=4, guidance=1.0)


@pytest.fixture(scope="module", params=[False, True], ids=["ddim", "as Stable Diffusion 1"])
def latents(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Latents:
    """A model with random weights, under either schedule's class."""
    folder = save_diffusion(tmp_path_factory.mktemp("pictures") / "model", like_stable=request.param)
    found = open_backbone(f"diffusers:{folder}", (SIDE, SIDE, 3))
    assert isinstance(found, Latents)
    return found


def means_of(concepts: bool = True) -> SlotMeans:
    """Two classes in two domains; class 1 lacks the second domain, and has one slot."""
    rng = np.random.default_rng(0)
    cells = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 2], [1, 0, 1]])
    rows = rng.normal(size=(5, DIMENSION + 1)).astype(np.float32)
    vectors = tuple(rng.normal(size=(2, WIDTH)).astype(np.float32) for _ in range(2))
    told: Any = vectors if concepts else None
    return SlotMeans(2, ("a", "b"), False, rows, cells, np.ones(5, np.float32), told)


def test_pictures_are_of_every_class_and_domain_that_has_a_mean(latents: Latents) -> None:
    """So many of each, colour pictures of the model's size, and the same again for the same seed."""
    made = generate(latents, means_of(), QUICK)
    cells = np.column_stack([made.labels, made.domains]).tolist()
    assert sorted(map(tuple, cells)) == sorted([(0, 0), (0, 1), (1, 0)] * 3)
    assert made.pixels.shape == (9, SIDE, SIDE, 3)
    assert (made.pixels == generate(latents, means_of(), QUICK).pixels).all()
    assert (made.pixels != generate(latents, means_of(), replace(QUICK, seed=1)).pixels).any()


def test_interpolations_lie_between_slots_of_one_cell() -> None:
    """Each is γ·z + (1 − γ)·z' of two slots of its class and domain; of one slot it is that slot's mean."""
    means = means_of()
    z, labels, domains = interpolate(means, 20, np.random.default_rng(3))
    rows = means.means[:, :-1].astype(np.float64)
    first, second = rows[0], rows[1]
    for made in z[(labels == 0) & (domains == 0)]:
        gamma = (made - second) @ (first - second) / ((first - second) @ (first - second))
        assert 0 <= gamma <= 1
        np.testing.assert_allclose(made, gamma * first + (1 - gamma) * second, atol=1e-9)
    np.testing.assert_allclose(z[labels == 1], np.tile(rows[4], (20, 1)))


def test_gamma_is_normal_and_clipped() -> None:
    """Of N(0.5, 0.1²): mean and deviation of 5,000 draws; what is drawn beyond 0 or 1 is exactly that.

    False failures: below 10⁻⁸ (both bounds are six standard errors).
    """
    z, labels, domains = interpolate(means_of(), 5_000, np.random.default_rng(5))
    first, second = means_of().means[:2, :-1].astype(np.float64)
    made = z[(labels == 0) & (domains == 0)]
    gamma = (made - second) @ (first - second) / ((first - second) @ (first - second))
    assert gamma.mean() == pytest.approx(0.5, abs=0.0085)
    assert gamma.std() == pytest.approx(0.1, abs=0.006)

    class Far(np.random.Generator):
        def normal(self, *_: Any, size: Any) -> Any:  # type: ignore[override]
            return np.resize([-3.0, 5.0], size)

    z, labels, domains = interpolate(means_of(), 40, Far(np.random.PCG64(1)))
    made = z[(labels == 0) & (domains == 0)]
    assert {tuple(row) for row in made.round(9)} == {tuple(row) for row in np.stack([first, second]).round(9)}


def test_the_diffusion_starts_where_training_would(latents: Latents, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is denoised first has a mean square of 1, however short the means; as released it is the mean itself."""
    seen: list[torch.Tensor] = []
    forward = latents.unet.forward

    def watched(sample: torch.Tensor, *rest: Any, **named: Any) -> Any:
        seen.append(sample)
        return forward(sample, *rest, **named)

    monkeypatch.setattr(latents.unet, "forward", watched)
    z = 0.1 * torch.randn(400, *latents.shape, generator=torch.Generator().manual_seed(1))
    told = torch.zeros(400, 2, WIDTH)
    for settings in (QUICK, replace(QUICK, strength=0.5)):
        seen.clear()
        denoise(latents, z, told, settings, torch.Generator().manual_seed(2))
        assert float(seen[0].square().mean()) == pytest.approx(1.0, abs=0.02)
        assert len(seen) == round(settings.strength * 4)
    seen.clear()
    denoise(latents, z, told, replace(QUICK, start=RELEASED), torch.Generator().manual_seed(2))
    assert torch.equal(seen[0], z)


def test_the_schedule_leaves_some_of_the_mean(latents: Latents) -> None:
    """ᾱ_T is 0.0047: non-zero terminal SNR, which is how a mean reaches a picture."""
    assert math.sqrt(float(latents.scheduler.alphas_cumprod[-1])) == pytest.approx(0.0683, abs=1e-3)


def test_guidance_and_no_concepts(latents: Latents) -> None:
    """Guidance changes pictures; without concept vectors the network is told nothing, and guidance changes none."""
    plain, guided = (generate(latents, means_of(), replace(QUICK, guidance=each)).pixels for each in (1.0, 5.0))
    assert (plain != guided).any()
    bare = [generate(latents, means_of(concepts=False), replace(QUICK, guidance=each)).pixels for each in (1.0, 5.0)]
    assert np.abs(bare[0].astype(int) - bare[1]).max() <= 1


def test_what_does_not_fit_is_refused(latents: Latents) -> None:
    """Means of other latents, concept vectors of another width, and settings that cannot be."""
    short = replace(means_of(), means=means_of().means[:, :-1])
    with pytest.raises(BadInput, match="give the backbone of the plan"):
        generate(latents, short, QUICK)
    wide = replace(means_of(), concepts=(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)))
    with pytest.raises(BadInput, match="vectors of"):
        generate(latents, wide, QUICK)
    for given in ({"count": 0}, {"strength": 0.0}, {"start": "elsewhere"}, {"guidance": math.nan}, {"steps": 2000}):
        with pytest.raises(BadInput):
            replace(QUICK, **given)


def test_a_classifier_learns_from_pictures() -> None:
    """Of two classes that differ, it tells new pictures apart; all layers are trained, the last too."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    pixels = rng.integers(0, 60, (200, SIDE, SIDE, 3)).astype(np.uint8)
    pixels[labels == 1, : SIDE // 2] += 150
    made = Pictures(pixels[:100], labels[:100], np.zeros(100, np.int64))
    model = train_classifier(made, (SIDE, SIDE), program_named("cnn", SIDE**2, 2), OperatingSystem())
    x = inputs_of(as_inputs(pixels[100:], (SIDE, SIDE)), GRID)
    assert model.evaluate(x, labels[100:]).accuracy > 0.95


def test_a_classifier_takes_pictures_as_it_was_trained_on_them() -> None:
    """Its scores of pictures are those that the network, as it was trained, gives to the inputs of its training."""
    rng = np.random.default_rng(1)
    labels = np.arange(60) % 3
    pixels = rng.integers(0, 256, (60, SIDE, SIDE, 3)).astype(np.uint8)
    program = program_named("cnn", SIDE**2, 3)
    made = Pictures(pixels, labels, 0 * labels)
    model = train_classifier(made, (SIDE, SIDE), program, SeededRandomness(b"one", TOKEN))
    x = inputs_of(as_inputs(pixels, (SIDE, SIDE)), GRID)
    assert program.scale > 1
    start = program.start(digest("public start", b"generated"))
    scaled = (x * program.scale).astype(np.float32)
    trained = train(program, start, scaled, labels, TRAINING, SeededRandomness(b"one", TOKEN))
    expected = TrainedModel.of(program, trained).scores(scaled.astype(np.float64))
    np.testing.assert_allclose(model.scores(x), expected, rtol=1e-3, atol=1e-3)


def test_world_pictures_are_what_they_say() -> None:
    """Brighter classes, and inverted ones in the second domain."""
    made = pictures(per_cell=40, domains=2)
    bright = made["images"].mean(axis=(1, 2, 3))
    first = made["domain"] == "d0"
    for own, sign in ((first, 1), (~first, -1)):
        assert sign * (bright[own & (made["labels"] == 1)].mean() - bright[own & (made["labels"] == 0)].mean()) > 50
