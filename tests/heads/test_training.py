"""Training of adapters and heads: what torch's own modules learn, the same bits again, and what stays as it was."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.heads import LinearHead, head_digest, predict
from secagg.heads.descent import SEED, Recipe, fresh_head, fresh_layers, has_settled, train
from secagg.heads.linear import ABSENT_BIAS, HeadAdapter

GENERATOR = np.random.default_rng(31)
LABELS = GENERATOR.permutation(np.arange(60) % 3)
ROWS = GENERATOR.normal(size=(60, 5)) + 2 * np.eye(5)[LABELS]
ONES = np.ones(60)
EVERY = np.ones(3, dtype=np.bool_)
SGD = Recipe("sgd", rate=0.05, epochs=3, batch=16, momentum=0.9)
ADAM = Recipe("adamw", rate=0.01, epochs=4, batch=16, clip=0.5, warm_up=2, cosine=True)


def residual() -> LinearHead:
    """A residual adapter 5-2-5 without biases, before a linear layer."""
    weight = GENERATOR.normal(size=(3, 5)).astype(np.float32)
    return LinearHead(weight, np.zeros(3, np.float32), HeadAdapter("residual", fresh_layers((5, 2, 5), biased=False)))


def by_torch(start: LinearHead, recipe: Recipe, weights: np.ndarray, frozen: bool) -> list[np.ndarray]:
    """The arrays of a trained head, by torch's modules and schedulers."""
    assert isinstance(start.before, HeadAdapter)
    stacked = start.before.kind == "stacked"
    layers = [torch.nn.Linear(weight.shape[1], len(weight), bias=stacked) for weight, _ in start.before.layers]
    for layer, (weight, bias) in zip(layers, start.before.layers, strict=True):
        layer.weight.data = torch.tensor(weight)
        if stacked:
            layer.bias.data = torch.tensor(bias)
    last = torch.nn.Linear(start.weight.shape[1], len(start.bias))
    last.weight.data, last.bias.data = torch.tensor(start.weight), torch.tensor(start.bias)
    trained = [*(each for layer in layers for each in layer.parameters()), *([] if frozen else last.parameters())]
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(trained, lr=recipe.rate, momentum=recipe.momentum)
    else:
        optimizer = torch.optim.AdamW(trained, lr=recipe.rate)
    generator = torch.Generator().manual_seed(SEED)
    shares = torch.tensor(weights / weights.mean(), dtype=torch.float32)
    for epoch in range(recipe.epochs):
        rate = recipe.rate
        if epoch < recipe.warm_up:
            rate *= (epoch + 1) / recipe.warm_up
        elif recipe.cosine:
            rate *= (1 + math.cos(math.pi * (epoch - recipe.warm_up) / (recipe.epochs - recipe.warm_up))) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        order = torch.randperm(len(ROWS), generator=generator)
        for first in range(0, len(order), recipe.batch):
            own = order[first : first + recipe.batch]
            start_rows = found = torch.tensor(ROWS, dtype=torch.float32)[own]
            for layer in layers:
                found = torch.relu(layer(found))
                found = torch.nn.functional.normalize(found) if stacked else found
            found = found if stacked else torch.nn.functional.normalize(start_rows + found)
            each = torch.nn.CrossEntropyLoss(reduction="none")(last(found), torch.tensor(LABELS)[own])
            optimizer.zero_grad()
            ((each * shares[own]).sum() / len(own)).backward()
            torch.nn.utils.clip_grad_norm_(trained, recipe.clip)
            optimizer.step()
    before = [each for layer in layers for each in layer.parameters()]
    return [each.detach().numpy() for each in (last.weight, last.bias, *before)]


