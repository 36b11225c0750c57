"""Simulation from Python: the command line's names and defaults, the same bits."""

import hashlib
from typing import Any

import numpy as np
import pytest

import secagg
from secagg.errors import BadInput, SessionAborted

GENERATOR = np.random.default_rng(1)
LABELS = np.arange(90) % 3
FEATURES = GENERATOR.normal(size=(90, 5)) + LABELS[:, None]


def simulated(**settings: Any) -> Any:
    """A simulation over the arrays of this module."""
    return secagg.simulate(FEATURES, LABELS, **settings)


def test_aggregate_is_the_exact_sum() -> None:
    """The aggregate's digest is that of counts, class sums and moments of the quantised records, computed by hand."""
    radius = 32.0
    result = simulated(clients=4, radius=radius)
    q = np.trunc(FEATURES / (radius / (1 << 16))).astype(np.int64)
    counts = np.bincount(LABELS)
    sums = np.stack([q[label == LABELS].sum(axis=0) for label in range(3)])
    moment = (q.T @ q)[np.triu_indices(5)]
    flat = np.concatenate([counts, sums.reshape(-1), moment]).astype("<i8")
    assert result.federated.result.aggregate_sha256 == hashlib.sha256(flat.tobytes()).digest()


def test_split_does_not_change_one_bit() -> None:
    """Clients, partition, seed and protection change neither head nor aggregate."""
    runs = [
        simulated(clients=1, protection="none"),
        simulated(clients=3),
        simulated(clients=9, partition="dirichlet:0.1", seed=4),
        simulated(clients=6, partition="shards:1", colluders=1),
    ]
    assert len({run.federated.result.head_sha256 for run in runs}) == 1
    assert len({run.federated.result.aggregate_sha256 for run in runs}) == 1


@pytest.mark.parametrize("protection", ["masked", "none"])
def test_dropouts_leave_the_survivors_sum(protection: str) -> None:
    """The sum with dropouts is exactly that of the survivors' records alone."""
    run = simulated(clients=10, dropouts=3, seed=3, protection=protection)
    survivors = run.federated.result.members
    assert 7 <= len(survivors) < 10
    counts = run.federated.result.blocks["counts"]
    assert counts.sum() == 9 * len(survivors)


def test_survivors_rows_alone_give_the_same_sum() -> None:
    """Rebuilding the sum from the survivors' rows of the same partition gives the same bits."""
    from secagg.data import partition

    run = simulated(clients=10, dropouts=3, seed=3, radius=32.0)
    rows = partition(LABELS, {}, "iid", 10, 3)
    kept = np.concatenate([rows[member - 1] for member in run.federated.result.members])
    alone = secagg.simulate(FEATURES[kept], LABELS[kept], clients=1, protection="none", radius=32.0)
    assert alone.federated.result.aggregate_sha256 == run.federated.result.aggregate_sha256


def test_too_many_dropouts_abort() -> None:
    """Below the threshold the session is aborted."""
    with pytest.raises(SessionAborted):
        simulated(clients=10, dropouts=6)


def test_held_out_records_are_evaluated() -> None:
    """With test arrays the result has accuracy, interval and the pooled reference; without them it has none."""
    with_test = simulated(test_features=FEATURES[:30], test_labels=LABELS[:30]).to_json()
    assert with_test["accuracy"] == with_test["accuracy_reference"]
    assert simulated().to_json()["accuracy"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"features": FEATURES[:, 0]}, "features must be"),
        ({"features": FEATURES[:0], "labels": LABELS[:0]}, "features must be"),
        ({"labels": LABELS[:-1]}, "features must be"),
        ({"labels": LABELS.astype(float)}, "features must be"),
        ({"labels": LABELS - 1}, "labels count from 0"),
        ({"features": np.where(FEATURES.max() == FEATURES, np.nan, FEATURES)}, ""),
        ({"epsilon": 1.0}, "without its delta and adjacency"),
        ({"epsilon": 1.0, "delta": 1e-5}, "without its delta and adjacency"),
        ({"epsilon": 1.0, "adjacency": "add-remove"}, "without its delta and adjacency"),
        ({"epsilon": 1.0, "delta": 0.0, "adjacency": "add-remove"}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"clients": 0}, "client"),
        ({"dropouts": 5}, "dropouts"),
        ({"colour": "red"}, "colour"),
        ({"partition": "magic"}, "magic"),
        ({"test_features": FEATURES}, "test_features"),
        ({"classes": ["a", "b"]}, ""),
        ({"test_features": FEATURES, "test_labels": LABELS + 5}, ""),
        ({"test_features": FEATURES[:, :2], "test_labels": LABELS}, ""),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused(changes: dict[str, Any], words: str) -> None:
    """Arrays or settings that cannot be used are refused with a line that names them."""
    arguments: dict[str, Any] = {"features": FEATURES, "labels": LABELS, **changes}
    with pytest.raises(BadInput, match=words or None):
        secagg.simulate(arguments.pop("features"), arguments.pop("labels"), **arguments)


def test_unknown_attribute() -> None:
    """The package exports what it says and nothing else."""
    assert "simulate" in secagg.__all__
    with pytest.raises(AttributeError):
        _ = secagg.nothing  # type: ignore[attr-defined]
