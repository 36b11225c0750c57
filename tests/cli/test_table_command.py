"""`secagg table`: tables and figures again from results.json, without a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.cli.command import Command


def test_tables_come_again(secagg: Command, tmp_path: Path) -> None:
    """Two sweeps of methods with short names make one table; an edited accuracy is refused in one line, with code 2."""
    labels = np.array(["a", "b", "c"])[np.arange(90) % 3]
    features = np.random.default_rng(0).normal(size=(90, 4)) + (np.arange(90) % 3)[:, None]
    np.savez(tmp_path / "small.npz", features=features, labels=labels)
    how = ["--dataset", tmp_path / "small.npz", "--clients", 3, "--seeds", 1, "--workers", 1]
    for name, method in (("one", "near=prototypes"), ("two", "stiff=fedcgs[ridge=0.5]")):
        assert secagg("sweep", *how, "--method", method, "--out", tmp_path / name).code == 0
    files = [tmp_path / name / "results.json" for name in ("one", "two")]
    said = secagg("table", *files, "--out", tmp_path / "both")
    assert said.code == 0, said
    assert [line.split()[0] for line in said.out.splitlines()[2:4]] == ["near", "stiff"]
    assert (tmp_path / "both" / "accuracy.png").exists()
    content = json.loads(files[0].read_text())
    content["runs"][0]["result"]["accuracy"] = 1.0
    files[0].write_text(json.dumps(content))
    said = secagg("table", *files, "--out", tmp_path / "edited")
    assert (said.code, said.out) == (2, "")
    assert "were changed after it was written; run its command again" in said.err
    assert not (tmp_path / "edited").exists()
