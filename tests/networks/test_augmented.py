"""FRAug's losses against formulas written out, what each of them moves, and training by them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.networks import program_named, record_gradients
from secagg.networks.augmented import (
    GENERATOR,
    TRANSFER,
    Augmentation,
    Augmented,
    Cells,
    Distance,
    OneRecord,
    Weights,
    bounded_square,
    mean_discrepancy,
)
from secagg.networks.augmented_training import AugmentedSettings, batches, train_augmented
from secagg.networks.programs import named_parameters
from tests.networks.models import seeded

CLASSES, DIMENSION, WIDTH, LATENT = 3, 7, 8, 4
CLASSIFIER = program_named(f"mlp-group:{WIDTH}", DIMENSION, CLASSES)
WHOLE = Augmented(CLASSIFIER, Augmentation(CLASSES, WIDTH, LATENT, 6))
WEIGHTS = Weights(0.7, 1.3, Distance.MMD, Distance.MMD, strength=0.4)
SETTINGS = AugmentedSettings(6, 8, 0.1, 0.5, 0.0, 0.05, 0.05, 6, 0.3)
GENERATOR_ = np.random.default_rng(4)
X = torch.tensor(GENERATOR_.normal(size=(9, DIMENSION)))
LABELS = torch.arange(9) % CLASSES
Z = torch.tensor(GENERATOR_.normal(size=(9, LATENT)))
PROTOTYPES = torch.tensor(np.abs(GENERATOR_.normal(size=(CLASSES, WIDTH))))
KNOWN = torch.arange(CLASSES).repeat_interleave(2)
CELLS = Cells(PROTOTYPES[KNOWN], torch.tensor(GENERATOR_.normal(size=(6, LATENT))), KNOWN, CLASSES, PROTOTYPES)
LOSSES = ("classifier_loss", "generator_loss", "transfer_loss")


def some_flat():
    """Parameters none of which is 0, float64, that take a gradient."""
    draw = np.random.default_rng(1)
    return torch.tensor(draw.normal(size=WHOLE.size) * 0.4, requires_grad=True)


def layer(tensors, name, rows):
    """A layer by hand: each row normalised over its entries."""
    raised = rows @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
    centred = raised - raised.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return centred / spread * (1 + tensors[f"{name}.gain"]) + tensors[f"{name}.shift"]


def discrepancy(a, b):
    """MMD² by loops."""
    both = np.concatenate([a, b])
    squares = [[((one - other) ** 2).sum() for other in both] for one in both]
    width = np.sum(squares) / (len(both) * (len(both) - 1)) / 4
    k = sum(np.exp(-np.array(squares) / (width * 2**place)) for place in range(5))
    return k[: len(a), : len(a)].mean() + k[len(a) :, len(a) :].mean() - 2 * k[: len(a), len(a) :].mean()


def written_out(weights, cells=True):
    """The three losses of the paper's Eqs. 1 to 6, sums over classes as means."""
    tensors = {name: each.detach().numpy() for name, each in named_parameters(WHOLE, some_flat()).items()}
    u, labels = CLASSIFIER.learn(named_parameters(WHOLE, some_flat()), X).detach().numpy(), LABELS.numpy()

    def generated(z, wanted):
        inside = np.maximum(layer(tensors, "generator.first", np.column_stack([z, np.eye(CLASSES)[wanted]])), 0)
        return np.maximum(layer(tensors, "generator.second", inside), 0)

    def probabilities(rows):
        scores = np.exp(rows @ tensors["output.weight"].T + tensors["output.bias"])
        return scores / scores.sum(axis=1, keepdims=True)

    def crossed(rows, wanted):
        return -np.log(probabilities(rows)[np.arange(len(rows)), wanted]).mean()

    def entropy(rows):
        p = probabilities(rows)
        return -(p * np.log(p)).sum(axis=1).mean()

    def moved(anchors, z, wanted):
        residual = layer(
            tensors, "transfer.second", np.maximum(layer(tensors, "transfer.first", generated(z, wanted)), 0)
        )
        return anchors + weights.strength * residual

    v, own = generated(Z.numpy(), labels), moved(u, Z.numpy(), labels)
    parts, prototypes = [crossed(own, labels)], PROTOTYPES.numpy()
    target = prototypes[labels] if cells else u
    far = discrepancy(v, u)
    near = discrepancy(own, u)
    if weights.generator_distance is Distance.L2:
        squares = ((v - target) ** 2).mean(axis=1)
        far = (squares / (1 + squares)).mean()
    if weights.transfer_distance is Distance.L2:
        near = ((own - target) ** 2).mean()
    transfer = -entropy(own) + weights.beta * near
    if cells:
        wanted = KNOWN.numpy()
        of_cells = moved(prototypes[wanted], CELLS.z.numpy(), wanted)
        parts.append(crossed(of_cells, wanted))
        near = np.mean([discrepancy(of_cells[wanted == c], prototypes[[c]]) for c in range(CLASSES)])
        if weights.transfer_distance is Distance.L2:
            near = ((of_cells - prototypes[wanted]) ** 2).mean()
        transfer += -entropy(of_cells) + weights.beta * near
    real = crossed(u, labels)
    classifier = real + sum(parts)
    return classifier, crossed(v, labels) - weights.alpha * far, transfer


