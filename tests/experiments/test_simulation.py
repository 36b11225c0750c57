"""Simulation from Python: the command line's names and defaults, the same bits."""

import hashlib
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg
from secagg.data import Dataset, Records
from secagg.data.arrays import dataset_of
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.experiments.features import Features
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset

GENERATOR = np.random.default_rng(1)
LABELS = np.arange(90) % 3
FEATURES = GENERATOR.normal(size=(90, 5)) + LABELS[:, None]


def simulated(**settings: Any) -> Any:
    """A simulation over the arrays of this module."""
    return secagg.simulate(FEATURES, LABELS, **settings)


def scored(**settings: Any) -> Any:
    """The same, scored on the records that it sums."""
    return simulated(test_features=FEATURES, test_labels=LABELS, **settings)


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


def test_python_shows_what_there_is() -> None:
    """`dir(secagg)` has the public names, help lists every setting, and a result is one short line."""
    assert set(secagg.__all__) <= set(dir(secagg))
    told = str(secagg.simulate.__doc__)
    assert all(f"{each.name}={each.default!r}" in told.replace("\n    ", " ") for each in fields(SimulationSettings))
    line = repr(secagg.simulate(FEATURES, LABELS, test_features=FEATURES, test_labels=LABELS, clients=3))
    assert re.fullmatch(r"<SimulationResult: fedcgs on .+, 3 clients, epsilon inf, accuracy [\d.]+ %>", line)


def test_split_does_not_change_one_bit() -> None:
    """Clients, partition, seed and protection change neither head nor aggregate."""
    runs = [
        simulated(clients=1, protection="none"),
        simulated(clients=3),
        simulated(clients=9, partition="dirichlet:0.1", seed=4),
        simulated(clients=6, partition="shards:1", colluders=1),
    ]
    assert len({run.federated.result.artifact_sha256 for run in runs}) == 1
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


def test_too_many_dropouts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no session could survive is refused before one begins, with what it could."""
    monkeypatch.setattr("secagg.experiments.simulation.play_rounds", None)
    for clients in (None, 10):
        most = 4 if clients else 1
        with pytest.raises(BadInput, match=f"{clients or 5} clients tolerate at most {most} dropouts"):
            simulated(clients=clients, dropouts=9)


def test_held_out_records_are_evaluated() -> None:
    """With test arrays the result has accuracy, interval and the pooled reference; without them it has none."""
    with_test = simulated(test_features=FEATURES[:30], test_labels=LABELS[:30]).to_json()
    assert with_test["accuracy"] == with_test["accuracy_reference"]
    assert simulated().to_json()["accuracy"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"features": FEATURES[:, 0]}, r"features has shape \(90,\); give a row"),
        ({"features": FEATURES[:0], "labels": LABELS[:0]}, r"labels has shape \(0,\); .* one record or more"),
        ({"features": [["a"]] * 90}, "features are no numbers"),
        ({"labels": LABELS[:-1]}, "features holds 90 records, labels 89 labels"),
        ({"labels": LABELS[:, None]}, r"labels has shape \(90, 1\)"),
        ({"labels": LABELS + 0j}, "labels are of type complex128; give integers from 0, or the classes' names"),
        ({"labels": LABELS + 0.5}, "features, row 1: the label is no integer from 0"),
        ({"labels": np.where(np.arange(90) == 6, np.nan, LABELS)}, "features, row 7: the label is no integer from 0"),
        ({"labels": LABELS - 1}, "features, row 1: .* labels count from 0; mend or remove the record"),
        ({"labels": LABELS * 1e15}, "row 2: the label is no integer from 0 to 65535"),
        ({"labels": LABELS * 20_000}, "labels that go up to 40000, of which 3 occur, .* number the classes from 0"),
        (
            {"labels": LABELS.astype(str), "classes": ["0", "1"]},
            "row 3: the label is none of the 2 classes; name every",
        ),
        ({"features": np.where(FEATURES.max() == FEATURES, np.nan, FEATURES)}, "a feature is NaN or infinite; mend or"),
        ({"features": FEATURES * 1e200}, "the longest feature vector has the length .*e.200; scale the features"),
        ({"epsilon": "1"}, "epsilon cannot be '1'; give a number"),
        ({"clients": 10.0}, "clients cannot be 10.0; give a whole number or None"),
        ({"clients": True}, "clients cannot be True"),
        ({"method": 5}, "method cannot be 5; give a text"),
        ({"adjacency": 5}, "adjacency cannot be 5; give a text or None"),
        ({"seed": None}, "seed cannot be None; give a whole number"),
        ({"parameters": {"slots": 4}}, "method fedcgs cannot take 'slots=4'"),
        ({"parameters": {"covariance": "two words"}}, "names and values without spaces"),
        ({"parameters": ["slots=4"]}, "parameters cannot be .'slots=4'.; give a text"),
        ({"epsilon": 1.0}, "without its delta and adjacency"),
        ({"epsilon": 1.0, "delta": 1e-5}, "without its delta and adjacency"),
        ({"epsilon": 1.0, "adjacency": "add-remove"}, "without its delta and adjacency"),
        ({"epsilon": 1.0, "delta": 0.0, "adjacency": "add-remove"}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"clients": 0}, "client"),
        ({"dropouts": 5}, "dropouts"),
        ({"colour": "red"}, "colour"),
        ({"partition": "magic"}, "magic"),
        ({"test_features": FEATURES}, "test_features and test_labels go together"),
        ({"test_labels": LABELS}, "test_features and test_labels go together"),
        ({"classes": ["a", "b"]}, "row 3: the label is none of the 2 classes"),
        ({"test_features": FEATURES, "test_labels": LABELS + 5}, "test_features, row 1: the label is none of the 3 cl"),
        ({"test_features": FEATURES[:, :2], "test_labels": LABELS}, "test_features has 2 features per record, .* 5"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused(changes: dict[str, Any], words: str) -> None:
    """Arrays or settings that cannot be used are refused with a line that names them, without numpy's warnings."""
    arguments: dict[str, Any] = {"features": FEATURES, "labels": LABELS, **changes}
    with pytest.raises(BadInput, match=words or None):
        secagg.simulate(arguments.pop("features"), arguments.pop("labels"), **arguments)


