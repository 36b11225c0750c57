"""`simulate`, `sweep`, `compare`, `tune` and `audit` take data and settings alike, and name what they cannot take."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import secagg
from methods import METHODS
from secagg.errors import BadInput
from secagg.experiments.outcome import SimulationResult
from secagg.experiments.settings import SimulationSettings

LABELS = np.arange(90) % 3
FEATURES = np.random.default_rng(3).normal(size=(90, 5)) + LABELS[:, None]
HELD_OUT: dict[str, Any] = {"test_features": FEATURES[:30], "test_labels": LABELS[:30]}
CHEAP: dict[str, Any] = {"protection": "none", "radius": 32.0, "reference": False}
ALL = ("simulate", "sweep", "compare", "tune", "audit")
OWN: dict[str, dict[str, Any]] = {
    "simulate": {},
    "sweep": {"seeds": 1, "workers": 1},
    "compare": {"seeds": 1, "workers": 1, "method": "fedcgs"},
    "tune": {"workers": 1},
    "audit": {"threat_models": ["network_observer"]},
}


def call(name: str, folder: Path, *data: Any, **settings: Any) -> Any:
    """Call one of the five, with a folder where it writes into one."""
    where = {} if name in ("simulate", "audit") else {"out": folder}
    return getattr(secagg, name)(*data, **{**where, **OWN[name], **settings})


def sums_in(found: Any) -> set[str | None]:
    """The digests of the sums of the runs in a result."""
    if isinstance(found, SimulationResult):
        return {found.to_json()["aggregate_sha256"]}
    return {run.result and run.result["aggregate_sha256"] for run in found.runs}


def test_all_five_begin_alike() -> None:
    """Features, then labels, may be given by position, in all five; the rest goes by the same names."""
    for name in ALL:
        given = inspect.signature(getattr(secagg, name)).parameters.values()
        placed = [each.name for each in given if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert placed == ["features", "labels"], name
        assert {"test_features", "test_labels", "classes"} <= {each.name for each in given}


@pytest.mark.parametrize("name", ["simulate", "sweep", "compare"])
def test_the_same_data_in_every_form_make_the_same_sum(name: str, tmp_path: Path) -> None:
    """Arrays, a path, a data set, and arrays client by client open one sum of the same bits."""
    np.savez(
        tmp_path / "made.npz",
        train_features=FEATURES,
        train_labels=LABELS,
        **{name: HELD_OUT[name] for name in HELD_OUT},
    )
    path = tmp_path / "made.npz"
    cuts = [slice(0, 40), slice(40, 90)]
    ways = [
        call(name, tmp_path / "a", FEATURES, LABELS, clients=2, **HELD_OUT, **CHEAP),
        call(name, tmp_path / "b", path, clients=2, **CHEAP),
        call(name, tmp_path / "c", secagg.open_dataset(str(path)), clients=2, **CHEAP),
        call(name, tmp_path / "d", [FEATURES[c] for c in cuts], [LABELS[c] for c in cuts], **HELD_OUT, **CHEAP),
        call(name, tmp_path / "e", FEATURES, LABELS, clients=np.arange(90) % 2, **HELD_OUT, **CHEAP),
    ]
    assert len(set().union(*map(sums_in, ways))) == 1


def test_arrays_can_be_audited(tmp_path: Path) -> None:
    """What can be simulated can be audited, with the clients of each record."""
    found = call("audit", tmp_path, FEATURES, LABELS, clients=np.arange(90) % 5, **HELD_OUT)
    assert found.to_json()["subject"]["settings"]["partition"] == "column:client"


def test_arrays_can_be_tuned(tmp_path: Path) -> None:
    """A search over arrays finds settings, and writes them."""
    how = {"search": "population=2 interval=1 validation=0.4", "space": "rate=0.1|0.5", "rounds": 2}
    (found,) = call("tune", tmp_path, FEATURES, LABELS, clients=8, **HELD_OUT, **how).found
    assert "rate=" in (tmp_path / found.file).read_text()


def test_a_list_of_numbers_of_clients_is_swept(tmp_path: Path) -> None:
    """A list of whole numbers is the numbers to try, and not an id for each record."""
    found = call("sweep", tmp_path, FEATURES, LABELS, clients=[3, 4], **HELD_OUT, **CHEAP)
    assert [run.settings["clients"] for run in found.runs] == [3, 4]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"features": 5}, "features has shape"),
        ({"features": None, "labels": LABELS}, "features has shape|say what to audit"),
        ({"labels": None}, "labels are of type object"),
        ({"labels": "a"}, "labels has shape"),
        ({"test_features": 3}, "test_features has shape"),
        ({"test_features": None}, "test_features and test_labels go together"),
        ({"classes": 3}, "classes cannot be 3; give the classes' names"),
        ({"clients": "5"}, "clients cannot be '5'; give a whole number"),
        ({"clients": 5.5}, "clients cannot be 5.5; give a whole number"),
        ({"epsilon": "1"}, "epsilon cannot be '1'; give a number"),
        ({"bogus": 1}, "bogus"),
        ({"features": "there-is-none.npz"}, "features is a data set, which has its own labels"),
        ({"features": "there-is-none.npz", "labels": None, **dict.fromkeys(HELD_OUT)}, "cannot read there-is-none.npz"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_by_name(name: str, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    """All five refuse what they cannot take by the argument's name and what was given, before anything is written."""
    given = {"features": FEATURES, "labels": LABELS, **HELD_OUT, **changes}
    with pytest.raises(BadInput, match=said):
        call(name, tmp_path / "out", given.pop("features"), given.pop("labels"), **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        *((name, {"seeds": "2"}, "seeds cannot be '2'; give how many seeds") for name in ("sweep", "compare", "tune")),
        *((name, {"seeds": True}, "seeds cannot be True") for name in ("sweep", "compare", "tune")),
        *((name, {"out": 3}, "out cannot be 3; give the name of a folder") for name in ("sweep", "compare", "tune")),
        *((name, {"workers": "x"}, "workers cannot be 'x'; give a whole") for name in ("sweep", "compare", "tune")),
        ("compare", {"method": 5}, "method cannot be 5; give the name of a method"),
        ("compare", {"method": []}, "there is no method to compare"),
        ("tune", {"method": 5}, "method cannot be 5"),
        ("tune", {"space": 5}, "space cannot be 5"),
        ("tune", {"search": 5}, "search cannot be 5"),
        ("audit", {"threat_models": "curious_server"}, "threat_models cannot be 'curious_server'; give a list"),
        ("audit", {"transcripts": 5}, "transcripts cannot be 5; give a list"),
        ("audit", {"canaries": "few"}, "must be a number here"),
        ("audit", {"known": 5}, "known cannot be 5; give the name of a file or None"),
    ],
    ids=str,
)
def test_wrong_arguments_of_one_are_refused_by_name(name: str, changes: dict, said: str, tmp_path: Path) -> None:
    """What only some of the five take is refused in the same words."""
    with pytest.raises(BadInput, match=said):
        call(name, tmp_path / "out", FEATURES, LABELS, **{**HELD_OUT, **changes})


