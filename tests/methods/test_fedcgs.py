"""FedCGS: its blocks, its parameters, and its accuracy on real data."""

from dataclasses import replace

import numpy as np
import pytest

from methods import METHODS, method_named
from methods.round import Examples
from secagg.agreement.schema import load_schema
from secagg.data import open_dataset, partition
from secagg.encoding import Grid, quantise
from secagg.encoding.layout import Layout
from secagg.errors import BadInput
from secagg.features import Expansion, FeatureMap, open_backbone, radius_of
from secagg.heads import head_digest
from tests.methods.steps import artifact_of, contribute, failures_of


def federation(data, backbone, parts, expand=None, **parameters):
    """Accuracy in percent and digest of the head from the sum of the clients' contributions."""
    features = FeatureMap(open_backbone(backbone, data.train.inputs.shape[1:]), expand and Expansion(expand))
    train, test = features.extract(data.train.inputs), features.extract(data.test.inputs)
    grid = Grid(radius_of(train))
    records = quantise(train, grid, data.train.origin)
    method = method_named("fedcgs", parameters)
    labels, classes = data.train.labels, len(data.classes)
    layout = Layout(method.sums(features.dimension, classes, grid.levels)[0].blocks)
    flat = sum(
        layout.flatten(contribute(method, Examples.of(records[part], labels[part]), classes, grid.levels))
        for part in parts(data)
    )
    aggregate = layout.split(flat)
    assert failures_of(method, aggregate, grid) == []
    head = artifact_of(method, aggregate, grid, None)
    return 100 * head.evaluate(test, data.test.labels).accuracy, head_digest(head)


def pooled(data):
    """One client with every record."""
    return (np.arange(len(data.train)),)


def divided(spec, clients):
    """A partition rule for `federation`."""
    return lambda data: partition(data.train.labels, data.train.columns, spec, clients, 7)


def test_digits_reach_the_goal_and_ignore_the_partition():
    """Digits with 512 random features: at least 97 %, and one digest however the records are divided."""
    digits = open_dataset("digits")
    accuracy, digest = federation(digits, "pixels", pooled, 512)
    assert accuracy >= 97
    for spec, clients in [("iid", 3), ("dirichlet:0.05", 10), ("dirichlet:0.05", 50), ("shards:2", 5)]:
        assert federation(digits, "pixels", divided(spec, clients), 512) == (accuracy, digest)
    assert federation(digits, "random-features:512", pooled) == (accuracy, digest)


@pytest.mark.parametrize(("name", "least"), [("breast-cancer", 94), ("wine", 94)])
def test_tables_are_learnt(name, least):
    """The named tables are classified well by both covariances."""
    for covariance in ("within", "total"):
        accuracy, _ = federation(open_dataset(name), "features", divided("iid", 5), covariance=covariance)
        assert accuracy >= least - 3 * (covariance == "total")


def test_hospitals_together(data_folder):
    """Four hospitals' tables as four clients give a useful head."""
    data = open_dataset(str(data_folder / "tabular" / "heart"), schema=load_schema("heart-disease"))
    accuracy, digest = federation(data, "features", lambda data: [indices for _, indices in data.parts])
    assert accuracy > 78
    assert digest == federation(data, "features", pooled)[1]


def test_blocks_are_what_is_contributed():
    """Shapes, bounds and length: C + C·d + d(d+1)/2 numbers, and no record exceeds a block's bound."""
    method = method_named("fedcgs")
    (only,) = method.sums(512, 10, 2**16)
    assert Layout(only.blocks).length == 136_458
    blocks = method.sums(2, 3, 5)[0].blocks
    for record in ([5, 0], [0, -5], [3, 4], [-3, 4]):
        one = contribute(method, Examples.of(np.array([record]), np.array([1])), 3, 5)
        assert Layout(blocks).flatten(one).shape == (12,)
        assert all(np.abs(one[block.name]).max() <= block.bound for block in blocks)


def test_empty_client_contributes_zeros():
    """A client without records adds nothing."""
    blocks = contribute(
        method_named("fedcgs"), Examples.of(np.zeros((0, 4), np.int64), np.zeros(0, np.int64)), 3, 2**16
    )
    assert [block.shape for block in blocks.values()] == [(3,), (3, 4), (10,)]
    assert not any(block.any() for block in blocks.values())


def test_parameters_make_the_method_again():
    """Every registered method is reproduced by its name and parameters."""
    for name in METHODS:
        method = method_named(name)
        assert method_named(method.name, method.parameters) == method
    parameters = {"covariance": "total", "ridge": 1, "refine": 3, "personalise": 0}
    assert method_named("fedcgs", parameters).parameters == parameters
    assert method_named("fedcgs").parameters["refine"] == 0


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        (
            "fedsgd",
            {},
            "unknown method 'fedsgd': ccvr, fedavg, fedavg-one-shot, .*, fedcgs, .*, prototypes have a secure sum",
        ),
        ("fedcgs", {"rounds": 3}, "it has covariance, ridge, refine"),
        ("fedcgs", {"covariance": "diagonal"}, "within or total"),
        ("fedcgs", {"covariance": 1}, "its default is 'within'"),
        ("fedcgs", {"ridge": "0.1"}, "its default is"),
        ("fedcgs", {"ridge": True}, "its default is"),
        ("fedcgs", {"ridge": -0.1}, "0 or more"),
        ("fedcgs", {"ridge": float("inf")}, "0 or more"),
        ("fedcgs", {"refine": -2}, "from 0 to 100"),
        ("fedcgs", {"refine": 101}, "from 0 to 100"),
        ("fedcgs", {"refine": 1.5}, "its default is 0"),
        ("fedcgs", {"refine": 2.0}, "its default is 0"),
        ("fedcgs", {"refine": True}, "its default is 0"),
        ("fedcgs", {"ridge": None}, "its default is"),
        ("fedcgs", {"ridge": [1]}, "its default is"),
    ],
)
def test_unknown_method_or_parameter_is_refused(name, parameters, words):
    """Names, parameters and values that do not exist are refused with those that do."""
    with pytest.raises(BadInput, match=words):
        method_named(name, parameters)


@pytest.mark.parametrize("centre", [0.0, 0.25])
def test_personalise_adds_the_class_means(centre):
    """With personalise=1 the head is the same to the bit and carries the class means, zero for an absent class."""
    features = np.random.default_rng(2).uniform(-0.5, 0.5, size=(40, 3))
    labels = np.arange(40) % 2
    grid = Grid(2.0, 1 << 16, centre)
    examples = Examples.of(quantise(features, grid), labels)
    plain, carrying = (method_named("fedcgs", {"personalise": value}) for value in (0, 1))
    blocks = contribute(carrying, examples, 3, grid.levels)
    assert plain.sums(3, 3, grid.levels) == carrying.sums(3, 3, grid.levels)
    without, head = (artifact_of(method, blocks, grid, None) for method in (plain, carrying))
    assert head_digest(replace(head, means=None)) == head_digest(without)
    assert without.means is None
    expected = [features[labels == 0].mean(axis=0), features[labels == 1].mean(axis=0), np.zeros(3)]
    np.testing.assert_allclose(head.means, expected, atol=1e-4)


@pytest.mark.parametrize("parameters", [{"personalise": 2}, {"personalise": -1}, {"personalise": 1, "refine": 1}])
def test_personalise_is_refused_where_it_means_nothing(parameters):
    """It is 0 or 1, and a refined head is not adapted."""
    with pytest.raises(BadInput, match=r"personalise|refined head"):
        method_named("fedcgs", parameters)
