"""`secagg generate`: pictures, a sheet and a classifier that `predict` takes, and one line for what cannot be."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from secagg.data import open_dataset
from secagg.errors import BadInput
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features.pipeline import Pipeline
from secagg.generation import Pictures, write_pictures
from secagg.heads import save_safetensors
from tests.cli.command import Command
from tests.networks.exports import export
from tests.worlds.diffusion import SIDE, WIDTH, pictures, save_diffusion


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's folder: the means of a session, the model, and pictures to try a classifier on."""
    folder = tmp_path_factory.mktemp("generate")
    made = pictures(per_cell=30)
    np.savez(folder / "all.npz", images=made["images"], labels=made["labels"])
    save_diffusion(folder / "model")
    settings = SimulationSettings(
        method="fedbip",
        backbone=f"diffusers:{folder / 'model'}",
        clients=3,
        parameters=f"slots=2 concepts=1 width={WIDTH} epochs=1",
        class_gate=2,
    )
    run = simulate_dataset(open_dataset(str(folder / "all.npz")), settings)
    assert run.head is not None
    assert run.federated is not None
    save_safetensors(run.head, folder / "head.safetensors", Pipeline.of_plan(run.federated.setup.plan).to_metadata())
    return folder


def test_pictures_a_sheet_and_a_classifier_are_written(home: Path, tmp_path: Path, secagg: Command) -> None:
    """And `predict` applies the classifier to pictures as they are."""
    out, model = tmp_path / "out", f"diffusers:{home / 'model'}"
    told = secagg("generate", "--head", str(home / "head.safetensors"), "--backbone", model, "--out", str(out),
                   "--count", "4", "--steps", "3", "--test", str(home / "all.npz"), "--json", "-")  # fmt: skip
    said = told.json
    assert said["pictures"] == 8
    assert 0 <= said["accuracy"] <= 1
    assert len(list((out / "pictures").rglob("*.png"))) == 8
    assert (out / "sheet.png").is_file()
    predicted = secagg("predict", "--head", str(out / "classifier.safetensors"), "--data", str(home / "all.npz"),
                        "--json", "-")  # fmt: skip
    assert predicted.json["accuracy"] == pytest.approx(said["accuracy"])


def test_an_exported_network_is_fine_tuned(home: Path, tmp_path: Path, secagg: Command) -> None:
    """The classifier is the file's network, moved from the file's weights; `predict` takes it with the same file."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 2))
    file, out = export(network, tmp_path / "own.pt2", 3, SIDE, SIDE), tmp_path / "out"
    told = secagg("generate", "--head", home / "head.safetensors", "--backbone", f"diffusers:{home / 'model'}",
                  "--out", out, "--count", "4", "--steps", "3", "--test", home / "all.npz", "--model", file,
                  "--json", "-")  # fmt: skip
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert f"{file} is code, which runs now with your rights; its SHA-256 is {digest}" in told.err
    trained = load_file(out / "classifier.safetensors")["1.weight"]
    moved = np.abs(trained - network[1].weight.detach().numpy())
    assert 0 < moved.max() < 1
    assert np.median(moved) < np.median(np.abs(trained))
    known = ("predict", "--head", out / "classifier.safetensors", "--data", home / "all.npz", "--json", "-")
    assert secagg(*known, "--model", file).json["accuracy"] == pytest.approx(told.json["accuracy"])


def test_a_network_that_cannot_be_the_classifier_is_refused(home: Path, tmp_path: Path, secagg: Command) -> None:
    """One for other pictures, a file that is none, and one beside --no-classify: before a picture is made."""
    wrong = export(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(27, 2)), tmp_path / "small.pt2", 3, 3, 3)
    (tmp_path / "text.pt2").write_text("no program", encoding="utf-8")
    given = ("generate", "--head", home / "head.safetensors", "--backbone", f"diffusers:{home / 'model'}",
             "--out", tmp_path / "out", "--model")  # fmt: skip
    for words, reason in (
        ((wrong,), "takes records of shape 3×3×3"),
        ((tmp_path / "text.pt2",), "text.pt2"),
        ((tmp_path / "absent.pt2",), "absent.pt2"),
        ((wrong, "--no-classify"), "no classifier to train"),
    ):
        told = secagg(*given, *words)
        assert told.code == 2
        assert reason in told.err.splitlines()[-1]
        assert "Traceback" not in told.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"--head": "model/vae/diffusion_pytorch_model.safetensors"}, "no means of slots"),
        ({"--backbone": "diffusers:elsewhere"}, "no vae/"),
        ({"--backbone": "pixels"}, "digest"),
        ({"--strength": "0"}, "strength"),
    ],
)
def test_what_cannot_be_is_one_line(
    secagg: Command, home: Path, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    """Another file, no model, another backbone, a strength of nothing: exit code 2, and nothing is written."""
    given = {"--head": "head.safetensors", "--backbone": f"diffusers:{home / 'model'}"} | changes
    given["--head"] = str(home / given["--head"])
    words = [word for pair in given.items() for word in pair]
    told = secagg("generate", *words, "--out", tmp_path / "out")
    assert told.code == 2
    assert reason in told.complaint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../escaped", "..", ".", "/absolute", "a\\b", "c:d"])
def test_a_class_names_no_place_elsewhere(name: str, tmp_path: Path) -> None:
    """Names of classes come from the plan: one that leads out of the folder is refused, and nothing is written."""
    made = Pictures(np.zeros((1, 8, 8, 3), dtype=np.uint8), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    with pytest.raises(BadInput, match="cannot be the name of a folder"):
        write_pictures(made, [name], tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