@pytest.mark.parametrize(
    "labels",
    [LABELS.astype(float), LABELS.astype(np.uint8), LABELS.tolist(), np.array(["ant", "bee", "cat"])[LABELS],
     np.array(["ant", "bee", "cat"], dtype=object)[LABELS], [["ant", "bee", "cat"][label] for label in LABELS]],
    ids=["float", "uint8", "list", "names", "objects", "list of names"],
)  # fmt: skip
def test_labels_of_any_spelling(labels: Any) -> None:
    """Whole numbers of any type, and names in their order, mean the same classes."""
    run = secagg.simulate(FEATURES, labels, test_features=FEATURES, test_labels=labels)
    plain = simulated(test_features=FEATURES, test_labels=LABELS)
    assert run.to_json()["head_sha256"] == plain.to_json()["head_sha256"]
    assert run.evaluation == plain.evaluation
    named = secagg.simulate(FEATURES, labels, classes=run.federated.setup.plan.classes)
    assert named.to_json()["aggregate_sha256"] == plain.to_json()["aggregate_sha256"]


def test_settings_of_numpy_and_mappings() -> None:
    """Numbers of numpy are numbers, and parameters may be a mapping: the same run, as plain JSON."""
    plain = simulated(clients=3, centre=0.5, class_gate=2, method="fedtc", parameters="slots=2 epochs=1")
    given = simulated(
        clients=np.int64(3),
        centre=np.float32(0.5),
        class_gate=np.int64(2),
        method="fedtc",
        parameters={"slots": np.int64(2), "epochs": 1},
    )
    assert given.settings == plain.settings
    assert given.to_json()["head_sha256"] == plain.to_json()["head_sha256"]
    assert json.loads(json.dumps(given.to_json()))["clients"] == 3


def test_an_outlier_that_takes_the_grid_is_said() -> None:
    """Where one record is so long that most others round to nothing, a note says so; not for a record twice as long."""
    features = FEATURES.copy()
    features[7] *= 2
    assert not any("median" in note for note in secagg.simulate(features, LABELS).notes)
    assert not any("median" in note for note in simulated(levels=100).notes)
    for far in ({"features": np.where(np.arange(90)[:, None] == 7, 1e12, FEATURES)}, {"radius": 1e4}):
        settings = {"features": FEATURES, **far}
        notes = secagg.simulate(settings.pop("features"), LABELS, **settings).notes
        assert any("of the grid's 65536 steps long and mostly rounded off; remove" in note for note in notes)


