"""Programs from files: trained from their own weights, known by their digest, and refused where records could mix."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from secagg.errors import BadInput
from secagg.heads import to_safetensors
from secagg.networks import (
    Program,
    TrainedModel,
    TrainingSettings,
    parse_artifact,
    program_named,
    record_gradients,
    train,
)
from secagg.networks.exported import admit, planned_programs
from secagg.networks.programs import named_parameters
from tests.networks.exports import SmallCNN, export, export_seeded, perceptron
from tests.networks.models import SEED, seeded, some_parameters, some_records

KINDS = {"cnn": 64, "mlp": 6}
every_kind = pytest.mark.parametrize("kind", KINDS)


def opened(kind: str, folder: Path, *, dynamic: bool = True) -> Program:
    """The program of a file that is at hand."""
    return program_named(admit(export_seeded(kind, folder / f"{kind}.pt2", 3, dynamic=dynamic)), KINDS[kind], 3)


def named(program: Program, flat: np.ndarray) -> dict[str, torch.Tensor]:
    """Parameters by name."""
    return named_parameters(program, torch.tensor(flat, dtype=torch.float32))


@every_kind
def test_program_is_the_network_of_the_file(kind: str, tmp_path: Path) -> None:
    """Its name is the file's SHA-256, it starts at the file's weights, and gives the network's scores of x·√d."""
    program = opened(kind, tmp_path)
    file = tmp_path / f"{kind}.pt2"
    assert program.name == f"pt2:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert planned_programs(f"model={file} clip=1") == f"model={program.name} clip=1"
    assert planned_programs(f"fixed=model={file};clip=1") == f"fixed=model={program.name};clip=1"
    network = torch.export.load(file).module()
    own = torch.cat([each.reshape(-1) for each in network.parameters()]).detach().numpy()
    assert program.start(SEED).tobytes() == own.astype(np.float64).tobytes()
    x = np.random.default_rng(0).normal(size=(5, KINDS[kind])).astype(np.float32)
    shaped = torch.tensor(x * np.float32(math.sqrt(KINDS[kind]))).reshape((5, 1, 8, 8) if kind == "cnn" else (5, 6))
    found = program.logits(named(program, program.start(SEED)), torch.tensor(x))
    assert torch.allclose(found, network(shaped), atol=1e-5)


def test_colours_lie_beside_each_other_in_a_record(tmp_path: Path) -> None:
    """A record is an image as `pixels` has it, channels last; the program gets them first."""

    class Red(nn.Module):
        """Twice the first channel's mean, with a weight."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            """(n, 3, 4, 4) → (n, 2)."""
            return images[:, 0].mean(dim=(1, 2))[:, None] * self.weight

    program = program_named(admit(export(Red(), tmp_path / "red.pt2", 3, 4, 4)), 48, 2)
    image = np.zeros((1, 4, 4, 3), dtype=np.float32)
    image[..., 0] = 1
    scores = program.logits(named(program, program.start(SEED)), torch.tensor(image.reshape(1, 48)))
    assert torch.allclose(scores, torch.full((1, 2), math.sqrt(48)))


@every_kind
def test_record_gradient_has_the_same_bits_in_any_company(kind: str, tmp_path: Path) -> None:
    """Alone, among others, and at another place, a record's gradient is bit for bit the same, and is autograd's."""
    program = opened(kind, tmp_path)
    (records, labels), flat = some_records(program, 20), some_parameters(program)
    together = np.concatenate(list(record_gradients(program, flat, records, labels)))
    for rows in ([19], [0, 7], list(range(19, -1, -1))):
        some = np.concatenate(list(record_gradients(program, flat, records[rows], labels[rows])))
        assert some.tobytes() == together[rows].tobytes()
    leaf = torch.tensor(flat, dtype=torch.float32, requires_grad=True)
    x, label = torch.tensor(records[3:4]), torch.tensor(labels[3:4])
    loss = nn.functional.cross_entropy(program.logits(named_parameters(program, leaf), x), label)
    (expected,) = torch.autograd.grad(loss, leaf)
    assert np.allclose(together[3], expected.numpy(), atol=1e-5)


@every_kind
def test_training_learns(kind: str, tmp_path: Path) -> None:
    """From the file's weights a program comes to tell the classes of its records apart."""
    program = opened(kind, tmp_path)
    records, labels = some_records(program, 60)
    inputs = records / np.linalg.norm(records, axis=1, keepdims=True)
    trained = train(program, program.start(SEED), inputs, labels, TrainingSettings(30, 0.05, 10), seeded("exported"))
    model = TrainedModel.of(program, trained)
    before = TrainedModel.of(program, program.start(SEED)).evaluate(inputs.astype(np.float64), labels).accuracy
    assert model.evaluate(inputs.astype(np.float64), labels).accuracy > max(0.9, before)