def test_records_to_hold_out_are_asked_for(tmp_path: Path) -> None:
    """A sweep without held-out records names the arguments that bring them."""
    with pytest.raises(BadInput, match=r"no held-out records .*; give test_features and test_labels"):
        call("sweep", tmp_path, FEATURES, LABELS)


@pytest.mark.parametrize("method", ["fedcgs", "fedavg", "fedtc", "fedpcl", "local-only"])
@pytest.mark.parametrize("protection", ["masked", "none"])
def test_results_can_be_pickled(method: str, protection: str) -> None:
    """A result that has been pickled says the same, and its head scores the same bits."""
    if method not in METHODS and protection != "none":
        return
    run = secagg.simulate(FEATURES, LABELS, method=method, clients=5, protection=protection, **HELD_OUT)
    again = pickle.loads(pickle.dumps(run))  # noqa: S301 (made in the line itself)
    assert again.to_json() == run.to_json()
    assert run.head is None or np.array_equal(again.head.scores(FEATURES), run.head.scores(FEATURES))


@pytest.mark.parametrize("name", ["sweep", "compare", "audit"])
def test_other_results_can_be_pickled(name: str, tmp_path: Path) -> None:
    """So can what the others return."""
    found: Callable[[], Any] = call(name, tmp_path, FEATURES, LABELS, clients=3, **HELD_OUT)
    assert pickle.loads(pickle.dumps(found)).to_json() == found.to_json()  # noqa: S301 (made in the line itself)


def test_search_that_is_refused_raises(tmp_path: Path) -> None:
    """Where every search of `tune` is refused it raises the reason, as the command does."""
    with pytest.raises(BadInput, match=r"every search was refused: .* choose a method that trains in rounds"):
        call("tune", tmp_path, FEATURES, LABELS, **HELD_OUT, method="fedcgs", radius=32.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parameters": "refine=0", "refine": 3}, "refine is given twice"),
        ({"method": "fedcgs[refine=0]", "refine": 3}, "refine is given twice"),
        ({"tolerate": -1}, r"tolerate must be 0 or more, as many as drop out \(got -1\)"),
        ({"tolerate": 1, "dropouts": 2}, r"tolerate must be 2 or more, as many as drop out \(got 1\)"),
    ],
)
def test_settings_that_clash_are_refused_by_name(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    """A setting given twice, and one below what it must be, are refused with its name and value."""
    with pytest.raises(BadInput, match=said):
        call("simulate", tmp_path, FEATURES, LABELS, **HELD_OUT, clients=8, **{**CHEAP, **settings})


def test_share_of_noise_that_was_removed_is_told(tmp_path: Path) -> None:
    """A result says which part of the noise's variance was removed: a third with one of four tolerated, none gone."""
    private = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove", "refine": 0, "reference": False}
    kept, removed = (
        call("simulate", tmp_path, FEATURES, LABELS, **HELD_OUT, **private, clients=4, tolerate=1, surplus_noise=each)
        for each in ("keep", "auto")
    )
    assert kept.to_json()["noise_removed"] is None
    assert removed.to_json()["noise_removed"] == pytest.approx(1 / 3, abs=1e-3)


def test_rule_for_refinement_has_the_name_of_the_command_line() -> None:
    """`refine="auto"` is the rule, as `--refine auto` is; other texts are refused."""
    assert SimulationSettings(refine="auto") == SimulationSettings(refine=None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="refine cannot be 'often'"):
        SimulationSettings(refine="often")  # type: ignore[arg-type]
