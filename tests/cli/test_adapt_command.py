"""`secagg adapt` and `simulate --adapt`: the contract, a head that `predict` takes, and one line for what cannot be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.features.pipeline import Pipeline
from secagg.heads import head_digest, save_safetensors
from secagg.heads.export import load_safetensors
from tests.cli.command import Command

GENERATOR = np.random.default_rng(8)
NAMES = ("adaptation", "records", "held_out", "accuracy_before", "accuracy_before_interval", "accuracy_after",
         "accuracy_after_interval")  # fmt: skip


def write_data(path: Path, count: int = 60, dimension: int = 4, **changes: Any) -> None:
    """Records of two classes."""
    labels = np.arange(count) % 2
    features = GENERATOR.normal(size=(count, dimension)) + 2 * labels[:, None]
    np.savez(path, **{"features": features, "labels": labels, **changes})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A member's folder: records, and the heads of two sessions, one with class means."""
    write_data(tmp_path / "all.npz", 100)
    write_data(tmp_path / "own.npz")
    for name, parameters in (("head", "personalise=1"), ("plain", "")):
        settings = SimulationSettings(clients=2, parameters=parameters, protection="none", radius=20.0)
        run = simulate_dataset(open_dataset(str(tmp_path / "all.npz")), settings)
        assert run.head is not None
        assert run.federated is not None
        metadata = Pipeline.of_plan(run.federated.setup.plan).to_metadata() | {"method": "fedcgs"}
        save_safetensors(run.head, tmp_path / f"{name}.safetensors", metadata)
    return tmp_path


def arguments(home: Path, *more: object, head: str = "head", data: str = "own.npz") -> list[object]:
    """`adapt` of a head to records, with what else is given."""
    return ["adapt", "--head", home / f"{head}.safetensors", "--data", home / data,
            "--out", home / "adapted.safetensors", "--quiet", *more]  # fmt: skip


@pytest.mark.parametrize("how", [["--align", 1, "--shots", 8], ["--distil", 2, "--shots", 4]], ids=str)
def test_adapted_head_is_what_predict_takes(secagg: Command, home: Path, how: list[object]) -> None:
    """The JSON is the contract; the file holds another head, says how it was made, and predicts; twice is refused."""
    said = secagg(*arguments(home, *how, "--json", "-"))
    assert (said.code, said.err) == (0, "")
    assert tuple(said.json) == NAMES
    assert said.json["adaptation"] == ":".join(str(each) for each in (str(how[0])[2:], how[1], how[3]))
    assert (said.json["records"], said.json["held_out"]) == (60, 12)
    head, metadata = load_safetensors(home / "adapted.safetensors")
    received, before = load_safetensors(home / "head.safetensors")
    assert head_digest(head) != head_digest(received)
    assert metadata == before | {"adapted": said.json["adaptation"]}
    used = ["--head", home / "adapted.safetensors", "--data", home / "own.npz", "--quiet", "--json", "-"]
    predicted = secagg("predict", *used).json
    assert predicted["records"] == 60
    again = secagg(*arguments(home, *how, head="adapted"), "--out", home / "again.safetensors")
    assert again.code == 2
    assert "was adapted already" in again.complaint


def test_people_read_before_and_after(secagg: Command, home: Path) -> None:
    """Without --json the two accuracies stand in a table on stdout."""
    said = secagg(*arguments(home, "--distil", 1))
    assert said.code == 0
    assert "accuracy before" in said.out
    assert "accuracy after" in said.out


