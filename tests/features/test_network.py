"""Where networks come from: known libraries, or one line with what to install."""

import json
import sys

import numpy as np
import pytest

from secagg.errors import BadInput
from secagg.features import open_backbone
from secagg.features.export import EXTRAS, export_network, load_network
from tests.architecture.lock import ROOT

NAMES = {"torchvision": "resnet18", "timm": "resnet18", "open_clip": "RN50/openai", "transformers": "a/b"}


@pytest.mark.parametrize("library", NAMES)
def test_missing_library_names_the_extra(library, monkeypatch):
    """Without the library the refusal says what to install, and the extra exists."""
    for name in NAMES:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match="which is not installed") as refusal:
        load_network(f"{library}:{NAMES[library]}")
    extra = EXTRAS[library]
    assert f"pip install 'secagg[{extra}]'" in str(refusal.value)
    assert f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("spec", ["resnet18", "keras:resnet", "torchvision", "torchvision:", ":resnet18", ""])
def test_unknown_source_is_refused(spec):
    """A name of no known library is refused with the forms there are."""
    with pytest.raises(BadInput, match="give torchvision:NAME"):
        load_network(spec)


def test_open_clip_needs_weights(monkeypatch):
    """An architecture without the name of its weights is refused with an example."""
    monkeypatch.setitem(sys.modules, "open_clip", object())
    with pytest.raises(BadInput, match="open_clip:ViT-B-32 names no weights; open_clip:ViT-B-32/openai"):
        load_network("open_clip:ViT-B-32")


@pytest.fixture
def transformers():
    """The library; skipped without it."""
    return pytest.importorskip("transformers", reason="needs transformers (the extra `hf`)")


SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**SMALL, "image_size": 16, "patch_size": 8}


def kinds(transformers):
    """A randomly initialised model of each kind of output, its input size and number of features."""
    resnet = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 10], depths=[1, 1], layer_type="basic")
    clip = transformers.CLIPConfig(vision_config=VISION, text_config=SMALL, projection_dim=12)
    return {
        "vit": (transformers.ViTModel(transformers.ViTConfig(**VISION)), 16, 16),
        "clip": (transformers.CLIPModel(clip), 16, 12),
        "resnet": (transformers.ResNetModel(resnet), 224, 10),
    }


@pytest.mark.parametrize("kind", ["vit", "clip", "resnet"])
def test_transformers_model_becomes_a_program(transformers, tmp_path, kind):
    """A saved model gives one vector per image: the pooled output, or CLIP's image embedding."""
    import torch

    model, size, dimension = kinds(transformers)[kind]
    model.eval().save_pretrained(tmp_path / "model")
    prepared = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(prepared))
    network = load_network(f"transformers:{tmp_path / 'model'}")
    assert (network.size, network.mean, network.deviation) == (size, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    program = export_network(network, tmp_path / "net.pt2", image_size=16)
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    inputs = (torch.from_numpy(images) / 255 - torch.tensor([0.5, 0.4, 0.3])) / torch.tensor([0.2, 0.3, 0.4])
    embed = model.get_image_features if kind == "clip" else model
    with torch.no_grad():
        wanted = embed(pixel_values=inputs.permute(0, 3, 1, 2)).pooler_output.reshape(2, dimension).numpy()
    assert np.allclose(program.extract(images), wanted, rtol=1e-4, atol=1e-5)
    assert open_backbone(str(tmp_path / "net.pt2"), (16, 16, 3)).dimension == dimension


def test_model_that_does_not_load_is_one_line(transformers, tmp_path):
    """A folder that holds no model is refused in one line."""
    with pytest.raises(BadInput, match="transformers cannot load") as refusal:
        load_network(f"transformers:{tmp_path}")
    assert "\n" not in str(refusal.value)
