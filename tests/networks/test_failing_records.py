"""A record on which a program fails adds nothing where there is noise, and is refused where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from methods.round import Examples
from methods.search.round import LOSS_LEVELS, score
from secagg.errors import BadInput
from secagg.networks import DpSgdSettings, Program, TrainingSettings, dp_sgd, program_named, record_gradients, train
from secagg.networks.exported import admit
from secagg.networks.taint import public
from secagg.networks.training import record_losses
from tests.networks.exports import export
from tests.networks.models import SEED, seeded

N, PLACE = 7, 2
ONE_BATCH = TrainingSettings(epochs=3, rate=0.1, batch=N + 1, momentum=0.9)
FAILS = r"fails on a record \((IndexError|RuntimeError)\); mend or remove the record, or mend the model"


class Codes(nn.Module):
    """Embed the first number, a code from 0 to 15: any other one is an IndexError."""

    def __init__(self) -> None:
        super().__init__()
        self.codes, self.output = nn.Embedding(16, 5), nn.Linear(5 + 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 4) → (n, 2)."""
        return self.output(torch.cat([self.codes((x[:, 0] + 8).round().long()), x], 1))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program of that network's file."""
    torch.manual_seed(1)
    return program_named(admit(export(Codes(), tmp_path_factory.mktemp("codes") / "codes.pt2", 4)), 4, 2)


def records() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records and labels, the one at PLACE with a code that there is not; and where the others are."""
    x = np.random.default_rng(0).uniform(-1, 1, (N + 1, 4)).astype(np.float32)
    x[PLACE, 0] = 100.0
    return x, np.arange(N + 1) % 2, np.arange(N + 1) != PLACE


def test_its_gradient_is_zero_and_the_others_are_the_same_to_the_bit(program: Program) -> None:
    """With tolerance the failing record has a zero gradient and an infinite loss, and no other record can tell."""
    (x, labels, others), start = records(), program.start(SEED)
    found = np.concatenate(list(record_gradients(program, start, x, labels, tolerant=True)))
    alone = np.concatenate(list(record_gradients(program, start, x[others], labels[others])))
    assert found[others].tobytes() == alone.tobytes()
    assert not found[PLACE].any()
    assert found[others].any(axis=1).all()
    losses = record_losses(program, start, x, labels, tolerant=True)
    assert losses[others].tobytes() == record_losses(program, start, x[others], labels[others]).tobytes()
    assert losses[PLACE] == np.inf


def test_its_score_is_the_largest_loss(program: Program) -> None:
    """A record that judges settings and fails adds the largest loss to the score."""
    (x, labels, others), start = records(), program.start(SEED)
    integers = np.zeros((N + 1, 4), dtype=np.int64)
    examples = Examples(integers, labels, np.zeros(N + 1, dtype=np.int64))
    whole = score(program, start, x, examples, 10.0, tolerant=True)
    assert whole == score(program, start, x[others], examples.take(others), 10.0) + LOSS_LEVELS


def test_without_tolerance_it_is_refused(program: Program) -> None:
    """Gradients, losses and training refuse it in one line that names the program and quotes no record."""
    x, labels, _ = records()
    start = program.start(SEED)
    for work in (
        lambda: list(record_gradients(program, start, x, labels)),
        lambda: record_losses(program, start, x, labels),
        lambda: train(program, start, x, labels, ONE_BATCH, seeded("order")),
    ):
        with pytest.raises(BadInput, match=FAILS):
            work()


def test_a_batch_goes_on_without_it(program: Program) -> None:
    """Training in batches takes the steps that the records of a batch on which the program works give alone."""
    (x, labels, others), start = records(), program.start(SEED)
    found = train(program, start, x, labels, ONE_BATCH, seeded("order"), tolerant=True)
    alone = train(program, start, x[others], labels[others], ONE_BATCH, seeded("order"))
    assert np.allclose(found, alone, atol=1e-6)
    assert not np.allclose(found, start, atol=1e-3)
    only = train(program, start, x[[PLACE]], labels[[PLACE]], ONE_BATCH, seeded("order"), tolerant=True)
    assert np.array_equal(only, start.astype(np.float32))


@pytest.mark.parametrize("sigma", [0.0, 5.0])
def test_private_training_ends_with_noise_alone(program: Program, sigma: float) -> None:
    """DP-SGD that draws the failing record at every step ends with noise, and without noise refuses it."""
    x, labels, _ = records()
    settings = DpSgdSettings(0.1, 3, 1.0, 1.0, 1 << 10, sigma, 8.0)
    if sigma:
        (moved, same) = (
            dp_sgd(public(program), public(program.start(SEED)), *rows, settings, seeded("noise")).value
            for rows in ((x[[PLACE]], labels[[PLACE]]), (x[:0], labels[:0]))
        )
        assert moved.shape == same.shape
        assert np.isfinite(moved).all()
        return
    with pytest.raises(BadInput, match=FAILS):
        dp_sgd(public(program), public(program.start(SEED)), x, labels, settings, seeded("noise"))


def test_a_program_that_fails_on_every_record_is_refused_from_a_made_one(tmp_path: Path) -> None:
    """What fails on any record is refused when it is opened, before a member's records are read."""

    class Broken(nn.Module):
        """Codes of which there is none."""

        def __init__(self) -> None:
            super().__init__()
            self.codes, self.output = nn.Embedding(2, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """(n, 4) → (n, 2)."""
            return self.output(self.codes((x[:, 0] * 0).long() + 2))

    with pytest.raises(BadInput, match="cannot be run on 1 record and on 2"):
        program_named(admit(export(Broken(), tmp_path / "broken.pt2", 4)), 4, 2)


class Late(torch.autograd.Function):
    """Fail when gradients are computed, not when the loss is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """The same numbers."""
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Raise RuntimeError."""
        raise RuntimeError


class FailingLate:
    """A program that has added the gradients of its last layer before it fails, where a first number is above 10."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def loss(self, leaves: dict[str, torch.Tensor], x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The program's loss, and nothing that could be computed of the first leaf for the failing record."""
        late = Late.apply(next(iter(leaves.values()))).sum() * 0  # type: ignore[no-untyped-call]
        codes = x.clamp(-1, 1)
        return self.program.loss(leaves, codes, labels) + (late if bool((x > 10).any()) else 0)


def test_what_was_added_before_it_failed_is_taken_back(program: Program) -> None:
    """Neither a record's gradient nor a batch keeps what a program added before it failed."""
    (x, labels, _), start, failing = records(), program.start(SEED), FailingLate(program)
    found = np.concatenate(list(record_gradients(failing, start, x, labels, tolerant=True)))
    assert found.any(axis=1).tolist() == [place != PLACE for place in range(N + 1)]
    only = train(failing, start, x[[PLACE]], labels[[PLACE]], ONE_BATCH, seeded("order"), tolerant=True)
    assert np.array_equal(only, start.astype(np.float32))
