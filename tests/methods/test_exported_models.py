"""Federated averaging of programs from files: every promise takes them, on the package's own terms."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from methods import method_named, parameters_of
from methods.declaration import check_declaration
from methods.round import Local, OpenedTotal
from methods.training.training_round import TrainingRound
from secagg.encoding.updates import sum_of_records
from secagg.errors import BadInput
from secagg.networks import TrainedModel, program_named, record_gradients
from tests.methods.training import CLASSES, DIMENSION, GRID, part, seeded, some_examples, summed
from tests.networks.exports import export_seeded

RULES = {"updates": "", "weights": "cap=9", "gradients": "gradients=1", "sampled": "sampling=0.5 steps=3"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An exported perceptron for the records of these tests."""
    return export_seeded("mlp", tmp_path / "mlp.pt2", CLASSES)


def begun(file: Path, rule: str) -> TrainingRound:
    """The first of three rounds."""
    text = f"model={file} rounds=3 rate=0.3 batch=4 clip=5 {RULES[rule]}"
    method = method_named("fedavg", parameters_of("fedavg", {}, text))
    round_ = method.begin(DIMENSION, CLASSES, GRID.levels)
    assert isinstance(round_, TrainingRound)
    return round_


@pytest.mark.parametrize("rule", RULES)
def test_contributions_keep_what_they_declare(file: Path, rule: str) -> None:
    """Blocks, bounds and lengths hold for extreme records, whichever promise the plan has."""
    method = method_named("fedavg", parameters_of("fedavg", {}, f"model={file} {RULES[rule]}"))
    check_declaration(method, DIMENSION, CLASSES, GRID)
    digest = str(method.parameters["model"]).removeprefix("pt2:")
    assert method.traits.programs == (digest,)
    (spec,) = method.sums(DIMENSION, CLASSES, GRID.levels)
    assert spec.effort.parameters == begun(file, rule).program.size == 63


@pytest.mark.parametrize("rule", RULES)
def test_rounds_lead_to_a_model_of_the_program(file: Path, rule: str) -> None:
    """Three sums of three members move the file's weights, and end with a model of the same program."""
    round_, members = begun(file, rule), [some_examples(count, seed) for seed, count in enumerate((5, 0, 12))]
    start = round_.model
    for _ in range(3):
        blocks = summed([part(round_, own, number) for number, own in enumerate(members)])
        step = round_.finalize(OpenedTotal(blocks, GRID, clients=3))
        if step.next_round is not None:
            assert isinstance(step.next_round, TrainingRound)
            round_ = step.next_round
    assert isinstance(step.artifact, TrainedModel)
    assert step.artifact.texts["program"] == round_.program.name
    assert step.artifact.digest != start.digest


def test_a_record_adds_its_own_gradient_whoever_is_there(file: Path) -> None:
    """A member's sum is that of its records' own clipped integers, one by one: what the promise about records needs."""
    round_, examples = begun(file, "gradients"), some_examples(7)
    each = [part(round_, examples.take(np.array([row]))).blocks["gradient"] for row in range(7)]
    assert (part(round_, examples).blocks["gradient"] == np.sum(each, axis=0)).all()
    inputs = (examples.records * (1 / GRID.unit(DIMENSION))).astype(np.float32)
    program, state = round_.program, round_.state.groups["model"]
    alone = next(record_gradients(program, state, inputs[:1], examples.labels[:1])).astype(np.float64)
    assert (sum_of_records(alone, 5.0, GRID.levels) == each[0]).all()
    assert 0 < math.sqrt(sum(int(entry) ** 2 for entry in each[0])) <= GRID.levels


def test_noise_of_dp_sgd_is_drawn_for_every_parameter(file: Path) -> None:
    """A member without records sends what noise alone moves, and none where the plan has none."""
    round_, empty = begun(file, "sampled"), some_examples(0)
    sent = [
        round_.contribute(Local(empty, CLASSES, GRID, randomness=seeded(1), sigma=sigma)).blocks["update"]
        for sigma in (0.0, 1e5)
    ]
    assert not sent[0].any()
    assert np.count_nonzero(sent[1]) > 30


def test_plan_names_the_file_by_its_digest_alone(file: Path) -> None:
    """No path of a plan's opens a file: it is no program's name."""
    with pytest.raises(BadInput, match="there is no program"):
        method_named("fedavg", {"model": str(file)}).sums(DIMENSION, CLASSES, GRID.levels)


def test_program_whose_state_is_too_large_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state has its bound, whoever made the program."""
    monkeypatch.setattr("methods.training.training_round.MAX_STATE_BYTES", 1500)
    with pytest.raises(BadInput, match="the state of 63 parameters"):
        begun(file, "updates")


def test_examples_of_another_width_are_refused(file: Path) -> None:
    """A plan whose records have another number of features than the program takes is not made."""
    name = parameters_of("fedavg", {}, f"model={file}")["model"]
    with pytest.raises(BadInput, match="takes records of shape 6, the plan's have 7 numbers"):
        program_named(str(name), 7, CLASSES)
