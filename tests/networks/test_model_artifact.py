"""Trained models as artifacts: digest, predictions, and files that are read back strictly."""

import hashlib
import struct

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from secagg.errors import BadInput
from secagg.heads import LinearHead, parse_safetensors, to_safetensors
from secagg.networks import TrainedModel, parse_artifact, program_named, read_model
from secagg.networks.programs import named_parameters
from tests.networks.models import PROGRAMS, every_program, some_parameters, some_records

PERCEPTRON = program_named("mlp:5", 7, 3)
MODEL = TrainedModel.of(PERCEPTRON, some_parameters(PERCEPTRON))
TEXTS = {"kind": "model", "program": "mlp:5", "inputs": "7", "outputs": "3"}


def changed(**tensors):
    """The model's tensors, some of them others."""
    return {**MODEL.tensors, **tensors}


@every_program
def test_file_gives_the_model_back(program):
    """A written model and its texts come back bit for bit, with the same digest."""
    model = TrainedModel.of(program, some_parameters(program))
    again, texts = read_model(to_safetensors(model, {"plan": "ab"}))
    assert again.program == program
    assert again.digest == model.digest
    assert all(again.tensors[name].tobytes() == tensor.tobytes() for name, tensor in model.tensors.items())
    assert texts["plan"] == "ab"


def test_digest_is_what_its_docstring_says():
    """The digest is that of one line and the tensors' numbers packed one by one."""
    line = b'["mlp:5",7,3,[["hidden.weight",[5,7]],["hidden.bias",[5]],["output.weight",[3,5]],["output.bias",[3]]]]\n'
    numbers = [float(number) for tensor in MODEL.tensors.values() for number in tensor.reshape(-1)]
    assert MODEL.digest == hashlib.sha256(line + struct.pack(f"<{len(numbers)}f", *numbers)).hexdigest()


def test_digest_tells_numbers_and_programs_apart():
    """One number's last bit, or another program of as many numbers, changes the digest."""
    weight = MODEL.tensors["hidden.weight"].copy()
    weight[4, 6] = np.nextafter(weight[4, 6], np.float32(9))
    assert TrainedModel(PERCEPTRON, changed(**{"hidden.weight": weight})).digest != MODEL.digest
    one, other = (program_named("softmax", *shape) for shape in ((5, 2), (2, 4)))
    assert one.size == other.size
    assert TrainedModel.of(one, np.zeros(12)).digest != TrainedModel.of(other, np.zeros(12)).digest


@every_program
def test_predictions_are_the_largest_scores_of_the_program(program):
    """Over more rows than a block holds, scores are the program's in float32, and predictions their largest."""
    model = TrainedModel.of(program, some_parameters(program))
    records, labels = some_records(program, 300)
    parameters = named_parameters(program, torch.tensor(some_parameters(program), dtype=torch.float32))
    expected = program.logits(parameters, torch.tensor(records)).numpy()
    features = records.astype(np.float64)
    scores = model.scores(features)
    assert scores.dtype == np.float64
    assert np.allclose(scores, expected, atol=1e-4)
    assert model.predict(features).tolist() == scores.argmax(axis=1).tolist()
    assert model.evaluate(features, labels).correct == int((scores.argmax(axis=1) == labels).sum())


def test_records_of_another_size_are_refused():
    """Nothing is predicted for records of another length; no records have no predictions, and no accuracy."""
    for features in (np.zeros((2, 6)), np.zeros(7), np.zeros((1, 7, 1))):
        with pytest.raises(BadInput, match="takes 7 features"):
            MODEL.scores(features)
    assert MODEL.scores(np.zeros((0, 7))).shape == (0, 3)
    assert MODEL.predict(np.zeros((0, 7))).shape == (0,)
    with pytest.raises(BadInput, match="cannot evaluate"):
        MODEL.evaluate(np.zeros((0, 7)), np.zeros(0, np.int64))


def test_fit_is_of_classes_and_features():
    """A plan of other classes or features is refused."""
    MODEL.require_fit(3, 7)
    for other in ((3, 8), (2, 7), (7, 3)):
        with pytest.raises(BadInput, match="3 classes and 7 features"):
            MODEL.require_fit(*other)


def test_close_is_the_same_program_but_for_rounding():
    """Rounding leaves models close; another number, another program and a head do not."""
    flat = some_parameters(PERCEPTRON)
    assert MODEL.is_close_to(TrainedModel.of(PERCEPTRON, flat * (1 + 1e-6)))
    flat[-1] += 0.1
    assert not MODEL.is_close_to(TrainedModel.of(PERCEPTRON, flat))
    softmax = program_named("softmax", 7, 3)
    as_softmax = TrainedModel.of(softmax, some_parameters(softmax))
    assert not MODEL.is_close_to(as_softmax)
    assert not as_softmax.is_close_to(LinearHead(as_softmax.tensors["weight"], as_softmax.tensors["bias"]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e39])
