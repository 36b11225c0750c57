"""Programs that project records: what they compute, classes without a prototype, and a model among more classes."""

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.heads import to_safetensors
from secagg.networks import TrainedModel, parse_artifact, program_named
from secagg.networks.projection import ByHead, MostSimilar, Nearest
from tests.networks.models import SEED, some_records

SHAPE = 7, 3, 5
FORMS = {"similar:5": MostSimilar(*SHAPE), "nearest:5": Nearest(*SHAPE), "projected:5": ByHead(*SHAPE)}
every_program = pytest.mark.parametrize("program", FORMS.values(), ids=FORMS)


def model_of(program):
    """The program as it starts."""
    return TrainedModel.of(program, program.start(SEED))


def projected(model, records):
    """z by hand."""
    raised = np.maximum(records.astype(np.float64) @ model.parameters["weight"].astype(np.float64).T, 0)
    return raised / np.linalg.norm(raised, axis=1, keepdims=True)


@every_program
def test_name_makes_the_program_again(program):
    """The name with d and C gives an equal program, and a file of it the same model."""
    assert program_named(program.name, 7, 3) == program
    assert FORMS[program.name] == program
    model = model_of(program)
    assert parse_artifact(to_safetensors(model, {}))[0].digest == model.digest


@every_program
def test_prediction_is_the_rule_by_hand(program):
    """The largest product, the smallest distance, or the head's largest score, of ReLU(Wx) divided by its length."""
    model, (records, _) = model_of(program), some_records(program, 60)
    z = projected(model, records)
    if isinstance(program, ByHead):
        expected = z @ model.parameters["head.weight"].T + model.parameters["head.bias"]
    elif isinstance(program, MostSimilar):
        expected = z @ model.parameters["prototypes"].T
    else:
        expected = -np.linalg.norm(z[:, None] - model.parameters["prototypes"], axis=2)
    assert np.array_equal(model.predict(records.astype(np.float64)), np.argmax(expected, axis=1))


@pytest.mark.parametrize("name", ["similar:5", "nearest:5"])
def test_class_without_a_prototype_is_never_predicted(name):
    """Zeros stand for none, also where every other class is as far as can be."""
    model = model_of(FORMS[name])
    prototypes = -np.abs(model.parameters["prototypes"])
    prototypes[1] = 0
    records = np.random.default_rng(0).normal(size=(200, 7))
    without = TrainedModel(model.program, {**model.parameters, "prototypes": prototypes})
    assert 1 not in without.predict(records)


@every_program
def test_model_among_more_classes_predicts_its_own_alone(program):
    """Its classes get other numbers, nothing else changes, and the classes in between are never predicted."""
    model, (records, _) = model_of(program), some_records(program, 60)
    wide = model.among(np.array([0, 2, 5]), 6)
    wide.require_fit(6, 7)
    records = records.astype(np.float64)
    assert np.array_equal(wide.predict(records), np.array([0, 2, 5])[model.predict(records)])


@every_program
def test_record_without_a_direction_gives_numbers(program):
    """Where ReLU leaves nothing, z is 0: scores and gradients are finite."""
    flat = torch.tensor(-np.abs(program.start(SEED)), dtype=torch.float32, requires_grad=True)
    from secagg.networks.programs import named_parameters

    loss = program.loss(named_parameters(program, flat), torch.ones(4, 7), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(flat.grad).all()


def test_projection_to_nothing_is_refused():
    """A width below 1 is none."""
    with pytest.raises(BadInput, match="0 dimensions"):
        MostSimilar(7, 3, 0)
