"""What people see of results in Python: summaries, frames, tables for notebooks; and what `secagg` offers."""

import importlib.util
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import secagg
from secagg.errors import BadInput
from secagg.experiments.tables import csv_of, html_of
from secagg.scoring.predictor import Predictor

LABELS = np.arange(120) % 2
FEATURES = np.random.default_rng(0).normal(size=(120, 3)) + LABELS[:, None]


@pytest.fixture(scope="module")
def run():
    """A run with held-out records."""
    return secagg.simulate(FEATURES[:90], LABELS[:90], test_features=FEATURES[90:], test_labels=LABELS[90:], clients=3)


@pytest.fixture
def swept(tmp_path):
    """Two runs of a sweep."""
    np.savez(tmp_path / "own.npz", features=FEATURES, labels=LABELS)
    data = secagg.open_dataset(str(tmp_path / "own.npz"))
    return secagg.sweep(data, clients=[2, 3], protection="none", seeds=1, out=tmp_path / "out", workers=1)


def test_everything_public_is_there_and_documented() -> None:
    """Each public name loads, and says what it is."""
    for name in secagg.__all__:
        assert getattr(secagg, name).__doc__, name
    assert set(secagg.__all__) <= set(dir(secagg))
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        _ = secagg.fit


def test_run_tells_what_came_of_it(run) -> None:
    """The summary and the notebook's table say the same, and escape what others named."""
    assert re.search("^clients in the sum +3 of 3", run.summary(), re.MULTILINE)
    assert "AUC, mean over classes" in run.summary()
    assert run.head.digest in run._repr_html_()
    assert "<script>" not in html_of((), [("note", "<script>")], "<b>")


def test_run_saves_a_head_that_predicts_as_it_does(run, tmp_path) -> None:
    """The folder holds what `secagg predict` takes."""
    predictor = Predictor.open(run.save(tmp_path / "run") / "head.safetensors")
    assert np.array_equal(predictor.scores(FEATURES[90:]), run.head.scores(FEATURES[90:]))


def test_sweep_tells_what_came_of_it(swept) -> None:
    """Its table, as text and for a notebook; measures stand in the CSV's columns."""
    assert "clients 2" in swept.summary()
    assert "<table>" in swept._repr_html_()
    header = csv_of(swept.runs).splitlines()[0]
    assert {"balanced_accuracy", "auc_low", "auc_high", "f1", "calibration_error"} <= set(header.split(","))


def test_frames_have_a_row_for_each_run(run, swept, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pandas is handed: one row of plain values for each run."""
    if importlib.util.find_spec("pandas") is None:
        monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    (row,) = list(run.to_frame()) if isinstance(run.to_frame(), list) else run.to_frame().to_dict("records")
    assert row["accuracy"] == run.evaluation.accuracy
    assert row["auc"] == run.metrics.overall["auc"].value
    assert len(swept.to_frame()) == 2


def test_frame_without_pandas_says_what_to_install(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, with the extra and what to do instead."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match=r"secagg\[frames\].*to_json"):
        run.to_frame()


def test_epsilon_is_that_of_the_command() -> None:
    """Twice the noise promises more, and a promise names its noise."""
    found = secagg.epsilon(1e-5, noise_multiplier=4.0)
    assert secagg.epsilon(1e-5, noise_multiplier=8.0)["epsilon"] < found["epsilon"]
    assert secagg.epsilon(1e-5, target_epsilon=found["epsilon"])["noise_multiplier"] == pytest.approx(4.0, rel=1e-6)
    with pytest.raises(BadInput, match="noise multiplier, or a target epsilon"):
        secagg.epsilon(1e-5)


def test_audit_gives_report_and_exit_code() -> None:
    """The audit of the command line, without a word on the streams; what it cannot audit is refused by name."""
    found = secagg.audit("breast-cancer", threat_models=["network_observer"], protection="none")
    assert found.exit_code in (0, 1, 4)
    assert "network_observer" in found.summary()
    assert found.to_html().startswith("<!DOCTYPE html>")
    assert found.to_json()["gate"]["exit_code"] == found.exit_code
    with pytest.raises(BadInput, match="give data or transcripts"):
        secagg.audit()
    with pytest.raises(BadInput, match="epsilon go with data"):
        secagg.audit(transcripts=["transcript.log"], epsilon=1)


def test_data_set_brings_its_own_labels(tmp_path) -> None:
    """What `open_dataset` gives can be simulated as it is, with ids of clients, and with no other labels."""
    np.savez(tmp_path / "own.npz", features=FEATURES, labels=LABELS)
    data = secagg.open_dataset(str(tmp_path / "own.npz"))
    run = secagg.simulate(data, clients=np.arange(len(data.train)) % 4, protection="none")
    assert (run.dataset, run.clients) == ("own.npz", 4)
    with pytest.raises(BadInput, match="has its own labels"):
        secagg.simulate(data, LABELS)