def test_state_that_left_the_finite_float32_numbers_is_no_model(bad):
    """NaN, an infinity, or what float32 cannot hold, makes no model."""
    flat = some_parameters(PERCEPTRON)
    flat[3] = bad
    with pytest.raises(BadInput, match="NaN or infinite"):
        TrainedModel.of(PERCEPTRON, flat)


def test_state_of_another_length_is_no_model():
    """Too few or too many numbers make no model."""
    for size in (PERCEPTRON.size - 1, PERCEPTRON.size + 1):
        with pytest.raises(BadInput, match=f"has {PERCEPTRON.size} parameters"):
            TrainedModel.of(PERCEPTRON, np.zeros(size))


@pytest.mark.parametrize(
    "tensors",
    [
        changed(**{"hidden.bias": np.zeros(6, np.float32)}),
        changed(**{"hidden.bias": np.zeros((5, 1), np.float32)}),
        changed(**{"hidden.bias": np.zeros(5)}),
        changed(**{"hidden.bias": np.zeros(5, np.int32)}),
        changed(**{"hidden.bias": np.full(5, np.nan, np.float32)}),
        changed(**{"hidden.bias": np.full(5, np.inf, np.float32)}),
        changed(more=np.zeros(5, np.float32)),
        {name: tensor for name, tensor in MODEL.tensors.items() if name != "output.bias"},
        {f"own.{name}": tensor for name, tensor in MODEL.tensors.items()},
        {},
    ],
    ids=["longer", "deeper", "float64", "integers", "NaN", "infinite", "one more", "one less", "renamed", "none"],
)
def test_other_tensors_are_no_model(tensors):
    """Tensors of other names, shapes, types or values are refused, from a file too."""
    with pytest.raises(BadInput):
        TrainedModel(PERCEPTRON, tensors)
    with pytest.raises(BadInput):
        read_model(save(tensors, metadata=TEXTS))


@pytest.mark.parametrize(
    "texts",
    [
        {"kind": "head"},
        {"kind": ""},
        {"program": "mlp:6"},
        {"program": "softmax"},
        {"program": "resnet"},
        {"program": ""},
        {"program": "cnn"},
        {"program": "mlp:999999"},
        {"inputs": "8"},
        {"inputs": "07"},
        {"inputs": "7.0"},
        {"inputs": "-7"},
        {"inputs": "999999999"},
        {"inputs": "9" * 5000},
        {"outputs": ""},
        {"outputs": "1"},
        {"outputs": "4"},
    ],
    ids=lambda texts: str(texts)[:40],
)
def test_other_texts_are_no_model(texts):
    """A file that says that its tensors are of something else, or says it otherwise, is refused."""
    assert read_model(save(dict(MODEL.tensors), metadata=TEXTS))[0].digest == MODEL.digest
    with pytest.raises(BadInput):
        read_model(save(dict(MODEL.tensors), metadata=TEXTS | texts))
    for name in texts:
        with pytest.raises(BadInput):
            read_model(save(dict(MODEL.tensors), metadata={key: TEXTS[key] for key in TEXTS if key != name}))


def test_damaged_file_is_refused_or_tells_by_its_digest():
    """A file cut short or without metadata is refused; a changed byte of its numbers changes the digest."""
    content = to_safetensors(MODEL, {})
    for length in (0, 7, 8, 100, len(content) - 1):
        with pytest.raises(BadInput):
            read_model(content[:length])
    with pytest.raises(BadInput):
        read_model(content + b"\0")
    with pytest.raises(BadInput):
        read_model(save(dict(MODEL.tensors)))
    tampered = content[:-4] + bytes([content[-4] ^ 1]) + content[-3:]
    assert read_model(tampered)[0].digest != MODEL.digest


def test_texts_of_a_plan_do_not_hide_what_the_file_holds():
    """What a file says of its program is the model's own, whatever other texts it is given."""
    assert read_model(to_safetensors(MODEL, {"program": "cnn", "kind": "head", "x": "y"}))[1] == TEXTS | {"x": "y"}


def test_heads_and_models_are_told_apart():
    """A file is read as the head or the model that it is."""
    head = LinearHead(np.ones((2, 3), np.float32), np.zeros(2, np.float32))
    assert isinstance(parse_artifact(to_safetensors(head, {"method": "fedcgs"}))[0], LinearHead)
    for program in PROGRAMS:
        model = TrainedModel.of(program, some_parameters(program))
        assert parse_artifact(to_safetensors(model, {}))[0].digest == model.digest
    with pytest.raises(BadInput, match="a head has"):
        parse_safetensors(to_safetensors(MODEL, {}))