def test_a_flattened_map_is_said(tmp_path: Path) -> None:
    """A backbone that ends in a map of numbers is used as it is, with a note in the run's report."""
    import torch

    path = tmp_path / "map.pt2"
    torch.export.save(torch.export.export(torch.nn.Conv2d(1, 2, 3).eval(), (torch.rand(1, 1, 4, 4),)), path)
    images = GENERATOR.uniform(size=(90, 4, 4))
    records = Records(images, LABELS.astype(np.int64), {}, Origin.of("images", np.arange(1, 91)))
    data = Dataset("images", "images", records, None, ("a", "b", "c"), None, 4.0, None)
    run = simulate_dataset(data, SimulationSettings(backbone=str(path), clients=3))
    assert run.federated is not None
    assert run.federated.setup.plan.dimension == 8
    assert any(
        note.startswith("the backbone map.pt2 puts out a map of 2×2×2, taken as 8 features") for note in run.notes
    )


def test_absent_classes_are_said() -> None:
    """Labels from 1 leave a class without a record, which is noted by its name."""
    notes = secagg.simulate(FEATURES, LABELS + 1).notes
    gaps = "; labels count from 0, and numbers without a record are classes too"
    assert f"1 of 4 classes have no training record (0){gaps}" in notes
    notes = secagg.simulate(FEATURES, LABELS, classes="abcd").notes
    assert "1 of 4 classes have no training record (d)" in notes
    assert not any("training record" in note for note in simulated().notes)


@pytest.mark.parametrize(
    ("method", "unit", "delta", "words"),
    [
        ("fedcgs", "record", 1 / 90, "delta 0.0111111 is not below 1 in 90 records"),
        ("dp-sgd", "record", 1 / 90, "delta 0.0111111 is not below 1 in 90 records"),
        ("fedcgs", "record", 1 / 91, None),
        ("dp-sgd", "record", 1 / 91, None),
        ("fedcgs", "client", 0.2, "delta 0.2 is not below 1 in 5 clients"),
        ("fedcgs", "client", 0.19, None),
    ],
)
def test_delta_of_one_in_n_is_said(method: str, unit: str, delta: float, words: str | None) -> None:
    """A delta that lets a unit be published outright is noted, one below it is not."""
    notes = simulated(method=method, epsilon=1.0, delta=delta, adjacency="add-remove", unit=unit).notes
    assert [note.partition(":")[0] for note in notes if note.startswith("delta")] == ([words] if words else [])


def test_bad_records_are_alike_in_arrays() -> None:
    """With a finite ε NaN features and labels of no class are left out and said; without one the first is refused."""
    features, labels = FEATURES.copy(), LABELS.astype(float)
    features[3, 2], labels[4], labels[5] = np.nan, -1, 0.5
    test = {"test_features": features[:30], "test_labels": labels[:30]}
    run = secagg.simulate(features, labels, epsilon=50.0, delta=1e-5, adjacency="add-remove", **test)
    content = run.to_json()
    assert (content["bad_records"], content["bad_held_out"]) == (3, 3)
    assert run.evaluation is not None
    assert run.evaluation.total == 27
    note = "3 of 90 training records are bad and count as zero; 3 of 30 held-out records are bad and are not scored"
    assert note in content["notes"]
    with pytest.raises(BadInput, match="features, row 4: a feature is NaN"):
        secagg.simulate(features, labels, **test)
    data = dataset_of(features, labels, **test, tolerant=True)
    with pytest.raises(BadInput, match="features, row 4: it cannot be used, and only noise lets a record be left out"):
        simulate_dataset(data, SimulationSettings())


def test_unknown_attribute() -> None:
    """The package exports what it says and nothing else."""
    assert "simulate" in secagg.__all__
    with pytest.raises(AttributeError):
        _ = secagg.nothing  # type: ignore[attr-defined]


