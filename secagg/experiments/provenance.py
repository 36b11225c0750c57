"""The identity of a result: digests of settings, data and code, and the versions of the libraries used."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import methods
from secagg.data import Dataset
from secagg.features import programs_in
from secagg.networks.exported import files_in
from secagg.system.plugins import is_planned
from secagg.system.reading import sha256_of
from secagg.wire import plain

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "opacus")
"""Libraries whose arithmetic decides heads and features."""
SOURCES = (Path(__file__).parents[1], Path(str(methods.__file__)).parent)
"""The folders of the installed packages `secagg` and `methods`."""


@cache
def made_by() -> dict[str, str]:
    """Return the SHA-256 (hex) of the installed `secagg` and `methods`, and the versions of Python and libraries."""
    versions = dict.fromkeys(LIBRARIES, "absent")
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {"code_sha256": sources_sha256(*SOURCES), "python": platform.python_version(), **versions}


def identity_of(settings: Mapping[str, Any], data_sha256: str) -> dict[str, Any]:
    """Return all that decides a run's result: its settings and data (`question_of`), and the code and versions."""
    return {"version": 2, **question_of(settings, data_sha256), "made_by": made_by()}


def question_of(settings: Mapping[str, Any], data_sha256: str) -> dict[str, Any]:
    """Return all that a run is given: settings, and digests of data, files and plug-ins. Raises BadInput."""
    named = map(Path, (*programs_in(settings["backbone"] or ""), *files_in(settings["parameters"])))
    planned = methods.planned_method(settings["method"])
    return {
        "data_sha256": data_sha256,
        "backbone_sha256": [sha256_of(file) for file in named if file.is_file()],
        "settings": plain(settings),
        **({"method_sha256": planned.rpartition("@")[2]} if is_planned(planned) else {}),
    }


def provenance_of(questions: Sequence[Mapping[str, Any]], data_sha256: str) -> dict[str, Any]:
    """Return the origin of several runs for results.json: digests of all they were given, versions, command line."""
    return {
        "data_sha256": data_sha256,
        "backbone_sha256": sorted({digest for each in questions for digest in each["backbone_sha256"]}),
        "method_sha256": sorted({each["method_sha256"] for each in questions if "method_sha256" in each}),
        "made_by": made_by(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def data_sha256(dataset: Dataset) -> str:
    """Return the SHA-256 (hex) over a data set: name, kind, classes, bound, records, and each file's record indices."""
    digest = hashlib.sha256(repr((dataset.name, dataset.kind, dataset.classes, dataset.bound)).encode())
    arrays: list[NDArray[Any]] = [rows for _, rows in dataset.parts or ()]
    for records in filter(None, (dataset.train, dataset.test)):
        arrays += [records.inputs, records.labels, *(records.columns[name] for name in sorted(records.columns))]
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def sources_sha256(*folders: Path) -> str:
    """Return the SHA-256 (hex) over all Python files in these folders: relative path and content of each."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
