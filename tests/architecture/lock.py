"""Read and write `requirements.lock`, the exact version of all that secagg needs to be built, run and developed."""

import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
HEADER = "# Written by `make lock`; install with `make setup`.\n"


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
    pins = (line.split("==") for line in text.splitlines() if not line.startswith("#"))
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


if __name__ == "__main__":
    closure = installed_closure(declared((ROOT / "pyproject.toml").read_text()))
    LOCK.write_text(HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(closure.items())))
