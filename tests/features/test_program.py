"""Exported programs: pinned before parsing, batch independent, clear about what they take."""

import hashlib
import io
import logging
import re
import zipfile

import numpy as np
import pytest

from secagg.errors import BadInput
from secagg.features import Expansion, FeatureMap, backbone_digest, open_backbone
from secagg.features.program import AT_ONCE
from secagg.system.engines import LocalProcesses
from tests.worlds.forks import fork_workers

COLOUR = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)


def test_program_runs_and_is_pinned_by_its_file(program):
    """Features are the network's own, the digest is the file's SHA-256, and progress counts records."""
    import torch

    path = program("net.pt2", batch=2, dynamic=True)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    seen = []
    backbone = open_backbone(
        str(path), (8, 8, 3), expected_digest=digest, progress=lambda done, total: seen.append((done, total))
    )
    threads = torch.get_num_threads()
    features = backbone.extract(COLOUR)
    expected = torch.export.load(path).module()(torch.from_numpy(COLOUR).permute(0, 3, 1, 2) / 255.0)
    assert np.allclose(features, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert (backbone.digest, backbone.dimension, backbone.bound(1.0)) == (digest, 6, None)
    assert seen == [(index, 5) for index in range(1, 6)]
    assert torch.get_num_threads() == threads
    assert FeatureMap(backbone, Expansion(4)).bound(1.0) is None


def test_processes_change_no_bit(program, tmp_path, monkeypatch):
    """Extracted in two processes, features are those of one, progress reaches all, and nothing is left behind."""
    monkeypatch.setenv("SECAGG_CACHE", "off")
    fork_workers(monkeypatch)
    images = np.random.default_rng(1).integers(0, 256, (2 * AT_ONCE + 7, 8, 8, 3), dtype=np.uint8)
    path, seen = str(program("net.pt2")), []
    alone = open_backbone(path, (8, 8, 3)).extract(images)
    apart = open_backbone(path, (8, 8, 3), progress=lambda *done: seen.append(done), engine=LocalProcesses(2, tmp_path))
    assert apart.extract(images).tobytes() == alone.tobytes()
    assert seen[-1] == (len(images), len(images))
    assert list(tmp_path.iterdir()) == []


def test_row_depends_on_its_record_alone(program):
    """Alone or in a batch, and with any number of threads before, a record gives the same bits."""
    import torch

    backbone = open_backbone(str(program("net.pt2")), (8, 8, 3))
    together = backbone.extract(COLOUR)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for index in range(5):
            assert (backbone.extract(COLOUR[index : index + 1])[0] == together[index]).all()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_images_fit_one_or_three_channels(program, channels):
    """Grey images enter a one-channel program as they are and are repeated for a three-channel one."""
    path = program("grey.pt2", channels=channels)
    grey = COLOUR[..., 0]
    features = open_backbone(str(path), (8, 8)).extract(grey)
    assert (open_backbone(str(path), (8, 8, 1)).extract(grey[..., None]) == features).all()
    if channels == 3:
        assert (open_backbone(str(path), (8, 8, 3)).extract(np.repeat(grey[..., None], 3, axis=3)) == features).all()


def test_other_digest_is_refused_before_parsing(tmp_path, monkeypatch):
    """A file with another digest is not parsed at all."""
    import torch

    (tmp_path / "evil.pt2").write_bytes(b"anything")
    monkeypatch.setattr(torch.export, "load", lambda *_: pytest.fail("parsed"))
    with pytest.raises(BadInput, match="nothing in the file was run"):
        open_backbone(str(tmp_path / "evil.pt2"), (8, 8, 3), expected_digest="0" * 64)


@pytest.mark.parametrize(
    ("options", "shape", "words"),
    [
        ({"batch": 4}, (8, 8, 3), "batches of 4 only"),
        ({"size": 9}, (8, 8, 3), "takes records of shape \\(3, 9, 9\\)"),
        ({"channels": 1}, (8, 8, 3), "takes records of shape \\(1, 8, 8\\)"),
        ({}, (192,), "takes records of shape"),
    ],
)
def test_program_that_does_not_fit_is_refused(program, options, shape, words):
    """A fixed batch size or another record shape is named."""
    with pytest.raises(BadInput, match=words):
        open_backbone(str(program("net.pt2", **options)), shape)


def test_other_file_is_refused(tmp_path):
    """A file that is no exported program gives one line."""
    (tmp_path / "net.pt2").write_bytes(b"no program")
    with pytest.raises(BadInput, match="no exported program") as refusal:
        open_backbone(str(tmp_path / "net.pt2"), (8, 8, 3))
    assert "\n" not in str(refusal.value)


def saved(tmp_path, network, *, decomposed=False):
    """A network exported as it stands, in whichever mode it is."""
    import torch

    exported = torch.export.export(network, (torch.rand(1, 3, 8, 8),))
    path = tmp_path / "net.pt2"
    torch.export.save(exported.run_decompositions() if decomposed else exported, path)
    return str(path)


def networks():
    """Networks whose features are not a record's own in training mode, by what makes them so."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        """Pixels that attend to each other."""

        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(3, 1, dropout=0.2, batch_first=True)

        def forward(self, images):
            """(n, 3, h, w) → (n, 3)."""
            tokens = images.flatten(2).transpose(1, 2)
            return self.attention(tokens, tokens, tokens, need_weights=False)[0].mean(dim=1)

    class Functional(nn.Module):
        """Dropout that does not know of modes."""

        def forward(self, images):
            """(n, 3, h, w) → (n, 3)."""
            return torch.nn.functional.dropout(images, 0.5).mean(dim=(2, 3))

    class Drawn(nn.Module):
        """Noise in every mode."""

        def forward(self, images):
            """(n, 3, h, w) → (n, 3)."""
            return (images + torch.rand_like(images)).mean(dim=(2, 3))

    body = (nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return {
        "dropout": nn.Sequential(*body, nn.Dropout(0.5)),
        "norm": nn.Sequential(body[0], nn.BatchNorm2d(4), *body[1:]),
        "rrelu": nn.Sequential(*body, nn.RReLU()),
        "attention": Attention(),
        "functional": Functional(),
        "drawn": Drawn(),
    }


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of run_decompositions
@pytest.mark.parametrize(
    ("name", "decomposed", "words"),
    [
        ("dropout", False, r"exported in training mode \(aten.dropout.default has train=True\); call .eval\(\)"),
        ("dropout", True, "training mode|two different features"),
        ("norm", False, r"exported in training mode \(aten.batch_norm.default has training=True\); call .eval\(\)"),
        ("norm", True, "exported in training mode .*batch_norm.* has training=True"),
        ("rrelu", False, "exported in training mode .aten.rrelu.* has training=True"),
        ("attention", False, "exported in training mode .*attention.* has dropout_p=0.2"),
        ("functional", False, "exported in training mode .aten.dropout"),
        ("drawn", False, "gives one record two different features; call .eval"),
        ("drawn", True, "gives one record two different features; call .eval"),
    ],
)
def test_program_in_training_mode_is_refused(tmp_path, name, decomposed, words):
    """Whatever draws at random, or takes its statistics from a batch of one, is refused when the file is opened."""
    with pytest.raises(BadInput, match=words):
        open_backbone(saved(tmp_path, networks()[name].train(), decomposed=decomposed), (8, 8, 3))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["dropout", "norm", "rrelu", "attention"])
@pytest.mark.parametrize("decomposed", [False, True])
def test_the_same_program_in_evaluation_mode_is_taken(tmp_path, name, decomposed):
    """The same layers in evaluation mode are no fault, and their features are the same at every run."""
    backbone = open_backbone(saved(tmp_path, networks()[name].eval(), decomposed=decomposed), (8, 8, 3))
    assert (backbone.extract(COLOUR) == backbone.extract(COLOUR)).all()
    assert backbone.notes == ()


def test_a_map_is_flattened_and_said(tmp_path):
    """A program that ends in a map gives its numbers row by row, with a note of its shape through every wrapper."""
    import torch

    network = torch.nn.Conv2d(3, 2, 3).eval()
    path = saved(tmp_path, network)
    backbone = open_backbone(path, (8, 8, 3))
    maps = network(torch.from_numpy(COLOUR).permute(0, 3, 1, 2) / 255.0).detach().numpy()
    assert np.allclose(backbone.extract(COLOUR), maps.reshape(5, 72), atol=1e-6)
    (note,) = backbone.notes
    assert note.startswith("the backbone net.pt2 puts out a map of 2×6×6, taken as 72 features")
    assert FeatureMap(open_backbone(f"{path}+pixels+{path}", (8, 8, 3)), Expansion(4)).notes == (note,)


def rewritten(path, out, part, change):
    """A program's archive with one of its files changed, or left out where the change gives None."""
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            content = change(content) if name.endswith(part) else content
            if content is not None:
                copy.writestr(name, content)
    return out


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("model.json", lambda content: content.replace(b"aten.relu", b"aten.nosuch"), "aten.nosuch"),
        ("model.json", lambda content: re.sub(rb'"major": ?[0-9]+', b'"major": 99', content), "major=99"),
        ("weight_0", lambda content: content[: len(content) // 2], "out of bounds"),
        ("model.pt", lambda content: None, "file not found"),
    ],
)
def test_damaged_program_is_one_line(program, tmp_path, part, change, words):
    """What torch says of a damaged program is in the refusal, and torch's own log says nothing, tracebacks least."""
    path = rewritten(program("net.pt2"), tmp_path / "net.pt2", part, change)
    log, said = logging.getLogger("torch.export"), io.StringIO()
    handler = logging.StreamHandler(said)
    log.addHandler(handler)
    try:
        with pytest.raises(BadInput, match=re.escape(words)) as refusal:
            open_backbone(str(path), (8, 8, 3))
        assert said.getvalue() == ""
        log.warning("still heard")
    finally:
        log.removeHandler(handler)
    assert said.getvalue() == "still heard\n"
    assert "\n" not in str(refusal.value)


def test_debugging_hears_torch(program, tmp_path, caplog):
    """Whoever debugs hears what torch says."""
    path = rewritten(program("net.pt2"), tmp_path / "net.pt2", "model.pt", lambda content: None)
    log, said = logging.getLogger("torch.export"), io.StringIO()
    handler = logging.StreamHandler(said)
    log.addHandler(handler)
    try:
        with caplog.at_level(logging.DEBUG, "secagg"), pytest.raises(BadInput):
            open_backbone(str(path), (8, 8, 3))
    finally:
        log.removeHandler(handler)
    assert "Traceback" in said.getvalue()


def test_program_that_expands_is_refused(program, monkeypatch):
    """A program that says it takes more than is allowed is refused before torch opens it; its digest is still told."""
    path = program("net.pt2")
    digest = backbone_digest(str(path))
    monkeypatch.setenv("SECAGG_MAX_BYTES", str(path.stat().st_size))
    assert backbone_digest(str(path)) == digest
    packed = path.with_name("packed.pt2")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as copy:
        for name in archive.namelist():
            copy.writestr(name, archive.read(name))
        copy.writestr("net/data/weights/weight_9", bytes(1 << 20))
    with pytest.raises(BadInput, match=r"more than .*; set SECAGG_MAX_BYTES"):
        open_backbone(str(packed), (8, 8, 3))
