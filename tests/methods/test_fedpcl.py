"""FedPCL's loss, and FedProto's, against formulas written out, and their gradients against differences."""

import math

import numpy as np
import pytest
import torch

from methods.own_models.fedpcl import Contrast, FedPCL
from methods.own_models.fedproto import FedProto, Pull
from secagg.errors import BadInput
from secagg.networks.programs import named_parameters

CLASSES, DIMENSION, WIDTH = 4, 5, 6
GENERATOR = np.random.default_rng(8)
X, LABELS = GENERATOR.normal(size=(9, DIMENSION)), np.arange(9) % CLASSES
PROTOTYPES = np.abs(GENERATOR.normal(size=(CLASSES, WIDTH))) / 4
CONTRAST = Contrast(DIMENSION, CLASSES, WIDTH, PROTOTYPES[None], 0.3)
PULL = Pull(DIMENSION, CLASSES, WIDTH, PROTOTYPES, 0.7)


def projected(flat):
    """z by hand."""
    raised = np.maximum(X @ flat[: WIDTH * DIMENSION].reshape(WIDTH, DIMENSION).T, 0)
    return raised / np.linalg.norm(raised, axis=1, keepdims=True)


def contrast(flat, prototypes=PROTOTYPES):
    """Eq. 8 with every class in the denominator, the mean over records."""
    terms = []
    for z, label in zip(projected(flat), LABELS, strict=True):
        similar = [math.exp(z @ prototype / 0.3) if prototype.any() else 0.0 for prototype in prototypes]
        terms.append(-math.log(similar[label] / sum(similar)))
    return sum(terms) / len(terms)


def pull(flat):
    """Cross-entropy of the head on z, and 0.7 times the squared distance to the class's prototype."""
    start = WIDTH * DIMENSION
    head = flat[start : start + CLASSES * WIDTH].reshape(CLASSES, WIDTH)
    bias, terms = flat[start + CLASSES * WIDTH :], []
    for z, label in zip(projected(flat), LABELS, strict=True):
        scores = np.exp(head @ z + bias)
        terms.append(-math.log(scores[label] / scores.sum()) + 0.7 * float(((z - PROTOTYPES[label]) ** 2).sum()))
    return sum(terms) / len(terms)


@pytest.mark.parametrize(("program", "formula"), [(CONTRAST, contrast), (PULL, pull)], ids=["fedpcl", "fedproto"])
def test_loss_and_gradient_are_the_formulas(program, formula):
    """The loss is the formula's value, its gradient that of central differences, in float64."""
    flat = GENERATOR.normal(size=program.size)
    leaf = torch.tensor(flat, requires_grad=True)
    loss = program.loss(named_parameters(program, leaf), torch.tensor(X), torch.tensor(LABELS))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(formula(flat), rel=1e-12)
    steps = 1e-6 * np.eye(program.size)
    expected = [(formula(flat + step) - formula(flat - step)) / 2e-6 for step in steps]
    assert leaf.grad.numpy() == pytest.approx(np.array(expected), rel=1e-5, abs=1e-8)


def test_class_without_a_prototype_is_in_no_denominator():
    """The loss of the others is as if there were no such class."""
    prototypes = PROTOTYPES.copy()
    prototypes[3] = 0
    program = Contrast(DIMENSION, CLASSES, WIDTH, prototypes[None], 0.3)
    flat = GENERATOR.normal(size=program.size)
    others = LABELS != 3
    found = program.loss(
        named_parameters(program, torch.tensor(flat)), torch.tensor(X[others]), torch.tensor(LABELS[others])
    )
    similar = np.exp(projected(flat)[others] @ prototypes[:3].T / 0.3)
    expected = -np.log(similar[np.arange(len(similar)), LABELS[others]] / similar.sum(axis=1)).mean()
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_loss_is_bounded_below():
    """With the positive in the denominator no projection takes it below 0, as the paper's Eq. 8 as printed would."""
    program = Contrast(DIMENSION, CLASSES, WIDTH, np.eye(CLASSES, WIDTH)[None], 0.01)
    for seed in range(20):
        flat = torch.tensor(np.random.default_rng(seed).normal(size=program.size))
        assert float(program.loss(named_parameters(program, flat), torch.tensor(X), torch.tensor(LABELS))) >= 0


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.inf, math.nan])
def test_temperature_is_above_zero(temperature):
    """It divides."""
    with pytest.raises(BadInput, match="temperature"):
        FedPCL(temperature=temperature)


@pytest.mark.parametrize("weight", [-0.1, math.inf, math.nan])
def test_pull_is_not_negative(weight):
    """A push would be unbounded."""
    with pytest.raises(BadInput, match="pull"):
        FedProto(pull=weight)
