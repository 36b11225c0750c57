"""Training on a member's records: plain SGD, and the gradients of single records."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch

from secagg.errors import BadInput
from secagg.networks import TrainingSettings, program_named, record_gradients, train
from secagg.networks.programs import named_parameters
from secagg.networks.training import CHUNK, shuffled
from tests.architecture.source import ROOT
from tests.networks.models import PROGRAMS, SEED, every_program, seeded, some_parameters, some_records

ONCE = TrainingSettings(epochs=1, rate=0.1, batch=8)
ALL_AT_ONCE = TrainingSettings(epochs=3, rate=0.05, batch=8, momentum=0.9, proximal=0.3, decay=0.01)


def loss_of(program, flat, records, labels):
    """Mean cross-entropy of flat parameters, by torch alone."""
    parameters = named_parameters(program, torch.as_tensor(flat, dtype=torch.float32))
    return torch.nn.functional.cross_entropy(program.logits(parameters, torch.tensor(records)), torch.tensor(labels))


@every_program
@pytest.mark.parametrize("settings", [ONCE, ALL_AT_ONCE], ids=["plain", "with every term"])
def test_training_is_sgd_of_the_loss_as_stated(program, settings):
    """torch.optim.SGD on the stated loss, over the same batches, comes to the same parameters but for rounding.

    Which reaches 3·10⁻⁵ after nine steps of a convolution, as processors order its additions differently.
    """
    (records, labels), start = some_records(program, 21), some_parameters(program)
    flat, first = (torch.tensor(start, dtype=torch.float32) for _ in range(2))
    flat.requires_grad_()
    optimizer = torch.optim.SGD([flat], lr=settings.rate, momentum=settings.momentum)
    randomness = seeded("batches")
    for _ in range(settings.epochs):
        order = shuffled(21, randomness)
        for rows in (order[:8], order[8:16], order[16:]):
            terms = settings.proximal / 2 * (flat - first).square().sum() + settings.decay / 2 * flat.square().sum()
            optimizer.zero_grad()
            (loss_of(program, flat, records[rows], labels[rows]) + terms).backward()
            optimizer.step()
    found = train(program, start, records, labels, settings, seeded("batches"))
    assert found.dtype == np.float64
    assert np.allclose(found, flat.detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("program", [each for each in PROGRAMS if "group" not in each.name], ids=lambda each: each.name)
def test_training_by_adam_is_torchs(program):
    """Twenty steps in two trainings, the second from the row of the first, are those of one `torch.optim.Adam`.

    With L2 decay, for tensors one by one; the row has float32's numbers, so that a file of it loses nothing. Group
    normalisation is left out: what it makes invariant has gradients that are rounding alone, which Adam enlarges.
    """
    (records, labels), start = some_records(program, 20), some_parameters(program)
    settings = TrainingSettings(5, 0.01, 10, decay=0.1, optimiser="adam")
    flat = torch.tensor(start, dtype=torch.float32)
    tensors = {name: part.detach().requires_grad_() for name, part in named_parameters(program, flat).items()}
    optimizer = torch.optim.Adam(tensors.values(), lr=0.01, weight_decay=0.1)
    randomness, row = seeded("adam"), np.concatenate([start, np.zeros(2 * program.size + 1)])
    for _ in range(10):
        for rows in np.split(shuffled(20, randomness), 2):
            optimizer.zero_grad()
            program.loss(tensors, torch.tensor(records[rows]), torch.tensor(labels[rows])).backward()
            optimizer.step()
    randomness = seeded("adam")
    for _ in range(2):
        row = train(program, row, records, labels, settings, randomness)
    states = [optimizer.state[each] for each in tensors.values()]
    expected = [list(tensors.values()), *([each[key] for each in states] for key in ("exp_avg", "exp_avg_sq"))]
    found = np.split(row[:-1], 3)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.allclose(ours, torch.cat([each.detach().ravel() for each in theirs]).numpy(), rtol=0, atol=1e-7)
    assert row[-1] == 20
    assert np.array_equal(row, row.astype(np.float32))


@pytest.mark.parametrize("wrong", [{"momentum": 0.5}, {"proximal": 0.1}, {"optimiser": "adamw"}], ids=str)
def test_adam_with_other_terms_is_refused(wrong):
    """Momentum and the proximal term are SGD's, and another optimiser has no name."""
    with pytest.raises(BadInput, match=r"adam takes no (momentum|proximal) |give adam or sgd"):
        TrainingSettings(**{"epochs": 1, "rate": 0.1, "batch": 8, "optimiser": "adam"} | wrong)