CASES = {
    "paper": (WEIGHTS, True),
    "squares": (replace(WEIGHTS, generator_distance=Distance.L2, transfer_distance=Distance.L2), True),
    "record": (replace(WEIGHTS, generator_distance=Distance.L2, transfer_distance=Distance.L2), False),
}


def loss_of(name, flat, weights, cells):
    """One of the losses as training has it."""
    parameters = named_parameters(WHOLE, flat)
    u = CLASSIFIER.learn(parameters, X)
    u = u if name == "classifier_loss" else u.detach()
    return getattr(WHOLE, name)(parameters, u, LABELS, Z, cells, weights)


@pytest.mark.parametrize("case", CASES)
def test_losses_are_the_formulas(case):
    """Each of the three has the value of the formulas, to the last digits of float64."""
    weights, has_cells = CASES[case]
    for name, expected in zip(LOSSES, written_out(weights, has_cells), strict=True):
        found = loss_of(name, some_flat(), weights, CELLS if has_cells else None)
        assert float(found.detach()) == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_each_loss_moves_its_own_part(case):
    """θ's moves θ alone, ω's ω, φ's φ; synthetic embeddings move the classifier's last layer only."""
    weights, has_cells = CASES[case]
    for name, own in zip(LOSSES, (CLASSIFIER.shapes, WHOLE.generator_shapes, WHOLE.transfer_shapes), strict=True):
        flat = some_flat()
        loss_of(name, flat, weights, CELLS if has_cells else None).backward()
        moved = {key for key, each in named_parameters(WHOLE, flat.grad).items() if each.any()}
        assert moved
        assert moved <= set(own)
    flat, plain = some_flat(), some_flat()
    loss_of("classifier_loss", flat, weights, None).backward()
    torch.nn.functional.cross_entropy(
        CLASSIFIER.classify(named_parameters(WHOLE, plain), CLASSIFIER.learn(named_parameters(WHOLE, plain), X)), LABELS
    ).backward()
    pairs = zip(named_parameters(WHOLE, flat.grad).items(), named_parameters(WHOLE, plain.grad).values(), strict=True)
    assert all(torch.allclose(each, other) for (key, each), other in pairs if not key.startswith("output"))


