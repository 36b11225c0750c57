"""The frozen autoencoder of a diffusion model's folder as a backbone: its digest, its features, what it refuses."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from secagg.errors import BadInput
from secagg.features import Latents, backbone_digest, open_backbone
from secagg.features.latents import as_feature, pixels_of
from secagg.features.opening import planned_name
from tests.worlds.diffusion import DIMENSION, SIDE, pictures, save_diffusion

SHAPE = (SIDE, SIDE, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model."""
    return save_diffusion(tmp_path_factory.mktemp("latents") / "model")


def test_features_are_latents_of_one_length(folder: Path) -> None:
    """√d throughout, whatever a picture's latent: the last number makes up for what a shorter one lacks."""
    backbone = open_backbone(f"diffusers:{folder}", SHAPE)
    features = backbone.extract(pictures()["images"])
    assert features.shape[1] == backbone.dimension == DIMENSION + 1
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), math.sqrt(DIMENSION))
    bound = backbone.bound(None)
    assert bound is not None
    assert np.linalg.norm(features, axis=1).max() <= bound


def test_a_picture_s_latent_is_its_own(folder: Path) -> None:
    """Bit for bit the same, alone or in any batch."""
    backbone, images = open_backbone(f"diffusers:{folder}", SHAPE), pictures()["images"]
    every = backbone.extract(images)
    assert (backbone.extract(images[5:6]) == every[5:6]).all()
    assert (backbone.extract(images[::-1])[::-1] == every).all()


def test_what_is_no_number_has_no_feature() -> None:
    """NaN in a latent is NaN throughout; a long latent is cut, a short one kept."""
    assert np.isnan(as_feature(np.array([1.0, np.nan]))).all()
    np.testing.assert_allclose(as_feature(np.array([3.0, 4.0])), [0.6 * math.sqrt(2), 0.8 * math.sqrt(2), 0], atol=1e-7)
    np.testing.assert_allclose(as_feature(np.array([1.0, 0.0])), [1, 0, 1])


def test_a_digest_covers_every_part(folder: Path, tmp_path: Path) -> None:
    """Another weight of the network or another schedule is another backbone; a README is not."""
    known = backbone_digest(f"diffusers:{folder}")
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    (copied / "README.md").write_text("hello", encoding="utf-8")
    assert backbone_digest(f"diffusers:{copied}") == known
    path = copied / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"beta_end": 0.5}), encoding="utf-8")
    assert backbone_digest(f"diffusers:{copied}") != known
    other = save_diffusion(tmp_path / "other", seed=1)
    assert backbone_digest(f"diffusers:{other}") != known
    with pytest.raises(BadInput, match="nothing in the file was run"):
        open_backbone(f"diffusers:{other}", SHAPE, expected_digest=known)


@pytest.mark.parametrize("part", ["unet", "scheduler"])
def test_a_part_that_changed_after_it_was_compared_is_refused(folder: Path, tmp_path: Path, part: str) -> None:
    """Network and schedule are read when they are used: other files by then are not what the plan names."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    backbone = open_backbone(f"diffusers:{copied}", SHAPE, expected_digest=backbone_digest(f"diffusers:{copied}"))
    assert isinstance(backbone, Latents)
    other = save_diffusion(tmp_path / "other", seed=1) / part
    shutil.copytree(other, copied / part, dirs_exist_ok=True)
    config = next((copied / part).glob("*config.json"))
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    with pytest.raises(BadInput, match=f"{part} has changed since its digest was compared"):
        getattr(backbone, part)
    shutil.copytree(folder / part, copied / part, dirs_exist_ok=True)
    assert getattr(backbone, part) is not None


def test_a_plan_knows_the_folder_by_its_last_name(folder: Path) -> None:
    """And not where its author keeps it."""
    assert planned_name(f"diffusers:{folder}") == "diffusers:model"


@pytest.mark.parametrize("part", ["vae", "unet", "scheduler"])
def test_a_folder_without_a_part_is_refused(folder: Path, tmp_path: Path, part: str) -> None:
    """Which part is missing is said."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns(part))
    with pytest.raises(BadInput, match=f"no {part}/"):
        backbone_digest(f"diffusers:{copied}")


def test_damaged_and_foreign_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    """Cut weights, another model's in their place, a network that predicts something else."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    weights = copied / "vae" / "diffusion_pytorch_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match="cannot load"):
        open_backbone(f"diffusers:{copied}", SHAPE)
    weights.write_bytes((folder / "unet" / "diffusion_pytorch_model.safetensors").read_bytes())
    with pytest.raises(BadInput, match=r"lacks the weights|cannot load"):
        open_backbone(f"diffusers:{copied}", SHAPE)
    weights.write_bytes(content)
    path = copied / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prediction_type": "v_prediction"}), encoding="utf-8")
    backbone = open_backbone(f"diffusers:{copied}", SHAPE)
    assert isinstance(backbone, Latents)
    with pytest.raises(BadInput, match="give one that predicts epsilon"):
        _ = backbone.scheduler


def test_an_index_that_leads_elsewhere_is_refused(folder: Path, tmp_path: Path) -> None:
    """Weights that a digest does not cover are never read, wherever an index says they are."""
    copied = tmp_path / "copy"
    shutil.copytree(folder, copied)
    index = {"metadata": {}, "weight_map": {"conv_in.weight": "../../other.safetensors"}}
    path = copied / "vae" / "diffusion_pytorch_model.safetensors.index.json"
    path.write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(BadInput, match="not beside it"):
        open_backbone(f"diffusers:{copied}", SHAPE)


@pytest.mark.parametrize("shape", [(7, 8, 3), (8, 8, 2), (192,)])
def test_what_is_no_picture_for_it_is_refused(folder: Path, shape: tuple[int, ...]) -> None:
    """Sides that are no multiples of the model's factor, two channels, rows of features."""
    with pytest.raises(BadInput, match="multiples of 2"):
        open_backbone(f"diffusers:{folder}", shape)


def test_grey_pictures_are_taken_as_colours(folder: Path) -> None:
    """(h, w), (h, w, 1), three equal channels, bytes and numbers in [0, 1] alike."""
    grey = pictures()["images"][:3, :, :, 0]
    forms = [grey, grey[..., None], np.repeat(grey[..., None], 3, axis=3), grey / 255.0]
    made = [pixels_of(form) for form in forms]
    assert all(np.allclose(each, made[0], atol=1e-6) for each in made)
    assert made[0].shape == (3, 3, SIDE, SIDE)
    assert (made[0].min(), made[0].max()) >= (-1, -1)
