"""FedCGS (Guan et al.), table 2: ResNet-18 at 32 pixels, total covariance, on complete data sets.

It needs files that are not part of this project; environment variables say where they are:

    SECAGG_RESNET18   torchvision's resnet18-f37072fd.pth or resnet18-5c106cde.pth
    SECAGG_CIFAR10, SECAGG_CIFAR100, SECAGG_SVHN
                      .npz files with train_images, train_labels, test_images and test_labels, made by, for example,

        import numpy as np, torchvision
        train, test = (torchvision.datasets.CIFAR10(".", train=part, download=True) for part in (True, False))
        np.savez("cifar10.npz", train_images=train.data, train_labels=np.array(train.targets),
                 test_images=test.data, test_labels=np.array(test.targets))
        train, test = (torchvision.datasets.SVHN(".", split=part, download=True) for part in ("train", "test"))
        np.savez("svhn.npz", train_images=train.data.transpose(0, 2, 3, 1), train_labels=train.labels,
                 test_images=test.data.transpose(0, 2, 3, 1), test_labels=test.labels)

Run `SECAGG_RESNET18=… SECAGG_CIFAR10=… .venv/bin/pytest -m long tests/reproduction`; a data set takes some ten minutes.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features import open_backbone
from secagg.features.export import Network, export_network
from tests.reproduction.resnet18 import ResNet18, load
from tests.threat_models import backbones

CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
HALF = ((0.5,) * 3, (0.5,) * 3)
PUBLISHED = {"CIFAR10": (63.95, 10, CIFAR), "CIFAR100": (39.95, 100, CIFAR), "SVHN": (57.77, 10, HALF)}


def given(name: str) -> Path:
    """The file that an environment variable names; the test is skipped without it."""
    value = os.environ.get(f"SECAGG_{name}")
    if not value:
        pytest.skip(f"needs a file of one's own in SECAGG_{name}")
    return Path(value)


@pytest.mark.long
@pytest.mark.parametrize("name", PUBLISHED)
def test_accuracy_is_the_published_one(tmp_path, name):
    """A federation of ten unequal clients reaches the paper's accuracy within 0.1 point."""
    published, classes, (mean, deviation) = PUBLISHED[name]
    weights, images = given("RESNET18"), given(name)
    program = tmp_path / "resnet18.pt2"
    export_network(Network(load(weights), mean, deviation, 224, has_head=True), program, image_size=32)
    data = open_dataset(str(images))
    assert (len(data.classes), data.train.inputs.shape[1:]) == (classes, (32, 32, 3))
    settings = SimulationSettings(
        method="fedcgs", clients=10, partition="dirichlet:0.05", backbone=str(program), covariance="total", ridge=0.0
    )
    accuracy = simulate_dataset(data, settings).to_json()["accuracy"]
    assert abs(100 * accuracy - published) <= 0.1


@pytest.fixture
def random_network():
    """ResNet-18 with random weights whose batch norms have seen data."""
    torch.manual_seed(0)
    network = ResNet18()
    with torch.no_grad():
        network.train()(torch.rand(8, 3, 32, 32))
    return network.eval()


def test_weight_file_loads_and_others_do_not(random_network, tmp_path):
    """A state dict loads with and without counters of batches; one that lacks a weight is refused."""
    weights = random_network.state_dict()
    assert len(weights) == 122
    old = {name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")}
    images = torch.rand(2, 3, 32, 32)
    for each in (weights, old):
        torch.save(each, tmp_path / "resnet18.pth")
        assert torch.equal(load(tmp_path / "resnet18.pth").eval()(images), random_network(images))
    del old["layer4.0.conv1.weight"]
    torch.save(old, tmp_path / "resnet18.pth")
    with pytest.raises(ValueError, match="is no ResNet-18"):
        load(tmp_path / "resnet18.pth")


def folded(network: ResNet18) -> dict[str, np.ndarray]:
    """Convolutions from conv1 to layer3 with their batch norms folded in, by the names of the stored weights."""
    modules = dict(network.named_modules())
    weights = {}
    for name, module in modules.items():
        if not isinstance(module, torch.nn.Conv2d) or name.startswith("layer4"):
            continue
        norm = modules[name.replace("conv", "bn") if "conv" in name else name.removesuffix("0") + "1"]
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        weights[f"{name}.weight"] = (module.weight * factor[:, None, None, None]).detach().numpy()
        weights[f"{name}.bias"] = (norm.bias - norm.running_mean * factor).detach().numpy()
    return weights


def test_network_is_the_one_of_the_stored_features(random_network, tmp_path):
    """Up to layer3 this definition computes what the network of the stored CIFAR-10 features does, weights folded."""
    np.savez(tmp_path / "resnet18_imagenet_conv1_to_layer3_bnfolded.npz", **folded(random_network))
    other = backbones.ResNet18(tmp_path, *CIFAR)
    program = export_network(
        Network(random_network, *CIFAR, 224, has_head=True), tmp_path / "own.pt2", image_size=32, layer="layer3"
    )
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    features = other(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).numpy()
    assert np.allclose(program.extract(images), features, rtol=1e-3, atol=1e-4 * np.abs(features).max())


def test_stored_features_are_made_again(data_folder, tmp_path):
    """The exported ResNet-18 gives the stored features of CIFAR-10 images up to their rounding to 8 bits."""
    path = backbones.export(backbones.ResNet18(data_folder / "backbones"), tmp_path / "resnet18.pt2")
    with np.load(data_folder / "cifar10_images_3k.npz") as content:
        images, index = content["test_images"][:40], content["test_index"][:40]
    with np.load(data_folder / "cifar10_resnet18_layer3_features.npz") as content:
        stored, scale = content["test_features"][index].astype(float), content["scale"].astype(float)
    features = open_backbone(str(path), (32, 32, 3)).extract(images)
    off = np.abs(features / scale - stored)
    unclipped = stored < 255
    assert off[unclipped].max() < 0.51