def test_what_the_generator_maximises_is_bounded():
    """However far embeddings are, the discrepancy is at most 10 and the bounded square below 1."""
    near = torch.tensor(GENERATOR_.normal(size=(1, 5, WIDTH)))
    for far in (1.0, 1e3, 1e6):
        assert 0 <= float(mean_discrepancy(near, near + far)) <= 10
        assert 0 <= float(bounded_square(near, near + far)) < 1
    assert float(mean_discrepancy(near, near)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("augmented", [True, False])
def test_gradient_of_a_record_is_its_own(augmented):
    """The private loss of a record has the same gradient, bit for bit, alone and among others, with all three parts."""
    whole = WHOLE if augmented else Augmented(CLASSIFIER, None)
    z = GENERATOR_.normal(size=(8, LATENT)).astype(np.float32)
    program = OneRecord(whole, CASES["record"][0], 0.5, 0.5, z)
    flat, x, labels = some_flat().detach().numpy()[: whole.size].copy(), X.numpy().astype(np.float32), LABELS.numpy()
    (alone,) = np.concatenate(list(record_gradients(program, flat, x[4:5], labels[4:5])))
    x[:4] *= 1e6
    among = np.concatenate(list(record_gradients(program, flat, x, labels)))[4]
    assert alone.tobytes() == among.tobytes()
    for shapes in filter(None, (whole.generator_shapes, CLASSIFIER.shapes, whole.transfer_shapes)):
        parts = named_parameters(whole, torch.tensor(alone))
        assert any(parts[name].any() for name in shapes)


def some_records(count, only=None):
    """Records around their classes' means, float32, of all classes or of one."""
    draw = np.random.default_rng(2)
    labels = np.full(count, only) if only is not None else np.arange(count) % CLASSES
    means = np.random.default_rng(3).normal(size=(CLASSES, DIMENSION))
    return (means[labels] + draw.normal(size=(count, DIMENSION)) / 2).astype(np.float32), labels.astype(np.int64)


def started(whole):
    """Public starts, and no prototypes."""
    parts = [whole.classifier.start(bytes(32))]
    if whole.augmentation:
        parts = [whole.augmentation.start(GENERATOR, bytes(32)), *parts, whole.augmentation.start(TRANSFER, bytes(32))]
    return np.concatenate(parts), np.zeros((CLASSES, whole.classifier.width))


def by_batch():
    """A classifier with batch normalisation."""
    classifier = program_named(f"mlp-batch:{WIDTH}", DIMENSION, CLASSES)
    return Augmented(classifier, Augmentation(CLASSES, WIDTH, LATENT, 6))


@pytest.mark.parametrize("whole", [WHOLE, by_batch(), Augmented(CLASSIFIER, None)], ids=["groups", "batch", "plain"])
@pytest.mark.parametrize(("count", "only"), [(30, None), (30, 1), (1, None), (5, None)])
def test_training_takes_any_records(whole, count, only):
    """Of all classes, of one, a single record, fewer than a batch: every part moves, known classes have means."""
    start, none = started(whole)
    x, labels = some_records(count, only)
    flat, prototypes = train_augmented(whole, start, none, x, labels, SETTINGS, WEIGHTS, seeded("any"))
    assert np.isfinite(flat).all()
    again, _ = train_augmented(whole, start, none, x, labels, SETTINGS, WEIGHTS, seeded("any"))
    assert flat.tobytes() == again.tobytes()
    moved = named_parameters(whole, torch.tensor(flat - start))
    parts = [whole.classifier.shapes]
    if whole.augmentation:
        parts += [whole.generator_shapes, whole.transfer_shapes] if count > 1 or whole is WHOLE else []
        assert sorted(np.flatnonzero(prototypes.any(axis=1))) == sorted(set(labels.tolist()))
    assert all(any(moved[name].any() for name in shapes) for shapes in parts)


def test_no_records_change_nothing():
    """Nor do they fail."""
    start, none = started(WHOLE)
    flat, prototypes = train_augmented(WHOLE, start, none, *some_records(0), SETTINGS, WEIGHTS, seeded("none"))
    assert np.array_equal(flat, start)
    assert not prototypes.any()


def test_prototypes_follow_the_batches_means():
    """A first mean is whole; then the share `ema` of the way to each batch's; a class that is absent stays."""
    start, none = started(WHOLE)
    x, labels = some_records(4, only=1)
    settings = replace(SETTINGS, steps=2, batch=4, rate=1e-30)
    none[2] = 5.0
    _, prototypes = train_augmented(WHOLE, start, none, x, labels, settings, WEIGHTS, seeded("means"))
    theta = torch.tensor(start, dtype=torch.float32)
    mean = CLASSIFIER.learn(named_parameters(WHOLE, theta), torch.tensor(x)).mean(dim=0).numpy()
    assert np.allclose(prototypes, [np.zeros(WIDTH), mean, np.full(WIDTH, 5.0)], atol=1e-5)


def test_training_is_the_two_stages_of_the_algorithm():
    """A step is SGD on θ's loss, then, at the new θ, on ω's and φ's, embeddings being those from before."""
    start, none = started(WHOLE)
    x, labels = some_records(4)
    settings = replace(SETTINGS, steps=1, batch=4, synthetic=1, momentum=0.0, proximal=0.0)
    found, prototypes = train_augmented(WHOLE, start, none, x, labels, settings, WEIGHTS, seeded("one"))
    source = seeded("one")
    noise = np.random.Generator(np.random.Philox(key=int.from_bytes(source.bytes(16), "little")))
    (rows,) = batches(4, 4, 1, source)
    flat = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    u, wanted = CLASSIFIER.learn(named_parameters(WHOLE, flat), torch.tensor(x[rows])), torch.tensor(labels[rows])
    z = torch.tensor(noise.standard_normal((4, LATENT), dtype=np.float32))
    means, every = torch.tensor(prototypes, dtype=torch.float32), torch.arange(CLASSES)
    cells = Cells(means, torch.tensor(noise.standard_normal((3, LATENT), dtype=np.float32)), every, CLASSES, means)
    WHOLE.classifier_loss(named_parameters(WHOLE, flat), u, wanted, z, cells, WEIGHTS).backward()
    flat = (flat - 0.1 * flat.grad).detach().requires_grad_()
    rest = named_parameters(WHOLE, flat), u.detach(), wanted, z, cells, WEIGHTS
    (WHOLE.generator_loss(*rest) + WHOLE.transfer_loss(*rest)).backward()
    assert np.allclose(found, (flat - 0.05 * flat.grad).detach().numpy(), atol=1e-6)
    assert math.isfinite(float(flat.sum().detach()))


@pytest.mark.parametrize(
    ("name", "value"),
    [("steps", 0), ("batch", 0), ("synthetic", 0), ("rate", 0.0), ("generator_rate", math.inf), ("transfer_rate", -1.0),
     ("momentum", 1.0), ("proximal", -1.0), ("ema", 0.0), ("ema", 1.5)],
)  # fmt: skip
def test_what_cannot_be_is_refused(name, value):
    """Settings out of their range."""
    with pytest.raises(BadInput):
        replace(SETTINGS, **{name: value})
