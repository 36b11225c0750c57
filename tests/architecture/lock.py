"""Read and write `requirements.lock`: the exact version of all that secagg needs, and the SHA-256 of its files."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from urllib.request import Request, urlopen

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
HEADER = "# Written by `make lock`; install with `make setup`.\n"
INDEX = "https://pypi.org/simple"
PYTHONS = {"py3", *(f"cp3{minor}" for minor in range(2, 16))}
"""Interpreters whose wheels may serve; those for one CPython before 3.11 name it in their ABI, too."""
OTHER_SYSTEMS = ("win", "musllinux", "ios", "android", "emscripten", "pyodide")


def declared(pyproject: str) -> list[Requirement]:
    """The requirements of a pyproject.toml: to build, to run, of the extras in `all`, and to develop."""
    document = tomllib.loads(pyproject)
    project = document["project"]
    extras = project["optional-dependencies"]
    listed = {name for line in extras["all"] for name in Requirement(line).extras}
    lines = [line for name in (*sorted(listed), "dev") for line in extras[name]]
    return [Requirement(line) for line in (*document["build-system"]["requires"], *project["dependencies"], *lines)]


def locked(text: str) -> dict[str, Version]:
    """The versions that a lock file fixes, by canonical name."""
    pins = (line.removesuffix(" \\").split("==") for line in text.splitlines() if "==" in line and line[0] != "#")
    return {canonicalize_name(name): Version(version) for name, version in pins}


def unmet(requirements: list[Requirement], pins: dict[str, Version]) -> list[str]:
    """The requirements that the pins leave out or contradict."""
    return [
        str(requirement)
        for requirement in requirements
        if (name := canonicalize_name(requirement.name)) not in pins or pins[name] not in requirement.specifier
    ]


def installed_closure(requirements: list[Requirement]) -> dict[str, str]:
    """The installed public version of the requirements and of everything they need on this machine."""
    closure: dict[str, str] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        found = distribution(requirement.name)
        name = canonicalize_name(requirement.name)
        if name in closure:
            continue
        closure[name] = Version(found.version).public
        needed = map(Requirement, found.requires or ())
        waiting += [need for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    return closure


def serves(filename: str, version: Version) -> bool:
    """Whether a file of the index is this version's, for a Python and a system that secagg runs on, or its source."""
    try:
        if not filename.endswith(".whl"):
            return parse_sdist_filename(filename)[1] == version
        _, of, _, tags = parse_wheel_filename(filename)
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return False
    return of == version and any(
        tag.interpreter in PYTHONS
        and (tag.abi in {"none", "abi3"} or tag.abi.rstrip("t") in {f"cp3{minor}" for minor in range(11, 16)})
        and not tag.platform.startswith(OTHER_SYSTEMS)
        for tag in tags
    )


def published(name: str, version: str) -> set[str]:
    """The SHA-256 of a version's files in the index; its source only where it has no wheel."""
    asked = Request(f"{INDEX}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})  # noqa: S310
    with urlopen(asked, timeout=60) as answer:  # noqa: S310
        files = [file for file in json.load(answer)["files"] if serves(file["filename"], Version(version))]
    wheels = [file for file in files if file["filename"].endswith(".whl")]
    return {file["hashes"]["sha256"] for file in wheels or files}


def chosen_here(pins: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and SHA-256 of each file that pip would take on this machine, a local build (torch for CPUs) included."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    asked = [f"{name}=={version}" for name, version in pins.items()]
    report = subprocess.run([*command, "--report", "-", *asked], check=True, capture_output=True, text=True).stdout
    for each in json.loads(report)["install"]:
        yield canonicalize_name(each["metadata"]["name"]), each["download_info"]["archive_info"]["hashes"]["sha256"]


def written(pins: Mapping[str, str], hashes: Mapping[str, Iterable[str]]) -> str:
    """The lock file: a version of each package, and the SHA-256 of every file that it may be installed from."""
    blocks = (
        " \\\n    ".join((f"{name}=={version}", *(f"--hash=sha256:{value}" for value in sorted(hashes[name]))))
        for name, version in sorted(pins.items())
    )
    return HEADER + "".join(f"{block}\n" for block in blocks)


if __name__ == "__main__":
    closure = installed_closure(declared((ROOT / "pyproject.toml").read_text()))
    found = {name: published(name, version) for name, version in closure.items()}
    for name, value in chosen_here(closure):
        found[name].add(value)
    LOCK.write_text(written(closure, found))
