"""What made a result: the code of the packages that compute it, and the versions of the libraries beneath."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import methods

LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch", "opacus")
"""Those whose arithmetic is in heads and features."""
SOURCES = (Path(__file__).parents[1], Path(str(methods.__file__)).parent)
"""The folders of the packages `secagg` and `methods`, as they are installed."""


@cache
def made_by() -> dict[str, str]:
    """SHA-256 (hex) of the installed sources of `secagg` and `methods`, and the versions of Python and libraries."""
    versions = {name: _version(name) for name in LIBRARIES}
    return {"code_sha256": sources_sha256(*SOURCES), "python": platform.python_version(), **versions}


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
