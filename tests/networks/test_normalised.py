"""Normalised layers: torch's own layers score the same, and only what may depend on a batch does."""

import numpy as np
import pytest
import torch

from secagg.networks import program_named
from secagg.networks.programs import named_parameters
from tests.networks.models import some_parameters, some_records

BATCHED = [("mlp-batch:5", 7), ("cnn-batch", 64)]


def leaves(program, dtype=torch.float32):
    """Some parameters by name, their variances above 0."""
    named = named_parameters(program, torch.tensor(some_parameters(program), dtype=dtype))
    return {name: each.abs() if name.endswith("variance") else each for name, each in named.items()}


def layers_of(program, parameters):
    """torch's own normalisation of each layer, gains and variances taken from 1."""
    made = {}
    for layer, channels in program.layers.items():
        if program.by_batch:
            flat = layer == "hidden"
            made[layer] = (torch.nn.BatchNorm1d if flat else torch.nn.BatchNorm2d)(channels)
            made[layer].running_mean = parameters[f"{layer}.mean"].clone()
            made[layer].running_var = parameters[f"{layer}.variance"] + 1
        else:
            made[layer] = torch.nn.GroupNorm(1 if layer == "hidden" else channels // 4, channels)
        made[layer].weight.data = 1 + parameters[f"{layer}.gain"]
        made[layer].bias.data = parameters[f"{layer}.shift"].clone()
    return made


@pytest.mark.parametrize(("name", "dimension"), [("mlp-group:5", 7), ("cnn-group", 3 * 64), *BATCHED])
def test_layers_are_those_of_torch(name, dimension):
    """In training and in use scores are those of torch's own normalisation, and running statistics move alike."""
    program = program_named(name, dimension, 3)
    x, parameters = torch.tensor(some_records(program, 12)[0]), leaves(program)
    known = layers_of(program, parameters)
    for is_training in (True, False):
        for each in known.values():
            each.train(is_training)
        expected = program.embed(parameters, x, lambda layer, maps: known[layer](maps))
        if is_training:
            found = program.learn(parameters, x)
        else:
            found = program.logits(parameters, x)
            expected = program.classify(parameters, expected)
        assert torch.allclose(found, expected, atol=1e-4)
    for layer, each in known.items():
        if program.by_batch:
            assert torch.allclose(parameters[f"{layer}.mean"], each.running_mean, atol=1e-5)
            assert torch.allclose(parameters[f"{layer}.variance"] + 1, each.running_var, atol=1e-4)


@pytest.mark.parametrize(("name", "dimension"), [("mlp-group:5", 7), ("cnn-group", 64), *BATCHED])
def test_only_batch_normalisation_sees_a_batch(name, dimension):
    """By groups a record's embedding is the same alone and in company, also in training; by batch it is not."""
    program = program_named(name, dimension, 3)
    x, parameters = torch.tensor(some_records(program, 12)[0]), leaves(program)
    among, alone = program.learn(parameters, x)[:1], program.learn(parameters, x[:1])
    assert torch.allclose(among, alone, atol=1e-5) is not program.by_batch
    assert torch.allclose(program.logits(parameters, x)[:1], program.logits(parameters, x[:1]), atol=1e-5)


@pytest.mark.parametrize(("name", "dimension"), BATCHED)
def test_a_batch_of_one_goes_by_the_running_statistics(name, dimension):
    """One record has no variance: it neither fails nor moves the statistics."""
    program = program_named(name, dimension, 3)
    x, parameters = torch.tensor(some_records(program, 1)[0]), leaves(program)
    before = {key: each.clone() for key, each in parameters.items()}
    assert torch.isfinite(program.learn(parameters, x)).all()
    assert all(torch.equal(before[key], each) for key, each in parameters.items())


@pytest.mark.parametrize("channels", [1, 3])
def test_normalised_cnn_stays_small(channels):
    """At most 100,000 parameters for 200 classes of pictures of 32 pixels."""
    for name in ("cnn-group", "cnn-batch"):
        assert program_named(name, channels * 32 * 32, 200).size <= 100_000


def test_normalisation_is_named():
    """The tensors that may stay with a member are those of the normalisation, and all start at 0."""
    for name, dimension in (("cnn-group", 64), *BATCHED):
        program = program_named(name, dimension, 3)
        start = program.start(bytes(32))
        for key, row in named_parameters(program, torch.tensor(start)).items():
            assert (key in program.normalisation) == (key.split(".")[1] not in ("weight", "bias"))
            assert key not in program.normalisation or not row.any()
            assert np.isfinite(row.numpy()).all()
