"""Backbone and head as one exported program, which says what `secagg predict` says."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import secagg
from secagg.data import open_dataset
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.heads import LinearHead, save_safetensors
from secagg.heads.linear import HeadAdapter, Recentring
from secagg.scoring.predictor import Predictor, probabilities_of
from secagg.scoring.program import export_program

NORMAL = {"normalise": "centred-unit"}


def saved(folder: Path, settings: dict[str, object], shape: tuple[int, ...] = (6,)) -> Path:
    """A head simulated over records of a shape, with its file."""
    generator = np.random.default_rng(1)
    labels = np.arange(60) % 3
    values = (generator.uniform(size=(60, *shape)) + labels.reshape(-1, *[1] * len(shape))) / 3
    name = "features" if len(shape) == 1 else "images"
    np.savez(folder / "own.npz", **{name: values, "labels": labels})
    data = open_dataset(str(folder / "own.npz"))
    run = simulate_dataset(data, SimulationSettings(clients=2, protection="none", reference=False, **settings))
    return run.save(folder / "run") / "head.safetensors"


def backbone(folder: Path, channels: int) -> Path:
    """A small convolution as an exported program of one image."""
    torch.manual_seed(1)
    layers = torch.nn.Sequential(torch.nn.Conv2d(channels, 4, 3), torch.nn.ReLU(), torch.nn.Flatten()).eval()
    program = torch.export.export(layers, (torch.zeros(1, channels, 6, 6),))
    torch.export.save(program, folder / "net.pt2")
    return folder / "net.pt2"


def agrees(folder: Path, head: Path, shape: tuple[int, ...], how_many: int = 5, **opened: str) -> None:
    """The program, loaded again, gives the predictor's probabilities on fresh records."""
    predictor = Predictor.open(head, opened.get("backbone"))
    export_program(predictor, folder / "whole.pt2", temperature=2.0)
    records = np.random.default_rng(7).uniform(size=(how_many, *shape)).astype(np.float32)
    own = probabilities_of(predictor.scores(records), 2.0)
    module = torch.export.load(folder / "whole.pt2").module()
    rows = [records] if not opened else [each[None] for each in records]
    found = np.concatenate([module(torch.from_numpy(each)).numpy() for each in rows])
    assert np.allclose(found, own, atol=1e-6)
    assert found.argmax(axis=1).tolist() == own.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("settings", "shape"),
    [
        ({}, (6,)),
        ({"expand": 16}, (6,)),
        (NORMAL, (6,)),
        ({"normalise": "unit", "centre": 0.3, "expand": 16}, (6,)),
        ({}, (5, 4)),
        ({"backbone": "pixels+random-features:8", **NORMAL}, (5, 4, 3)),
        ({"method": "fedavg", "rounds": 2, "parameters": "model=mlp:4", **NORMAL}, (6,)),
    ],
)
def test_program_says_what_the_head_says(tmp_path: Path, settings: dict[str, object], shape: tuple[int, ...]) -> None:
    """Features, expansions, both normalisations, pixels, several backbones, a trained model; any batch."""
    agrees(tmp_path, saved(tmp_path, settings, shape), shape)


@pytest.mark.parametrize(("channels", "shape"), [(1, (6, 6)), (3, (6, 6)), (3, (6, 6, 3))])
def test_backbone_goes_along(tmp_path: Path, channels: int, shape: tuple[int, ...]) -> None:
    """A backbone's own program and its weights are in the one that is written; grey images are repeated."""
    net = str(backbone(tmp_path, channels))
    head = saved(tmp_path, {"backbone": net, **NORMAL}, shape)
    agrees(tmp_path, head, shape, backbone=net)


@pytest.mark.parametrize("kind", ["stacked", "residual", "recentring"])
def test_what_stands_before_a_head_goes_along(tmp_path: Path, kind: str) -> None:
    """Adapters of both kinds, and a recentring."""
    path = saved(tmp_path, NORMAL)
    metadata = dict(Predictor.open(path).metadata)
    generator = np.random.default_rng(3)

    def drawn(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    before = (
        Recentring(drawn(6, 6), drawn(6)) if kind == "recentring" else HeadAdapter(kind, ((drawn(6, 6), drawn(6)),))
    )
    save_safetensors(LinearHead(drawn(3, 6), drawn(3), before), path, metadata)
    agrees(tmp_path, path, (6,))


def test_program_runs_without_this_package(tmp_path: Path) -> None:
    """Another process needs torch alone, and finds inside what the program takes and gives."""
    predictor = Predictor.open(saved(tmp_path, {"expand": 8}))
    export_program(predictor, tmp_path / "whole.pt2")
    code = (
        "import sys, torch; texts = {'secagg.json': ''}; "
        "module = torch.export.load(sys.argv[1], extra_files=texts).module(); "
        "print(texts['secagg.json']); print(module(torch.zeros(2, 6)).shape); assert 'secagg' not in sys.modules"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "whole.pt2")]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.splitlines()
    assert json.loads(said[0])["classes"] == ["0", "1", "2"]
    assert said[1] == "torch.Size([2, 3])"


def test_program_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    """A folder in its place is bad input."""
    predictor = Predictor.open(saved(tmp_path, {}))
    with pytest.raises(BadInput, match="cannot write"):
        export_program(predictor, tmp_path)


def test_public_name_opens_heads() -> None:
    """`secagg.Predictor` is the class that these tests use."""
    assert secagg.Predictor is Predictor


def test_no_code_runs_on_the_word_of_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head's file names its backbone's, and its digest: the one who predicts gives it, or nothing is parsed."""
    file = backbone(tmp_path, 1)
    head = saved(tmp_path, {"backbone": str(file)}, (6, 6))
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as watched:
        watched.setattr(torch.export, "load", lambda *_: pytest.fail("parsed"))
        with pytest.raises(BadInput, match=r"net.pt2: no program or model is opened on a head's word.*--backbone"):
            Predictor.open(head)
    assert Predictor.open(head, "net.pt2").scores(np.zeros((1, 6, 6))).shape == (1, 3)