def test_row_without_moments_is_refused():
    """Adam trains from a row with its moments, SGD from one without."""
    program = program_named("softmax", 7, 3)
    records, labels = some_records(program, 20)
    adam = TrainingSettings(1, 0.1, 8, optimiser="adam")
    for settings, size in ((adam, program.size), (ONCE, 3 * program.size + 1)):
        with pytest.raises(BadInput, match="parameters by"):
            train(program, np.zeros(size), records, labels, settings, seeded("row"))


@every_program
def test_training_reduces_the_loss(program):
    """Ten epochs on records of three classes far apart leave less than half of the loss."""
    records, labels = some_records(program, 60)
    start = program.start(SEED)
    trained = train(program, start, records, labels, TrainingSettings(10, 0.05, 8), seeded("toy"))
    assert loss_of(program, trained, records, labels) < loss_of(program, start, records, labels) / 2


def test_randomness_decides_the_bits():
    """The same stream gives the same bits, whatever torch's own generator is at; another stream gives others."""
    program = program_named("mlp:5", 7, 3)
    (records, labels), start = some_records(program, 40), program.start(SEED)
    torch.manual_seed(1)
    one = train(program, start, records, labels, ONCE, seeded("order"))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = train(program, start, records, labels, ONCE, seeded("order"))
    assert one.tobytes() == again.tobytes()
    assert torch.equal(torch.get_rng_state(), before)
    assert one.tobytes() != train(program, start, records, labels, ONCE, seeded("other")).tobytes()


SAME_IN_ANOTHER_PROCESS = """
import hashlib
from tests.networks.test_training import digest_of_a_training
print(digest_of_a_training())
"""


def digest_of_a_training() -> str:
    """SHA-256 of what two small trainings come to."""
    found = hashlib.sha256()
    for name, dimension in (("mlp:32", 50), ("cnn", 64)):
        program = program_named(name, dimension, 3)
        trained = train(program, program.start(SEED), *some_records(program, 50), ALL_AT_ONCE, seeded("process"))
        found.update(trained.tobytes())
    return found.hexdigest()


def test_another_process_gives_the_same_bits():
    """A process that trains the same from the same stream comes to the same bits."""
    command = [sys.executable, "-c", SAME_IN_ANOTHER_PROCESS]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.strip() == digest_of_a_training()


def test_order_holds_each_record_once_and_each_order_is_as_likely():
    """Of 6,000 orders of three records each of the six comes about equally often; a sound source fails at 10⁻⁶."""
    source = seeded("orders")
    orders = [tuple(shuffled(3, source)) for _ in range(6000)]
    assert {tuple(sorted(order)) for order in orders} == {(0, 1, 2)}
    counts = np.array([orders.count(order) for order in set(orders)])
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 35.9  # the 1 − 10⁻⁶ quantile of χ² with 5 degrees of freedom


def test_nothing_to_train_on_gives_the_start():
    """Without records the start comes back, as it was and as a copy."""
    program = program_named("softmax", 7, 3)
    start = some_parameters(program)
    found = train(program, start, *some_records(program, 0), ONCE, seeded("none"))
    assert found.tobytes() == start.tobytes()
    assert found is not start


def test_what_diverges_is_returned():
    """NaN among the records comes out as NaN parameters, for the caller to see."""
    program = program_named("mlp:5", 7, 3)
    records, labels = some_records(program, 8)
    records[3, 2] = np.nan
    assert np.isnan(train(program, program.start(SEED), records, labels, ONCE, seeded("nan"))).any()


