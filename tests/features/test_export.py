"""Networks to programs: the same features, all preparation inside, nothing superfluous, one line when it cannot be."""

import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from secagg.errors import BadInput
from secagg.features import backbone_digest, open_backbone
from secagg.features.export import Network, export_network

MEAN, DEVIATION = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)


class Small(nn.Module):
    """What the exported networks have in common: norms, operations in place, a head, layers that are maps."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.tail = nn.Conv2d(4, 5, 3)
        self.fc = nn.Linear(5, 7)
        self.tokens = nn.Flatten(2)

    def maps(self, images):
        """(n, 5, h, w) before the ReLU that writes over it."""
        return self.tail(self.body(images))

    def forward(self, images):
        """(n, 3, h, w) → (n, 7)."""
        maps = self.maps(images)
        self.tokens(maps)
        features = torch.relu_(maps).mean(dim=(2, 3))
        return self.fc(torch.dropout(features, 0.5, self.training))


@pytest.fixture
def network():
    """The small network with weights that are not those of the start, in training mode."""
    torch.manual_seed(0)
    module = Small()
    with torch.no_grad():
        module(torch.rand(50, 3, 12, 12))
    return Network(module, MEAN, DEVIATION, 12, has_head=True)


def expected(network, compute, images=IMAGES, side=None):
    """What the network itself gives for the images."""
    inputs = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    if side:
        inputs = nn.functional.interpolate(inputs, (side, side), mode="bilinear", antialias=True)
    mean, deviation = (torch.tensor(each).view(1, 3, 1, 1) for each in (MEAN, DEVIATION))
    with torch.no_grad():
        return compute(network.module.eval(), (inputs - mean) / deviation).numpy()


def close(got, wanted):
    """Equal but for float32 rounding."""
    return got.shape == wanted.shape and np.allclose(got, wanted, rtol=1e-4, atol=1e-5)


def before_head(module, inputs):
    """The small network's features."""
    return torch.relu(module.maps(inputs)).mean(dim=(2, 3))


def test_features_are_what_the_head_takes(network, tmp_path):
    """By default the features are the last linear layer's input, normalised inside, in evaluation mode."""
    program = export_network(network, tmp_path / "net.pt2")
    assert close(program.extract(IMAGES), expected(network, before_head))
    assert (program.dimension, program.input_shape) == (5, (3, 12, 12))
    opened = open_backbone(str(tmp_path / "net.pt2"), (12, 12, 3), expected_digest=program.digest)
    assert (opened.extract(IMAGES) == program.extract(IMAGES)).all()
    assert backbone_digest(str(tmp_path / "net.pt2")) == program.digest


def test_layer_is_taken_before_it_is_written_over(network, tmp_path):
    """A layer's output is averaged over places as it was, not as an operation in place leaves it."""
    program = export_network(network, tmp_path / "net.pt2", layer="tail")
    wanted = expected(network, lambda module, inputs: module.maps(inputs).mean(dim=(2, 3)))
    assert wanted.min() < 0
    assert close(program.extract(IMAGES), wanted)


def test_layer_after_an_operation_in_place(network, tmp_path):
    """Operations in place before the layer are kept."""
    program = export_network(network, tmp_path / "net.pt2", layer="body")
    wanted = expected(network, lambda module, inputs: module.body(inputs).mean(dim=(2, 3)))
    assert close(program.extract(IMAGES), wanted)


def test_headless_network_gives_its_output(network, tmp_path):
    """A network without a head gives what it puts out."""
    headless = Network(network.module, MEAN, DEVIATION, 12, has_head=False)
    program = export_network(headless, tmp_path / "net.pt2")
    assert close(program.extract(IMAGES), expected(network, lambda module, inputs: module(inputs)))


def test_images_are_resized_inside(network, tmp_path):
    """The program takes the data's images and resizes them itself."""
    images = IMAGES[:, :9, :9]
    program = export_network(network, tmp_path / "net.pt2", image_size=9, resize=12)
    assert program.input_shape == (3, 9, 9)
    assert close(program.extract(images), expected(network, before_head, images, side=12))


