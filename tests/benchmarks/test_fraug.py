"""The tables of FRAug measure every row on the same test records, which train nothing, and weigh domains alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.benchmarks import fraug
from tests.benchmarks.fraug import DOMAINS, NETWORKS, Form, Job, Part, Who

NETWORK = next(iter(NETWORKS))
SIZES = 40, 60, 80, 100
TESTED = tuple(round(fraug.SHARES[Part.TEST] * size) for size in SIZES)
DIMENSION = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with features of four domains; in the last the two classes are the other way round."""
    folder, draw = tmp_path_factory.mktemp("pacs"), np.random.default_rng(0)
    content: dict[str, NDArray[Any]] = {"scale": np.ones(DIMENSION, dtype=np.float32)}
    for name, size in zip(DOMAINS, SIZES, strict=True):
        labels = np.arange(size) % 2
        classes = 1 - labels if name == DOMAINS[-1] else labels
        features = draw.integers(0, 50, (size, DIMENSION)) + 200 * np.eye(DIMENSION, dtype=np.int64)[classes]
        content |= {f"{name}_features": features.astype(np.uint8), f"{name}_labels": labels.astype(np.uint8)}
    np.savez(folder / NETWORKS[NETWORK], **content)  # type: ignore[arg-type]
    return folder


def test_no_record_is_in_two_parts(data: Path) -> None:
    """The parts of a domain are disjoint and hold all its records."""
    for domain, size in zip(fraug.domains_of(NETWORK, data), SIZES, strict=True):
        rows = np.concatenate([domain[part].inputs for part in Part])
        assert len(rows) == len(np.unique(rows, axis=0)) == size


@pytest.mark.parametrize("form", [fraug.FEDBN, fraug.ALONE, fraug.POOLED], ids=lambda form: form.title)
def test_a_domain_is_asked_of_its_own_member(form: Form, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row answers about all test records; in the domain with exchanged classes only a member alone is right."""
    monkeypatch.setattr(fraug, "ROUNDS", 4)
    job = Job(NETWORK, 12, 0, form.who, form.parameters(0.3), is_trial=False)
    by_domain = [each.mean() for each in np.split(fraug.answers(job, data), np.cumsum(TESTED)[:-1])]
    assert min(by_domain[:-1]) > 0.9
    assert (by_domain[-1] > 0.9) == (form.who is Who.ALONE)


def test_domains_weigh_the_same(data: Path, tmp_path: Path) -> None:
    """Answers that are right in the smallest domain alone add up to a quarter."""
    job = Job(NETWORK, 12, 0, Who.MEMBERS, "", is_trial=False)
    right = np.repeat([1, 0, 0, 0], TESTED)
    job.path(tmp_path).parent.mkdir()
    job.path(tmp_path).write_text(json.dumps({"right": right.tolist(), "cpu": 0.0}), encoding="utf-8")
    assert fraug.added(job, data, tmp_path).sum() == pytest.approx(0.25)