def test_a_head_that_tells_nothing_is_noted() -> None:
    """What is no better than always naming the most frequent class is said to be so, and no other head is."""
    labels = np.arange(90) % 3
    features = 5.0 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(90, 3))
    for held_out, is_noted in ((labels, False), ((labels + 1) % 3, True)):
        run = secagg.simulate(features, labels, test_features=features, test_labels=held_out, clients=3)
        assert any(note.endswith("naming the most frequent class (33.33 %)") for note in run.notes) == is_noted


def test_exact_run_takes_the_pipeline_of_noise() -> None:
    """Under-noise, a run at ε = ∞ has the normalisation and rounds of the noisy one; by its ε it has neither."""
    exact, alike = (scored(pipeline=each).to_json() for each in ("by-epsilon", "under-noise"))
    noisy = scored(epsilon=4.0, delta=1e-5, adjacency="add-remove").to_json()
    found = [(run["normalisation"], run["refine"], run["vector_length"]) for run in (exact, alike, noisy)]
    assert found[0] != found[1] == found[2]
    assert alike["accuracy"] == alike["accuracy_reference"]
    with pytest.raises(BadInput, match="no such pipeline: noisy; choose one of by-epsilon, under-noise"):
        simulated(pipeline="noisy")


@pytest.mark.parametrize(
    ("parameters", "diverged"),
    [("rate=0.05 clip=20", False), ("rate=1e9 clip=20", True), ("rate=1e30 clip=1e30 model=mlp:20", True)],
    ids=["learns", "is worse", "is no number"],
)
@pytest.mark.filterwarnings("ignore:invalid value")  # of an update that is longer than float64 can say
def test_diverged_training_is_said(parameters: str, diverged: bool) -> None:
    """A model that ends worse than a guess that knows nothing is called diverged, in a note and in the JSON."""
    run = simulated(method="fedavg", parameters=f"rounds=2 {parameters}", reference=False)
    assert run.diverged == run.to_json()["diverged"] == diverged
    assert any(note.startswith("training diverged: a loss of ") for note in run.notes) == diverged


def test_good_model_that_is_sure_of_its_errors_has_not_diverged() -> None:
    """Large steps on records of which one in eleven is labelled wrongly: a loss above that of a guess is no divergence.

    The records are sorted by class, and more than are looked at: some of each class are.
    """
    labels = np.sort(np.arange(1200) % 2)
    directions = labels ^ (np.arange(1200) % 11 == 0)
    features = np.random.default_rng(2).normal(size=(1200, 3)) + 6 * np.eye(3)[directions]
    settings = SimulationSettings(
        method="fedavg", parameters="rounds=2 gradients=1 rate=100 clip=10", protection="none", reference=False
    )
    run = simulate_dataset(dataset_of(features, labels), settings)
    judged = Features.of(dataset_of(features, labels), settings)
    loss, right, most = judged.training_fit(run.head, run.federated.setup.plan.grid)
    assert (loss > np.log(2), right > 0.85, 0.4 < most < 0.6) == (True, True, True)
    assert not run.diverged
    assert not any("diverged" in note for note in run.notes)


def test_exact_training_says_that_a_seed_does_not_repeat_it() -> None:
    """An exact run of a method that trains names the option that repeats it; with that option it does."""
    chosen = {"method": "fedavg", "parameters": "rounds=1 rate=0.1 clip=10", "reference": False, "seed": 3}
    said = "seed does not fix what members draw to train"
    assert any(note.startswith(said) for note in simulated(**chosen).notes)
    again = [simulated(**chosen, noise_seed=5) for _ in range(2)]
    assert again[0].to_json()["head_sha256"] == again[1].to_json()["head_sha256"]
    assert not any(note.startswith(said) for run in (*again, simulated()) for note in run.notes)


def test_seed_fixes_sums_of_gradients() -> None:
    """With `gradients=1` members draw nothing: a seed gives the same model again, and no note says otherwise."""
    chosen = {"method": "fedavg", "parameters": "rounds=2 rate=0.1 clip=10 gradients=1", "reference": False, "seed": 3}
    once, again = (simulated(**chosen) for _ in range(2))
    assert once.to_json()["head_sha256"] == again.to_json()["head_sha256"]
    assert not any(note.startswith("seed does not fix") for note in once.notes)
