"""One-shot federated averaging is federated averaging with one round of long training, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from methods import method_named
from methods.declaration import check_declaration
from methods.round import OpenedTotal
from methods.training.training_round import TrainingRound
from secagg.errors import BadInput
from secagg.networks import TrainedModel
from tests.methods.training import CLASSES, DIMENSION, GRID, part, some_examples, summed

METHOD = method_named("fedavg-one-shot", {"epochs": 5})
MEMBERS = [some_examples(count, seed) for seed, count in enumerate((12, 30, 0))]


def test_one_sum_gives_the_model_of_one_round() -> None:
    """The same settings of `fedavg` give the same contributions, bit for bit, and the same model."""
    same = method_named("fedavg", {**METHOD.parameters, "rounds": 1})
    rounds = [method.begin(DIMENSION, CLASSES, GRID.levels) for method in (METHOD, same)]
    models = []
    for round_ in rounds:
        assert isinstance(round_, TrainingRound)
        blocks = summed([part(round_, own, number) for number, own in enumerate(MEMBERS)])
        step = round_.finalize(OpenedTotal(blocks, GRID, clients=len(MEMBERS)))
        assert step.next_round is None
        assert isinstance(step.artifact, TrainedModel)
        models.append(step.artifact)
    assert models[0].digest == models[1].digest
    both = [method.sums(DIMENSION, CLASSES, GRID.levels) for method in (METHOD, same)]
    assert both[0] == both[1]
    assert both[0][0].times == 1


def test_members_weigh_by_their_records() -> None:
    """A member of thirty records moves the mean thirty times as far as one of one, up to the cap."""
    round_ = METHOD.begin(DIMENSION, CLASSES, GRID.levels)
    assert isinstance(round_, TrainingRound)
    weights = [int(part(round_, some_examples(count)).blocks["weight"][0]) for count in (0, 1, 30, 1024, 1500)]
    assert weights == [0, 1, 30, 1024, 1024]


@pytest.mark.parametrize("parameters", [{}, {"gradients": 1}, {"sampling": 0.5, "cap": 0}, {"model": "mlp:4"}], ids=str)
def test_every_promise_of_averaging_is_had(parameters: dict[str, float | str]) -> None:
    """Contributions keep what they declare, whoever the promise is about."""
    check_declaration(method_named("fedavg-one-shot", parameters), DIMENSION, CLASSES, GRID)


def test_rounds_are_no_parameter() -> None:
    """A plan cannot ask for more than one; what it holds makes the method again."""
    assert "rounds" not in METHOD.parameters
    assert method_named("fedavg-one-shot", METHOD.parameters) == METHOD
    with pytest.raises(BadInput, match="has no parameter 'rounds'"):
        method_named("fedavg-one-shot", {"rounds": 2})
    with pytest.raises(ValueError, match="rounds"):
        replace(METHOD, rounds=2)  # type: ignore[type-var]
