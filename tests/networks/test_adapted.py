"""Adapters in real encoders: where they sit, what they add, what programs of them say, and the files that hold them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.features import BOTTLENECK, LORA, Encoder, open_backbone
from secagg.features.encoder import tell_places
from secagg.heads import parse_tensors, to_safetensors
from secagg.networks import TrainedModel, program_named, read_model
from secagg.networks.adapted import Dual, EncoderAdapter, SharedAdapter, WithHead
from secagg.networks.trained_model import CONFIG, HEAD_FILE, WEIGHTS, write_adapter
from tests.worlds.encoders import ARCHITECTURES, PLACES, SIDE, save_encoder

LENGTH = 3 * SIDE**2 + 256
SEED = bytes(range(32))
KINDS = (BOTTLENECK, LORA)
every_encoder = pytest.mark.parametrize("architecture", ARCHITECTURES)
either_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Encoder]:
    """Tiny ones of the real classes, with random weights."""
    made, found = tmp_path_factory.mktemp("encoders"), {}
    for architecture in ARCHITECTURES:
        opened = open_backbone(f"transformers:{save_encoder(made / architecture, architecture)}", (LENGTH,))
        assert isinstance(opened, Encoder)
        found[architecture] = opened
    return found


def some_records(encoder: Encoder, count: int = 3) -> np.ndarray:
    """Prepared records: pictures of noise, texts of a few words."""
    stored = np.random.default_rng(0).integers(0, 256, (count, LENGTH), dtype=np.uint8)
    stored[:, -256:] = 0
    for row, text in enumerate(("what is this ?", "how many ?", "which digit is this ?")[:count]):
        stored[row, -256 : -256 + len(text)] = np.frombuffer(text.encode(), dtype=np.uint8)
    return encoder.prepare(stored)


def some_model(program: Dual | WithHead | SharedAdapter) -> TrainedModel:
    """Parameters none of which is 0, but for the start's own bounds."""
    return TrainedModel.of(program, program.start(SEED) + np.random.default_rng(1).normal(size=program.size) * 0.1)


@every_encoder
@either_kind
def test_places_are_found_by_type(encoders: dict[str, Encoder], architecture: str, kind: str) -> None:
    """After every layer's feed-forward block, or beside each query and value: as many as the architecture has."""
    found = encoders[architecture].places(kind)
    wide = PLACES[architecture].replace("2x", "4x") if kind == LORA else PLACES[architecture]
    assert tell_places(found) == wide
    last = {name.rpartition(".")[2] for name, _ in ((place.name, place.width) for place in found)}
    assert last <= ({"query", "value", "q_proj", "v_proj"} if kind == LORA else {"output", "mlp"})


@every_encoder
@either_kind
def test_an_adapter_that_adds_nothing_changes_nothing(
    encoders: dict[str, Encoder], architecture: str, kind: str
) -> None:
    """With zeros the pooled output is the encoder's own, bit for bit, and with other numbers another."""
    encoder = encoders[architecture]
    adapter = EncoderAdapter(kind, 3, tell_places(encoder.places(kind)))
    x = torch.from_numpy(some_records(encoder))
    before = encoder.pooled(x)
    for scale, same in ((0.0, True), (0.3, False)):
        tensors = {name: torch.full(shape, scale) for name, shape in adapter.shapes("shared").items()}
        with encoder.changed(adapter.changes(encoder, tensors, {"shared": 1.0})):
            assert torch.equal(encoder.pooled(x), before) == same
    assert torch.equal(encoder.pooled(x), before)