@every_kind
def test_batch_of_one_is_enough(kind: str, tmp_path: Path) -> None:
    """A program that was exported for one record gives what the same one for any number of them gives."""
    (tmp_path / "one").mkdir()
    any_, one = opened(kind, tmp_path), opened(kind, tmp_path / "one", dynamic=False)
    assert any_.name != one.name
    records, _ = some_records(any_, 9)
    scores = [each.logits(named(each, each.start(SEED)), torch.tensor(records)) for each in (any_, one)]
    assert torch.allclose(*scores, atol=1e-5)


def test_frozen_parameters_stay(tmp_path: Path) -> None:
    """What the network has frozen is neither trained nor sent, and is in its scores."""
    torch.manual_seed(1)
    network = perceptron(6, 3)
    network[0].requires_grad_(requires_grad=False)  # type: ignore[index]
    program = program_named(admit(export(network, tmp_path / "frozen.pt2", 6)), 6, 3)
    assert list(program.shapes) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    records, labels = some_records(program, 8)
    scores = program.logits(named(program, program.start(SEED)), torch.tensor(records))
    assert torch.allclose(scores, network(torch.tensor(records) * math.sqrt(6)), atol=1e-5)
    assert len(next(record_gradients(program, program.start(SEED), records, labels))[0]) == program.size == 10 + 18


@every_kind
def test_trained_model_comes_back_from_its_file(kind: str, tmp_path: Path) -> None:
    """A file of the trained tensors names the program by digest, and reads back where that is at hand."""
    program = opened(kind, tmp_path)
    model = TrainedModel.of(program, some_parameters(program))
    again, texts = parse_artifact(to_safetensors(model, {}))
    assert isinstance(again, TrainedModel)
    assert (again.digest, texts["program"]) == (model.digest, program.name)