def test_grey_images_are_repeated(network, tmp_path):
    """Grey images enter as three equal channels."""
    export_network(network, tmp_path / "net.pt2")
    grey = IMAGES[..., 0]
    features = open_backbone(str(tmp_path / "net.pt2"), (12, 12)).extract(grey)
    assert close(features, expected(network, before_head, np.repeat(grey[..., None], 3, axis=3)))


def test_file_holds_no_superfluous_weight_and_no_path(network, tmp_path):
    """Weights after the features and names of this machine's files are left out; exporting again gives the bytes."""
    for name in ("net.pt2", "again.pt2"):
        export_network(network, tmp_path / name, layer="body")
    with zipfile.ZipFile(tmp_path / "net.pt2") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    everything = b"".join(content.values())
    assert b"network.body.0.weight" in everything
    for absent in (b"network.fc.weight", b"network.tail.weight", __file__.encode(), b"secagg/features"):
        assert absent not in everything
    assert (tmp_path / "net.pt2").read_bytes() == (tmp_path / "again.pt2").read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layer": "layer9"}, "no layer 'layer9'; it has body, tail, fc, tokens"),
        ({"layer": ""}, "no layer ''"),
        ({"layer": "tokens"}, r"puts out \(1, 5, 64\), which is no vector; name another with --layer"),
        ({"image_size": 2}, "cannot be exported: .*; its own images have 12 pixels a side: try --resize 12"),
    ],
)
def test_what_cannot_be_exported_is_refused(network, tmp_path, options, words):
    """Unknown layers, layers that are no vectors and images that are too small give one line, and no file."""
    with pytest.raises(BadInput, match=words) as refusal:
        export_network(network, tmp_path / "net.pt2", **options)
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_unused_layer_is_refused(tmp_path, network):
    """A layer that the network never runs, or runs twice, has no one output."""
    network.module.idle = nn.Conv2d(1, 1, 1)
    with pytest.raises(BadInput, match="uses its layer idle 0 times"):
        export_network(network, tmp_path / "net.pt2", layer="idle")
    relu = nn.ReLU()
    twice = nn.Sequential(nn.Conv2d(3, 4, 3), relu, nn.Conv2d(4, 4, 3), relu)
    with pytest.raises(BadInput, match="uses its layer 1 2 times"):
        export_network(Network(twice, MEAN, DEVIATION, 12, has_head=True), tmp_path / "net.pt2", layer="1")


def test_network_without_linear_layer_needs_a_layer(tmp_path):
    """Where nothing tells what the head takes, the user must."""
    bare = Network(nn.Sequential(nn.Conv2d(3, 4, 3)), MEAN, DEVIATION, 12, has_head=True)
    with pytest.raises(BadInput, match="name a --layer"):
        export_network(bare, tmp_path / "net.pt2")
    assert export_network(bare, tmp_path / "net.pt2", layer="0").dimension == 4


def test_file_is_not_overwritten(network, tmp_path):
    """A file that is there stays as it is, and a program's file ends in .pt2."""
    (tmp_path / "net.pt2").write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        export_network(network, tmp_path / "net.pt2")
    assert (tmp_path / "net.pt2").read_text() == "mine"
    with pytest.raises(BadInput, match=r"write to .*net\.pt2"):
        export_network(network, tmp_path / "net.onnx")


def test_what_stays_in_training_mode_is_not_written(tmp_path):
    """A network that drops numbers in every mode is refused, and no file is left."""

    class Stubborn(Small):
        """Dropout that is always on."""

        def maps(self, images):
            """Maps with holes."""
            return nn.functional.dropout(super().maps(images), 0.5)

    with pytest.raises(BadInput, match="exported in training mode"):
        export_network(Network(Stubborn(), MEAN, DEVIATION, 12, has_head=True), tmp_path / "net.pt2")
    assert not (tmp_path / "net.pt2").exists()