@every_encoder
@either_kind
def test_lora_of_files_is_the_merged_model(
    encoders: dict[str, Encoder], tmp_path: Path, architecture: str, kind: str
) -> None:
    """What is written loads into plain transformers by the modules' names, and gives the model's own scores."""
    encoder = encoders[architecture]
    adapter = EncoderAdapter(kind, 3, tell_places(encoder.places(kind)))
    model = some_model(Dual(encoder.dimension, 4, adapter))
    x = some_records(encoder)
    expected = TrainedModel(model.program.over(encoder), model.parameters).scores(x)  # type: ignore[attr-defined]
    write_adapter(model, encoder, tmp_path / "out")
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    tensors, _ = parse_tensors((tmp_path / "out" / WEIGHTS).read_bytes())
    head, _ = parse_tensors((tmp_path / "out" / HEAD_FILE).read_bytes())
    loaded = open_backbone(f"transformers:{encoder.files.folder}", (LENGTH,))
    assert isinstance(loaded, Encoder)
    modules = dict(loaded.module.named_modules())
    assert config["target_modules"] == [place.name for place in encoder.places(kind)]
    for name in config["target_modules"]:
        given = {key: torch.tensor(tensor) for key, tensor in tensors.items()}
        if kind == LORA:  # as peft merges it
            a, b = (given[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
            modules[name].weight.data += config["lora_alpha"] / config["r"] * b @ a  # type: ignore[union-attr, operator]
            assert len(a) == config["r"] == 6
        else:
            modules[name].register_forward_hook(
                lambda _module, _given, h, name=name, given=given: (
                    h
                    + torch.relu(h @ given[f"{name}.down.weight"].T + given[f"{name}.down.bias"])
                    @ given[f"{name}.up.weight"].T
                    + given[f"{name}.up.bias"]
                )
            )
    pooled = loaded.pooled(torch.from_numpy(x)).detach().numpy()
    assert np.allclose(pooled @ head["weight"].T + head["bias"], expected, atol=1e-4)
    with pytest.raises(FileExistsError):
        write_adapter(model, encoder, tmp_path / "out")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", [SharedAdapter, WithHead, Dual])
def test_models_are_files(kind: str, made: type[Dual]) -> None:
    """A program of adapters is known by its name, and its file reads back with every number."""
    program = made(16, 3, EncoderAdapter(kind, 3, "2x16+1x8"))
    assert program_named(program.name, 16, 3) == program
    model = some_model(program)
    again, texts = read_model(to_safetensors(model, {}))
    assert again.digest == model.digest
    assert texts["program"] == program.name


def test_an_adapter_alone_predicts_nothing(encoders: dict[str, Encoder]) -> None:
    """Without its encoder it says so; the shared one has no head at all."""
    adapter = EncoderAdapter(BOTTLENECK, 3, PLACES["vilt"])
    with pytest.raises(BadInput, match="predicts nothing without its encoder"):
        some_model(WithHead(16, 3, adapter)).predict(np.zeros((1, 16)))
    assert not some_model(SharedAdapter(16, 3, adapter)).predicts
    assert some_model(WithHead(16, 3, adapter)).predicts


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        (EncoderAdapter(BOTTLENECK, 3, "3x16"), "has the places 2x16 for bottleneck adapters, the plan says 3x16"),
        (EncoderAdapter(LORA, 3, "2x16"), "has the places 4x16 for lora adapters"),
    ],
    ids=str,
)
def test_another_encoder_is_refused(encoders: dict[str, Encoder], adapter: EncoderAdapter, words: str) -> None:
    """Places and pooled width must be the plan's."""
    with pytest.raises(BadInput, match=words):
        WithHead(16, 3, adapter).over(encoders["vilt"])
    with pytest.raises(BadInput, match="gives 16 numbers, the adapters are for 8"):
        WithHead(8, 3, EncoderAdapter(BOTTLENECK, 3, "2x16")).over(encoders["vilt"])


@pytest.mark.parametrize("name", ["bottleneck:3", "bottleneck:0:2x16", "lora:3:2x", "whole:3:2x16", "dual-mlp:3:2x16"])
def test_other_names_are_no_programs(name: str) -> None:
    """Nothing is guessed of a file's words."""
    with pytest.raises(BadInput):
        program_named(name, 16, 3)