@pytest.mark.parametrize("recipe", [SGD, ADAM], ids=["sgd", "adamw"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", ["stacked", "residual"])
def test_training_is_torchs(recipe, frozen, kind):
    """Weights after training are those of torch's modules, optimisers and schedule with the same first weights."""
    start = fresh_head((5, 7, 4), EVERY) if kind == "stacked" else residual()
    weights = GENERATOR.uniform(0.5, 3, 60)
    found = train(start, ROWS, LABELS, weights, recipe, frozen=frozen)
    arrays = list(found.arrays)
    if kind == "residual":
        assert not any(bias.any() for bias in arrays[3::2])
        arrays = [*arrays[:2], *arrays[2::2]]
    for own, its in zip(arrays, by_torch(start, recipe, weights, frozen), strict=True):
        assert own == pytest.approx(its, rel=1e-4, abs=1e-5)
    assert np.array_equal(found.weight, start.weight) == frozen


def test_trained_head_predicts_as_the_network_did():
    """The head in NumPy knows what the network learnt."""
    head = train(fresh_head((5, 16, 8), EVERY), ROWS, LABELS, ONES, replace(SGD, epochs=60))
    assert (predict(head, ROWS) == LABELS).mean() > 0.9


def test_two_runs_give_the_same_bits():
    """Neither torch's own generator, nor the number of its threads, nor an earlier run decides anything."""
    first = train(fresh_head((5, 7, 4), EVERY), ROWS, LABELS, ONES, SGD)
    threads = torch.get_num_threads()
    torch.manual_seed(99)
    torch.set_num_threads(2)
    try:
        second = train(fresh_head((5, 7, 4), EVERY), ROWS, LABELS, ONES, SGD)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert head_digest(first) == head_digest(second)


def test_start_is_left_alone():
    """Training changes no array of the head that it starts from."""
    start = fresh_head((5, 7, 4), EVERY)
    before = head_digest(start)
    train(start, ROWS, LABELS, ONES, SGD)
    assert head_digest(start) == before


def test_weight_is_a_number_of_rows():
    """A row of weight 2 is as two equal rows: the same step of one batch over all rows, whatever the weights' unit."""
    one_step = replace(SGD, epochs=1, batch=200)
    doubled = np.concatenate([ROWS, ROWS[:20]]), np.concatenate([LABELS, LABELS[:20]])
    weights = np.where(np.arange(60) < 20, 2.0, 1.0)
    start = fresh_head((5, 7, 4), EVERY)
    twice = train(start, *doubled, np.ones(80), one_step)
    for scale in (1.0, 1000.0):
        weighted = train(start, ROWS, LABELS, scale * weights, one_step)
        for own, its in zip(weighted.arrays, twice.arrays, strict=True):
            assert own == pytest.approx(its, abs=1e-6)


@pytest.mark.parametrize("recipe", [SGD, ADAM], ids=["sgd", "adamw"])
def test_absent_class_stays_absent(recipe):
    """A class without rows keeps zero weights and the bias that no score falls below, also under weight decay."""
    kept = LABELS != 1
    start = fresh_head((5, 7, 4), np.array([True, False, True]))
    head = train(start, ROWS[kept], LABELS[kept], ONES[kept], recipe)
    assert head.present.tolist() == [True, False, True]
    assert head.bias[1] == ABSENT_BIAS
    assert not head.weight[1].any()


def test_first_weights_are_torchs_and_always_the_same():
    """First weights and biases fill ±1/√inputs evenly, as torch's linear layer draws them; without biases zeros."""
    layers = fresh_layers((400, 300, 5))
    for (weight, bias), (again, its) in zip(layers, fresh_layers((400, 300, 5)), strict=True):
        assert np.array_equal(weight, again)
        assert np.array_equal(bias, its)
        bound = weight.shape[1] ** -0.5
        assert 0.98 * bound < np.abs(weight).max() <= bound
        assert weight.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert np.abs(bias).max() <= bound
    assert not any(bias.any() for _, bias in fresh_layers((4, 3, 2), biased=False))


@pytest.mark.parametrize(
    ("losses", "settled"),
    [([1.0] * 19, False), ([1.0] * 20, True), ([9.0, *[1.0] * 20], True), ([1.0] * 19 + [1.1], False), ([], False)],
    ids=["too few", "flat", "flat at last", "moving", "none"],
)
def test_training_settles_when_recent_losses_agree(losses, settled):
    """Twenty batch losses with a standard deviation below the bound end the training, fewer never do."""
    assert has_settled(losses, 0.001) is settled


def test_settled_training_ends():
    """With a bound above any spread, training ends with the first epoch after which there are 20 losses."""
    start = fresh_head((5, 7, 4), EVERY)
    ended = train(start, ROWS, LABELS, ONES, replace(SGD, epochs=50, settled=1e9))
    assert head_digest(ended) == head_digest(train(start, ROWS, LABELS, ONES, replace(SGD, epochs=5)))


def test_rates_rise_and_fall():
    """Two epochs of warming up from half the rate, then a half cosine; without both the rate stays."""
    assert [ADAM.rate_at(epoch) for epoch in range(4)] == pytest.approx([0.005, 0.01, 0.01, 0.005])
    assert {SGD.rate_at(epoch) for epoch in range(3)} == {0.05}


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 0.0},
        {"rate": math.inf},
        {"rate": math.nan},
        {"epochs": 0},
        {"batch": 0},
        {"momentum": 1.0},
        {"clip": 0.0},
        {"settled": -1.0},
        {"warm_up": 4},
        {"warm_up": -1},
    ],
    ids=str,
)
def test_impossible_recipes_are_refused(change):
    """Rates, clips and epochs out of range are refused."""
    with pytest.raises(BadInput):
        replace(SGD, **change)


@pytest.mark.parametrize(
    ("rows", "labels", "weights"),
    [
        (ROWS[:0], LABELS[:0], ONES[:0]),
        (ROWS[:, :4], LABELS, ONES),
        (ROWS, LABELS[:9], ONES),
        (ROWS, LABELS, ONES[:9]),
        (np.where(ROWS > 0, ROWS, np.nan), LABELS, ONES),
        (ROWS, LABELS, 0 * ONES),
        (ROWS, LABELS, np.inf * ONES),
    ],
    ids=["no rows", "narrow", "few labels", "few weights", "NaN", "weight 0", "infinite weights"],
)
def test_bad_rows_are_refused(rows, labels, weights):
    """Rows that do not fit the head, are not finite or weigh nothing are refused."""
    with pytest.raises(BadInput):
        train(fresh_head((5, 7), EVERY), rows, labels, weights, SGD)


def test_rows_of_absent_classes_are_refused():
    """A head cannot learn a class that it says is absent."""
    with pytest.raises(BadInput, match="absent class"):
        train(fresh_head((5, 7), np.array([True, True, False])), ROWS, LABELS, ONES, SGD)


def test_diverging_training_is_refused():
    """Training that leaves the finite numbers gives no head."""
    with pytest.raises(BadInput, match="infinite"):
        train(fresh_head((5,), EVERY), ROWS, LABELS, ONES, replace(SGD, rate=1e38))
