"""Read and write the locks: the version of all that secagg needs to be built, run and developed, with every hash."""

import hashlib
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
CUDA_LOCK = ROOT / "requirements-cuda.lock"
HEADER = "# Written by `make lock`; install with `make setup`.\n"
CUDA_HEADER = "# Written by `make lock`: what torch of requirements.lock needs besides where it is PyPI's for Linux.\n"
UV = [sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--generate-hashes", "--no-annotate", "--no-header"]
LINUX = ["--python-platform", "x86_64-manylinux_2_28"]


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
    pins = (line.split()[0].split("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pins}


def hashes(text: str) -> dict[str, set[str]]:
    """The SHA-256 that a lock file allows the archives of each version to have, by canonical name."""
    allowed: dict[str, set[str]] = {}
    for line in text.replace("\\\n", "").splitlines():
        if "==" in line and not line.startswith("#"):
            pin, *options = line.split()
            allowed[canonicalize_name(pin.split("==")[0])] = {
                option.removeprefix("--hash=sha256:") for option in options
            }
    return allowed


def unmet(requirements: list[Requirement], pins: dict[str, Version]) -> list[str]:
    """The requirements that the pins leave out or contradict."""
    return [
        str(requirement)
        for requirement in requirements
        if (name := canonicalize_name(requirement.name)) not in pins or pins[name] not in requirement.specifier
    ]


def installed_closure(requirements: list[Requirement]) -> dict[str, Version]:
    """The installed version of the requirements and of everything they need on this machine, by canonical name."""
    closure: dict[str, Version] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        found = distribution(requirement.name)
        name = canonicalize_name(requirement.name)
        if name in closure:
            continue
        closure[name] = Version(found.version)
        needed = map(Requirement, found.requires or ())
        waiting += [need for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    return closure


def published(pins: dict[str, str]) -> str:
    """The lock of pins and all they need with PyPI's wheels on Linux: hashes of every file, for all platforms."""
    lines = "\n".join(f"{name}=={version}" for name, version in pins.items())
    return subprocess.run([*UV, *LINUX], input=lines, capture_output=True, text=True, check=True).stdout


def local_builds(closure: dict[str, Version]) -> dict[str, set[str]]:
    """The SHA-256 of installed archives that PyPI has not: CPU wheels of torch, from where pip finds them here."""
    found = {}
    for name, version in closure.items():
        if version.local:
            with TemporaryDirectory() as folder:
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
                subprocess.run([*pip, f"{name}=={version}"], check=True)
                found[name] = {hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).iterdir()}
    return found


def written(pins: dict[str, Version], allowed: dict[str, set[str]]) -> str:
    """The lines of a lock, sorted, in the form that pip reads."""
    separator = " \\\n    --hash=sha256:"
    return "".join(separator.join([f"{name}=={pins[name]}", *sorted(allowed[name])]) + "\n" for name in sorted(pins))


if __name__ == "__main__":
    closure = installed_closure(declared((ROOT / "pyproject.toml").read_text()))
    compiled = published({name: version.public for name, version in closure.items()})
    versions, allowed = locked(compiled), hashes(compiled)
    for name, builds in local_builds(closure).items():
        allowed[name] |= builds
    LOCK.write_text(HEADER + written({name: versions[name] for name in closure}, allowed))
    besides = {name: version for name, version in versions.items() if name not in closure}
    CUDA_LOCK.write_text(CUDA_HEADER + written(besides, allowed))
