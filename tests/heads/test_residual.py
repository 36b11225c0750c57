"""MPFT's classifier: the frozen layer, the residual adapter against torch's own modules, and when training ends."""

import math

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.heads import LinearHead, predict
from secagg.heads.descent import LOGIT_SCALE, MOST_BATCHES, SEED, WIDTH, adapted_head
from secagg.heads.linear import HeadAdapter

GENERATOR = np.random.default_rng(3)
DIMENSION, CLASSES = 12, 3
LABELS = np.repeat(np.arange(CLASSES), 9)
PROTOTYPES = 2 * np.abs(GENERATOR.normal(size=(27, DIMENSION))) + 3 * np.eye(DIMENSION)[LABELS]
COUNTS = GENERATOR.integers(1, 30, 27).astype(np.float64)


class Residual(torch.nn.Module):
    """x + adapter(x), of unit length, before frozen weights: the published modules."""

    def __init__(self, frozen):
        super().__init__()
        down, up = (torch.nn.Linear(*widths, bias=False) for widths in ((DIMENSION, WIDTH), (WIDTH, DIMENSION)))
        self.adapter = torch.nn.Sequential(down, torch.nn.ReLU(), up, torch.nn.ReLU())
        self.frozen = torch.nn.functional.normalize(torch.from_numpy(frozen), dim=1).float() * LOGIT_SCALE
        generator = torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            for layer in (down, up):
                bound = layer.in_features**-0.5
                layer.weight.copy_(torch.empty(layer.weight.shape).uniform_(-bound, bound, generator=generator))

    def forward(self, rows):
        """The scores."""
        return torch.nn.functional.normalize(rows + self.adapter(rows)) @ self.frozen.T


def by_hand(prototypes, labels, frozen, epochs):
    """Train with torch's own schedule; return the module and the batch losses, three an epoch."""
    model, rows, targets = Residual(frozen), torch.from_numpy(prototypes).float(), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(model.adapter.parameters(), lr=1e-3)
    warm = min(10, epochs)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda epoch: (
            (epoch + 1) / warm if epoch < warm else (1 + math.cos(math.pi * (epoch - warm) / max(1, epochs - warm))) / 2
        ),
    )
    generator, losses = torch.Generator().manual_seed(SEED), []
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=generator)
        for start in range(0, len(rows), 10):
            own = order[start : start + 10]
            optimizer.zero_grad()
            loss = torch.nn.CrossEntropyLoss()(model(rows[own]), targets[own])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.adapter.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        last = losses[-20:]
        mean = math.fsum(last) / 20
        if len(last) == 20 and math.sqrt(math.fsum((loss - mean) ** 2 for loss in last) / 20) < 0.001:
            break
        schedule.step()
    return model, losses


def class_means(counts):
    """The counted means of the prototypes' classes."""
    return np.array(
        [(PROTOTYPES[label == LABELS] * counts[label == LABELS, None]).sum(axis=0) for label in range(CLASSES)]
    )


@pytest.mark.parametrize("epochs", [1, 12, 200], ids=["warm-up", "cosine", "to the end"])
def test_training_is_that_of_the_published_modules(epochs):
    """Weights of the adapter, and scores, are those of an independent implementation, early end included."""
    model, losses = by_hand(PROTOTYPES, LABELS, class_means(COUNTS), epochs)
    assert (len(losses) < 3 * epochs) == (epochs == 200)
    head = adapted_head(PROTOTYPES, LABELS, COUNTS, CLASSES, epochs)
    assert isinstance(head.before, HeadAdapter)
    for (weight, bias), layer in zip(head.before.layers, (model.adapter[0], model.adapter[2]), strict=True):
        assert weight == pytest.approx(layer.weight.detach().numpy(), abs=2e-4)
        assert not bias.any()
    probes = np.abs(GENERATOR.normal(size=(40, DIMENSION)))
    scores = head.before.apply(probes) @ head.weight.T.astype(np.float64) + head.bias
    assert scores == pytest.approx(model(torch.from_numpy(probes).float()).detach().numpy(), abs=0.05)


def test_head_is_frozen():
    """The linear layer is what it was: 100 times unit rows along the counted class means, without biases."""
    head = adapted_head(PROTOTYPES, LABELS, COUNTS, CLASSES, 5)
    means = class_means(COUNTS)
    assert head.weight == pytest.approx(LOGIT_SCALE * means / np.linalg.norm(means, axis=1, keepdims=True), rel=1e-5)
    assert not head.bias.any()


def test_deviation_of_losses_ends_training_not_their_variance():
    """Sixty epochs end by themselves, though the variance of 20 losses was below 0.001 long before."""
    model, losses = by_hand(PROTOTYPES, LABELS, class_means(COUNTS), 60)
    assert len(losses) == 180
    assert min(end for end in range(20, 181) if np.var(losses[end - 20 : end]) < 0.001) < 120
    head = adapted_head(PROTOTYPES, LABELS, COUNTS, CLASSES, 60)
    assert head.before.layers[0][0] == pytest.approx(model.adapter[0].weight.detach().numpy(), abs=2e-4)


def test_training_repeats():
    """Two trainings give the same bits, whatever torch's own generator was at and however many threads it has."""
    torch.manual_seed(1)
    one = adapted_head(PROTOTYPES, LABELS, COUNTS, CLASSES, 10)
    torch.manual_seed(2)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        two = adapted_head(PROTOTYPES, LABELS, COUNTS, CLASSES, 10)
    finally:
        torch.set_num_threads(threads)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.arrays, two.arrays, strict=True))


def test_adapter_helps_where_means_do_not():
    """Classes that lie on opposite sides of each other are told apart by the adapter, not by their means."""
    generator = np.random.default_rng(8)
    labels = np.arange(160) % 2
    sides = np.where(np.arange(160) % 4 < 2, 1.0, -1.0)
    axes = np.eye(6)[labels] * 2
    points = np.column_stack([axes * sides[:, None], np.full((160, 1), 1.0)]) + 0.3 * generator.normal(size=(160, 7))
    head = adapted_head(points, labels, np.ones(160), 2, 100)
    plain = LinearHead(head.weight, head.bias)
    assert (predict(plain, points) == labels).mean() < 0.8
    assert (predict(head, points) == labels).mean() > 0.95


def test_absent_classes_and_empty_sums():
    """Classes without prototypes are never predicted; without any there is no head."""
    head = adapted_head(PROTOTYPES, 2 * LABELS, COUNTS, 6, 3)
    assert head.present.tolist() == [True, False, True, False, True, False]
    with pytest.raises(BadInput, match="the sum gives no prototype"):
        adapted_head(PROTOTYPES[:0], LABELS[:0], COUNTS[:0], 3)


def test_many_prototypes_train_in_larger_batches(monkeypatch):
    """An epoch never has more than a hundred batches."""
    steps = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, *args: steps.append(1) or step(self, *args))
    rows = np.abs(GENERATOR.normal(size=(2345, 4)))
    adapted_head(rows, np.arange(2345) % 3, np.ones(2345), 3, 1)
    assert len(steps) == math.ceil(2345 / math.ceil(2345 / MOST_BATCHES)) <= MOST_BATCHES
