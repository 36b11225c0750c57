"""The list of all that secagg needs, as `make sbom` writes it for scanners, is the lock file's."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.lock import LOCK, locked
from tests.architecture.source import ROOT

pytestmark = pytest.mark.long


def made(folder: Path) -> bytes:
    """What `make sbom` writes in a folder that has the files which it reads."""
    for name in ("Makefile", "pyproject.toml", LOCK.name):
        shutil.copy(ROOT / name, folder)
    subprocess.run(["make", "sbom"], cwd=folder, check=True)
    return (folder / "dist" / "secagg.cdx.json").read_bytes()


def hashes(component: dict[str, Any]) -> set[str]:
    """The SHA-256 of a component's files."""
    return {each["content"] for place in component["externalReferences"] for each in place.get("hashes", ())}


def test_list_has_what_the_lock_file_has(tmp_path: Path) -> None:
    """The list names each locked version with all hashes, and is the same at each call; make validates its schema."""
    content = made(tmp_path)
    found = json.loads(content)
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == ("CycloneDX", "secagg")
    pins = {name: str(version) for name, version in locked(LOCK.read_text()).items()}
    assert {each["name"]: each["version"] for each in found["components"]} == pins
    assert set().union(*map(hashes, found["components"])) == set(re.findall(r"sha256:(\w{64})", LOCK.read_text()))
    assert made(tmp_path) == content
