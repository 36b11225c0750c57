"""Programs: what they compute, where they start, how they are named."""

import hashlib
import math
import struct

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.networks import program_named
from secagg.networks.programs import named_parameters
from secagg.networks.trained_model import PROGRAMS as FORMS
from tests.networks.models import PROGRAMS, SEED, every_program, some_parameters, some_records

STARTS = {
    "softmax of 7": "5d89f056865052bcb89c910d2d62872e029fb273c3db03f8968a52a41593c1b5",
    "mlp:5 of 7": "1c0093012f25ff4f20c87105496cd1a9254904fa4ebb64b1b7845fc1879fdf41",
    "cnn of 64": "a9ba09607f3bb2d7039e3a7e0bce94ce036f257b5c33eeaa76c22501dafc1377",
    "cnn of 243": "b86b8ca8e81f479fef743f70d2e74e28886261fb16db7a0f5aa9cc5326ba5e0f",
    "mlp-group:5 of 7": "ff24d6e30f736e5fdfc3a206332115ff987fd9fecf910ca860047248b557eabc",
    "cnn-group of 192": "2baf542da03a14a894a204a3f13239e8fa30031b1f54a2fce0761d2632769e1e",
}


def parameters_of(program, dtype=torch.float32):
    """Some parameters by name."""
    return named_parameters(program, torch.tensor(some_parameters(program), dtype=dtype))


@every_program
def test_gradient_is_that_of_finite_differences(program):
    """Along random directions the loss changes as its gradient says, to six digits in float64."""
    records, labels = some_records(program, 6)
    x, y = torch.tensor(records, dtype=torch.float64), torch.tensor(labels)

    def loss(flat):
        return torch.nn.functional.cross_entropy(program.logits(named_parameters(program, flat), x), y)

    flat = torch.tensor(some_parameters(program), requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(flat), flat)
    for seed in range(4):
        direction = torch.tensor(np.random.default_rng(seed).normal(size=program.size))
        with torch.no_grad():
            change = (loss(flat + 1e-7 * direction) - loss(flat - 1e-7 * direction)) / 2e-7
        assert float(change) == pytest.approx(float(gradient @ direction), rel=1e-6, abs=1e-7)


def test_softmax_and_perceptron_are_their_formulas():
    """Scores are Wx + b, and W₂·max(W₁x + b₁, 0) + b₂."""
    for program in PROGRAMS[:2]:
        records, _ = some_records(program, 9)
        tensors = {name: tensor.numpy() for name, tensor in parameters_of(program, torch.float64).items()}
        if program.name == "softmax":
            expected = records @ tensors["weight"].T + tensors["bias"]
        else:
            hidden = np.maximum(records @ tensors["hidden.weight"].T + tensors["hidden.bias"], 0)
            expected = hidden @ tensors["output.weight"].T + tensors["output.bias"]
        found = program.logits(parameters_of(program), torch.tensor(records)).numpy()
        assert np.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 9), (1, 28), (3, 32)])
def test_cnn_sees_images_as_pixels_gives_them(channels, side):
    """A flat record is an image (side, side, channels): torch's own layers on (channels, side, side) score the same."""
    program = program_named("cnn", channels * side * side, 3)
    images = np.random.default_rng(0).normal(size=(4, side, side, channels)).astype(np.float32)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(channels, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveMaxPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 3),
    )
    own = parameters_of(program)
    with torch.no_grad():
        for place, value in zip(network.parameters(), own.values(), strict=True):
            place.copy_(value)
        expected = network(torch.tensor(np.moveaxis(images, 3, 1)))
        found = program.logits(own, torch.tensor(images.reshape(4, -1)))
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("dimension", [64, 81, 784, 1024, 3072, 3 * 64 * 64, 3 * 224 * 224])
def test_cnn_stays_small(dimension):
    """At most 100,000 parameters for 226 classes, whatever the image's side."""
    assert program_named("cnn", dimension, 226).size <= 100_000


@every_program
def test_start_is_what_its_docstring_says(program):
    """Drawn number by number from SHAKE-256 in Python's own floats, a start has the same bits."""
    last = "output.weight"
    stream = hashlib.shake_256(SEED).digest(8 * program.size)
    expected, used = [], 0
    for name, shape in program.shapes.items():
        for _ in range(math.prod(shape)):
            if program.name == "softmax" or not name.endswith("weight"):
                expected.append(0.0)
                continue
            (word,) = struct.unpack_from("<Q", stream, used)
            used += 8
            inputs = math.prod(shape[1:]) + (shape[0] if name == last else 0)
            expected.append((2 * ((word >> 11) / 2**53) - 1) * math.sqrt(6 / inputs))
    assert program.start(SEED).tobytes() == np.array(expected).tobytes()


def test_starts_stay_as_they_are():
    """The starts' bytes of one seed are fixed for good."""
    found = {
        f"{program.name} of {program.dimension}": hashlib.sha256(
            program.start(SEED).astype("<f8").tobytes()
        ).hexdigest()
        for program in PROGRAMS
    }
    assert found == STARTS


@pytest.mark.parametrize("program", PROGRAMS[1:], ids=lambda program: f"{program.name} of {program.dimension}")
def test_start_takes_32_bytes_and_follows_them(program):
    """Another seed gives another start; a shorter or longer one is refused."""
    assert not np.array_equal(program.start(SEED), program.start(bytes(32)))
    for seed in (b"", bytes(31), bytes(33)):
        with pytest.raises(BadInput, match="32 bytes"):
            program.start(seed)


@every_program
def test_name_makes_the_program_again(program):
    """The name with d and C gives an equal program, whose size is that of its tensors."""
    assert program_named(program.name, program.dimension, program.classes) == program
    assert program.size == sum(math.prod(shape) for shape in program.shapes.values()) == len(program.start(SEED))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "vgg",
        "mlp",
        "mlp:",
        "mlp:0",
        "mlp:0128",
        "mlp:-1",
        "mlp:1:2",
        "MLP:8",
        "softmax:3",
        "mlp:１２",
        "mlp:9999999",
    ],
)
def test_unknown_name_is_answered_with_the_known_ones(name):
    """A name that is none, or one written otherwise, is refused with the forms that there are."""
    with pytest.raises(BadInput) as refused:
        program_named(name, 64, 3)
    assert all(form in str(refused.value) for form in FORMS)


@pytest.mark.parametrize("dimension", [1, 49, 63, 65, 128, 3 * 49, 2 * 64, 4 * 81 + 1])
def test_cnn_refuses_what_is_no_image(dimension):
    """Records that are no square image of side 8 or more with 1 or 3 channels are refused."""
    with pytest.raises(BadInput, match="square images"):
        program_named("cnn", dimension, 3)


@pytest.mark.parametrize(("dimension", "classes"), [(0, 3), (-1, 3), (7, 1), (7, 0)])
def test_program_takes_something_and_tells_something_apart(dimension, classes):
    """No features, or fewer than two classes, make no program."""
    with pytest.raises(BadInput):
        program_named("softmax", dimension, classes)
