"""`secagg predict` with a trained model in place of a head."""

from pathlib import Path

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features.pipeline import Pipeline
from secagg.heads import to_safetensors
from secagg.networks import TrainedModel, program_named
from tests.cli.command import Command


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Records of two classes, and a model with a plan's texts that tells them by their first number's sign."""
    labels = np.arange(100) % 2
    features = np.column_stack([2.0 * labels - 1, np.random.default_rng(0).normal(size=(100, 2))])
    np.savez(tmp_path / "own.npz", features=features, labels=labels)
    dataset = open_dataset(str(tmp_path / "own.npz"))
    run = simulate_dataset(dataset, SimulationSettings(clients=2, protection="none", radius=20.0))
    assert run.federated is not None
    metadata = Pipeline.of_plan(run.federated.setup.plan).to_metadata()
    model = TrainedModel.of(program_named("mlp:2", 3, 2), np.array([1, 0, 0, -1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0], float))
    (tmp_path / "model.safetensors").write_bytes(to_safetensors(model, metadata))
    wide = TrainedModel.of(program_named("softmax", 4, 2), np.zeros(10))
    (tmp_path / "wide.safetensors").write_bytes(to_safetensors(wide, metadata))
    return tmp_path


def test_model_predicts_as_a_head_does(secagg: Command, home: Path) -> None:
    """The accuracy and the names of the classes are those of the model's rule."""
    said = secagg("predict", "--head", home / "model.safetensors", "--data", home / "own.npz", "--out", home / "names",
                  "--quiet", "--json", "-")  # fmt: skip
    assert (said.code, said.err) == (0, "")
    assert (said.json["records"], said.json["correct"]) == (100, 100)
    assert (home / "names").read_text().split() == ["0", "1"] * 50


def test_model_for_other_features_is_one_line(secagg: Command, home: Path) -> None:
    """A model whose program takes other records than its texts say is refused in one line, and so is a damaged file."""
    said = secagg("predict", "--head", home / "wide.safetensors", "--data", home / "own.npz", "--quiet")
    assert said.code == 2
    assert "takes 4 features" in said.complaint
    content = (home / "model.safetensors").read_bytes()
    (home / "short.safetensors").write_bytes(content[:-1])
    said = secagg("predict", "--head", home / "short.safetensors", "--data", home / "own.npz", "--quiet")
    assert said.code == 2
    assert "short.safetensors: not a safetensors file" in said.complaint