def test_arguments_and_threads_stay_as_they_are():
    """Training takes arrays that cannot be written, changes none, and gives torch its threads back."""
    program = program_named("mlp:5", 7, 3)
    (records, labels), start = some_records(program, 20), program.start(SEED)
    for array in (records, labels, start):
        array.setflags(write=False)
    before = torch.get_num_threads()
    train(program, start, records, labels, ONCE, seeded("fixed"))
    list(record_gradients(program, start, records, labels))
    assert torch.get_num_threads() == before


@every_program
def test_record_gradients_are_what_torch_func_gives(program):
    """Row i is the gradient of record i's cross-entropy, by vmap(grad) too."""
    (records, labels), flat = some_records(program, 13), some_parameters(program)

    def loss(flat, x, y):
        return torch.nn.functional.cross_entropy(program.logits(named_parameters(program, flat), x[None]), y[None])

    by_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    expected = by_record(torch.tensor(flat, dtype=torch.float32), torch.tensor(records), torch.tensor(labels))
    found = np.concatenate(list(record_gradients(program, flat, records, labels)))
    assert np.allclose(found, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(("name", "dimension"), [("softmax", 100), ("mlp:64", 100), ("cnn", 64)])
def test_record_gradient_has_the_same_bits_in_any_company(name, dimension):
    """Alone, among others, and at another place, a record's gradient is bit for bit the same."""
    program = program_named(name, dimension, 3)
    (records, labels), flat = some_records(program, 40), some_parameters(program)
    together = np.concatenate(list(record_gradients(program, flat, records, labels)))
    for rows in ([39], [0, 7], list(range(39, -1, -1)), list(range(1, 18))):
        some = np.concatenate(list(record_gradients(program, flat, records[rows], labels[rows])))
        assert some.tobytes() == together[rows].tobytes()


def test_record_gradients_come_in_bounded_chunks():
    """No chunk holds more than the stated count of numbers, unless one row alone does; none is empty."""
    program = program_named("mlp:512", 512, 3)
    records, labels = some_records(program, 7)
    chunks = list(record_gradients(program, program.start(SEED), records, labels))
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    assert all(chunk.size <= CHUNK for chunk in chunks)
    assert list(record_gradients(program, program.start(SEED), records[:0], labels[:0])) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"batch": 0},
        {"rate": 0.0},
        {"rate": -1.0},
        {"rate": float("nan")},
        {"rate": float("inf")},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"momentum": float("nan")},
        {"proximal": -1.0},
        {"proximal": float("inf")},
        {"decay": -1.0},
        {"decay": float("nan")},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(wrong):
    """Each setting has its range."""
    with pytest.raises(BadInput):
        TrainingSettings(**{"epochs": 1, "rate": 0.1, "batch": 8} | wrong)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda start, x, y: (start[:-1], x, y),
        lambda start, x, y: (start.astype(np.float32), x, y),
        lambda start, x, y: (start, x.astype(np.float64), y),
        lambda start, x, y: (start, x[:, :-1], y),
        lambda start, x, y: (start, x[:-1], y),
        lambda start, x, y: (start, x[0], y),
        lambda start, x, y: (start, x, y.astype(np.int32)),
        lambda start, x, y: (start, x, y[:, None]),
        lambda start, x, y: (start, x, y + 1),
        lambda start, x, y: (start, x, y - 1),
    ],
)
def test_other_shapes_types_and_labels_are_refused(spoil):
    """Parameters, records and labels that are not the program's train nothing and have no gradients."""
    program = program_named("softmax", 7, 3)
    arguments = spoil(program.start(SEED), *some_records(program, 6))
    with pytest.raises(BadInput):
        train(program, *arguments, ONCE, seeded("refused"))
    with pytest.raises(BadInput):
        list(record_gradients(program, *arguments))