def test_program_that_nobody_gave_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest without its file is refused, and so is a name that is none; nothing is parsed before a plan asks."""
    monkeypatch.setattr(torch.export, "load", lambda *_: pytest.fail("parsed"))
    name = admit(export_seeded("mlp", tmp_path / "own.pt2", 3))
    with pytest.raises(BadInput, match=rf"{'ab' * 32} is not at hand.*give its file with --model"):
        program_named(f"pt2:{'ab' * 32}", 6, 3)
    for wrong in ("pt2:", "pt2:ab", name.upper(), f"{name}0", name.replace("pt2:", "pt2:/")):
        with pytest.raises(BadInput, match="there is no program"):
            program_named(wrong, 6, 3)
    with pytest.raises(BadInput, match="cannot read the model"):
        planned_programs(f"model={tmp_path / 'none.pt2'}")


class Keeping(nn.Module):
    """Writes what it saw into a weight that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.kept = nn.Linear(6, 3), nn.Parameter(torch.zeros(3), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores and what was seen before."""
        scores: torch.Tensor = self.layer(x)
        self.kept.detach().add_(scores.detach().mean(dim=0))
        return scores + self.kept


class Counting(nn.Module):
    """Counts its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores and the count."""
        self.seen.add_(1)  # type: ignore[operator]
        scores: torch.Tensor = self.layer(x) + self.seen
        return scores


class Doing(nn.Module):
    """A linear layer and after it what a test says."""

    def __init__(self, rule: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.rule = nn.Linear(6, 3), rule

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The rule of the scores."""
        return self.rule(self.layer(x))


def tied() -> nn.Module:
    """Two layers with one weight."""
    network = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
    network[2].weight = network[0].weight
    return network


def with_nan() -> nn.Module:
    """A weight that is no number."""
    network = perceptron(6, 3)
    nn.init.constant_(network[0].weight, math.nan)  # type: ignore[index, arg-type]
    return network


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), "has batch norm"),
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval(), "has batch norm"),
        (lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 3)), "draws at random .aten.dropout"),
        (lambda: nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 3)).eval(), "draws at random"),
        (lambda: Doing(lambda y: y + torch.rand_like(y)), "draws at random"),
        (Counting, "changes seen of its own"),
        (Keeping, "changes kept of its own"),
        (lambda: Doing(lambda y: y + 0 * torch.empty(3)), "memory that nobody has written .aten.empty"),
        (lambda: Doing(lambda y: y + 0 * y.new_empty(3)), "memory that nobody has written .aten.new_empty"),
        (lambda: Doing(lambda y: y + 0 * torch.empty_like(y)), "memory that nobody has written .aten.empty_like"),
        (lambda: perceptron(6, 3).double(), "as torch.float64"),
        (lambda: Doing(lambda y: y.half()), "torch.float16 for one record"),
        (lambda: perceptron(6, 4), r"puts out \(1, 4\)"),
        (lambda: Doing(lambda y: y[:, None]), r"puts out \(1, 1, 3\)"),
        (lambda: Doing(lambda y: y - y.mean(dim=0)), "other scores with another one beside it"),
        (lambda: perceptron(6, 3).requires_grad_(requires_grad=False), "no parameter to train"),
        (lambda: Doing(lambda y: y.detach()), "no parameter moves"),
        (tied, "in two places"),
        (with_nan, "NaN"),
    ],
)
def test_what_records_could_share_is_refused(tmp_path: Path, network: Callable[[], nn.Module], words: str) -> None:
    """Layers that look at other records or at chance, changing buffers and other numbers or shapes are refused."""
    made = network()
    dtype = next(made.parameters()).dtype
    file, records = tmp_path / "wrong.pt2", torch.rand(2, 6, dtype=dtype)
    sizes = ({0: torch.export.Dim("records")},)
    torch.export.save(torch.export.export(made, (records,), dynamic_shapes=sizes), file)
    with pytest.raises(BadInput, match=words) as refusal:
        program_named(admit(file), 6, 3)
    assert str(file) in str(refusal.value)


class Attention(nn.Module):
    """Self-attention over the six numbers of a record, by torch's own operator, which could drop out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.output = nn.Linear(1, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 6) → (n, 3)."""
        tokens = self.embed(x[:, :, None])
        scores: torch.Tensor = self.output(nn.functional.scaled_dot_product_attention(tokens, tokens, tokens).mean(1))
        return scores


def test_operator_that_could_drop_out_and_does_not_is_taken(tmp_path: Path) -> None:
    """Attention with a dropout of 0 draws nothing."""
    program = program_named(admit(export(Attention(), tmp_path / "attention.pt2", 6)), 6, 3)
    records, labels = some_records(program, 4)
    assert np.isfinite(next(record_gradients(program, program.start(SEED), records, labels))).all()


@pytest.mark.parametrize(("dimension", "words"), [(63, "shape 1×8×8, the plan's have 63"), (128, "have 128 numbers")])
def test_records_of_another_size_are_refused(tmp_path: Path, dimension: int, words: str) -> None:
    """A program takes records of its own size alone."""
    with pytest.raises(BadInput, match=words):
        program_named(admit(export(SmallCNN(3), tmp_path / "cnn.pt2", 1, 8, 8)), dimension, 3)


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    """Other bytes are refused as a model, with the file's name."""
    (tmp_path / "text.pt2").write_text("no program")
    with pytest.raises(BadInput, match=rf"the model {tmp_path}/text.pt2 is no exported program"):
        program_named(admit(tmp_path / "text.pt2"), 6, 3)