@pytest.mark.parametrize(
    ("more", "chosen", "words"),
    [
        ([], {}, "give --align LAMBDA or --distil BETA"),
        (["--align", 1, "--distil", 1], {}, "give --align LAMBDA or --distil BETA, not both"),
        (["--align", -1], {}, "0 or more"),
        (["--distil", "nan"], {}, "0 or more"),
        (["--distil", 1, "--shots", -1], {}, "shots"),
        (["--align", 1], {"head": "plain"}, "personalise=1"),
        (["--distil", 1], {"head": "none"}, "cannot read the head"),
        (["--distil", 1], {"data": "wide.npz"}, "the plan asks for features"),
        (["--distil", 1], {"data": "nan.npz"}, "nan.npz"),
        (["--distil", 1], {"data": "two.npz"}, "too few records"),
        (["--distil", 1], {"data": "more.npz"}, "the label is none of the plan's 2 classes"),
    ],
    ids=str,
)
def test_what_cannot_be_adapted_is_one_line(
    secagg: Command, home: Path, more: list[object], chosen: dict[str, str], words: str
) -> None:
    """Missing or wrong weights, a head without means, other data, NaN, too few records: exit code 2 and no file."""
    write_data(home / "wide.npz", dimension=5)
    write_data(home / "two.npz", 2)
    write_data(home / "nan.npz", features=np.full((60, 4), np.nan))
    write_data(home / "more.npz", labels=np.arange(60) % 3)
    said = secagg(*arguments(home, *more, **chosen))
    assert said.code == 2
    assert words in said.complaint
    assert not (home / "adapted.safetensors").exists()


@pytest.mark.parametrize("command", ["adapt", "predict"])
def test_head_for_pytorch_is_not_taken(secagg: Command, home: Path, command: str) -> None:
    """Given the copy for PyTorch, which says nothing of data, the line names the file to give."""
    how = ["--distil", 1, "--out", home / "out"] if command == "adapt" else []
    said = secagg(command, "--head", home / "head.pt", "--data", home / "own.npz", *how)
    assert said.code == 2
    assert "give head.safetensors" in said.complaint


def test_head_for_tables_says_what_it_takes(secagg: Command, home: Path) -> None:
    """Given arrays, a head for tables is answered by what it takes, not by options that there are not."""
    run = simulate_dataset(open_dataset("wine"), SimulationSettings(clients=2, protection="none"))
    assert run.head is not None
    assert run.federated is not None
    metadata = Pipeline.of_plan(run.federated.setup.plan).to_metadata() | {"method": "fedcgs"}
    save_safetensors(run.head, home / "wine.safetensors", metadata)
    said = secagg("predict", "--head", home / "wine.safetensors", "--data", home / "own.npz", "--quiet")
    assert said.code == 2
    assert "own.npz is an .npz file; the plan asks for a table of 13 columns and the label 'class'" in said.complaint


def test_adaptation_says_that_it_goes_on(secagg: Command, home: Path) -> None:
    """`simulate --adapt` says when clients begin to adapt."""
    said = secagg("simulate", "--dataset", home / "all.npz", "--clients", 2, "--adapt", "distil:1:4")
    assert "adapting the head to each client's records\n" in said.err


def test_a_file_that_is_there_is_not_overwritten(secagg: Command, home: Path) -> None:
    """The head of a session is not lost to a mistyped --out."""
    before = (home / "plain.safetensors").read_bytes()
    said = secagg(*arguments(home, "--distil", 1), "--out", home / "plain.safetensors")
    assert said.code == 2
    assert "is there already" in said.complaint
    assert (home / "plain.safetensors").read_bytes() == before


def test_simulate_adapts(secagg: Command, home: Path) -> None:
    """`simulate --adapt` adds local accuracies to the JSON and to what people read; without it they are null."""
    federation = ["simulate", "--dataset", home / "all.npz", "--clients", 2, "--quiet"]
    content = secagg(*federation, "--adapt", "distil:1:4", "--json", "-").json["adaptation"]
    assert content["how"] == "distil:1:4"
    assert content["clients"] == 2
    assert all(0 <= content[f"local_{when}"] <= 1 for when in ("before", "after", "only"))
    assert "adaptation, local after" in secagg(*federation, "--adapt", "distil:1:4").out
    assert secagg(*federation, "--json", "-").json["adaptation"] is None
    refused = secagg(*federation, "--adapt", "align:1")
    assert refused.code == 2
    assert "personalise=1" in refused.complaint
