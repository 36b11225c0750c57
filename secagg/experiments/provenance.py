"""The identity of a result: settings, digest of the data, and the code and versions of libraries that made it."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

import methods
from secagg.data import Dataset
from secagg.features import programs_in
from secagg.networks import files_in
from secagg.system.plugins import is_planned
from secagg.wire import plain

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "opacus")
"""Those whose arithmetic is in heads and features."""
SOURCES = (Path(__file__).parents[1], Path(str(methods.__file__)).parent)
"""The folders of the packages `secagg` and `methods`, as they are installed."""


@cache
def made_by() -> dict[str, str]:
    """SHA-256 (hex) of the installed sources of `secagg` and `methods`, and the versions of Python and libraries."""
    versions = {name: _version(name) for name in LIBRARIES}
    return {"code_sha256": sources_sha256(*SOURCES), "python": platform.python_version(), **versions}


def identity_of(settings: Mapping[str, Any], data_sha256: str) -> dict[str, Any]:
    """All that decides what comes of settings and data: the question, and what answers it."""
    return {"version": 2, **question_of(settings, data_sha256), "made_by": made_by()}


def question_of(settings: Mapping[str, Any], data_sha256: str) -> dict[str, Any]:
    """The settings, and the digests of the data and of the files of code that the settings name."""
    files = *programs_in(settings["backbone"] or ""), *files_in(settings["parameters"])
    return {
        "data_sha256": data_sha256,
        "backbone_sha256": [sha256_of(Path(file)) for file in files if Path(file).is_file()],
        "settings": plain(settings),
        **code_of(settings["method"]),
    }


def code_of(method: str) -> dict[str, str]:
    """The digest of a method that is none of ours, nothing for others. Raises BadInput where its code cannot be run."""
    planned = methods.planned_method(method)
    return {"method_sha256": planned.rpartition("@")[2]} if is_planned(planned) else {}


def sha256_of(path: Path) -> str:
    """The digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def data_sha256(dataset: Dataset) -> str:
    """The digest of all records of a data set, its name, its classes and its parts."""
    digest = hashlib.sha256(repr((dataset.name, dataset.kind, dataset.classes, dataset.bound)).encode())
    arrays: list[NDArray[Any]] = [rows for _, rows in dataset.parts or ()]
    for records in filter(None, (dataset.train, dataset.test)):
        arrays += [records.inputs, records.labels, *(records.columns[name] for name in sorted(records.columns))]
    for array in arrays:
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def sources_sha256(*folders: Path) -> str:
    """SHA-256 (hex) over the path within its package and the content of every Python file of some packages' folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"
