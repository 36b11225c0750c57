"""The wheel, installed in an environment of its own with the locked versions, works as the checkout does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.architecture.lock import LOCK, locked
from tests.architecture.source import PACKAGES, ROOT

pytestmark = pytest.mark.long
NAMES = ("alice", "bob", "carol")
ABSENT = ("prometheus_client", "matplotlib", "sklearn", "opacus", "tenseal", "transformers", "diffusers", "pyarrow")
HIDDEN = shutil.ignore_patterns(".*", "build", "*.egg-info")


def said(*words: object, code: int = 0) -> str:
    """Standard output of a command that ends with this code; where there is none, what it complained of."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout or done.stderr


def built(folder: Path) -> Path:
    """The wheel of a copy of the checkout, made in this folder by the locked setuptools for a fixed day."""
    source = shutil.copytree(ROOT, folder / "source", copy_function=shutil.copy, ignore=HIDDEN)
    (source / "secagg-demo").mkdir(exist_ok=True)  # the demonstration leaves a party's files there
    (source / "secagg-demo" / "policy.toml").write_text("")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    day = os.environ | {"SOURCE_DATE_EPOCH": "1767225600"}
    subprocess.run([*pip, "--wheel-dir", folder, source], env=day, check=True)
    (wheel,) = folder.glob("secagg-*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout."""
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """The programs of an environment that holds the wheel and what it requires, and no extra."""
    folder = wheel.parent / "venv"
    venv.create(folder, with_pip=True)
    pins = folder / "pins.txt"  # without hashes, which the wheel cannot have
    pins.write_text("".join(f"{name}=={version}\n" for name, version in locked(LOCK.read_text()).items()))
    subprocess.run([folder / "bin/pip", "install", "--quiet", "--constraint", pins, wheel], check=True)
    return folder / "bin"


def test_wheel_has_the_same_bytes_when_built_again(wheel: Path, tmp_path: Path) -> None:
    """Another copy of the checkout, whose files are newer, gives the same wheel byte for byte."""
    assert built(tmp_path).read_bytes() == wheel.read_bytes()


def test_wheel_holds_every_file_of_its_packages(wheel: Path) -> None:
    """Code, schemas, adversaries, gates, pages and guides: all of the packages' files, and nothing but its metadata."""
    expected = {
        file.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.parent.name != "__pycache__"
    }
    assert {"secagg/agreement/schemas/heart-disease.toml", "threat_models/adversaries/curious_server.toml"} <= expected
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected


def test_only_what_a_member_needs_is_installed(programs: Path) -> None:
    """The core brings no library of an extra, and every file that a command reads is in the wheel."""
    program = f"from importlib.util import find_spec; print([name for name in {ABSENT} if find_spec(name)])"
    assert said(programs / "python", "-I", "-c", program) == "[]\n"
    assert "heart" in said(programs / "secagg", "plan", "new", "--purpose", "tests", "--help").lower()
    assert said(programs / "secagg", "attacks", code=2) == (
        "secagg: this needs the library sklearn, which is not installed; pip install 'secagg[audit]'\n"
    )


def test_members_sum_with_the_wheel_alone(programs: Path, tmp_path: Path) -> None:
    """Three members and a server, enrolled and run by the installed command, open one sum, which verifies."""
    secagg = programs / "secagg"
    said(secagg, "pki", "init", "--ca", tmp_path / "ca", "--consortium", "wheel")
    for name in ("server", *NAMES):
        role = "server" if name == "server" else "client"
        said(secagg, "pki", "request", name, "--tls", tmp_path / name, "--role", role)
    requests = [tmp_path / name / "request.json" for name in ("server", *NAMES)]
    said(secagg, "pki", "issue", *requests, "--ca", tmp_path / "ca")
    for name in ("server", *NAMES):
        for file in (tmp_path / "ca" / "issued" / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    plan, roster = tmp_path / "plan.json", tmp_path / "server" / "roster.json"
    chosen = ("--shape", 3, "--classes", "no,yes", "--radius", 1, "--max-records", 100)
    said(secagg, "plan", "new", "--purpose", "tests", "--roster", roster, "--out", plan, *chosen)
    parties = [subprocess.Popen(words(secagg, tmp_path, "server", "--listen", "127.0.0.1:0", "--json", "result.json"),
                                cwd=tmp_path, stdout=subprocess.DEVNULL)]  # fmt: skip
    try:
        address = listens(tmp_path / "server" / "state", parties[0])
        for number, name in enumerate(NAMES):
            features = np.random.default_rng(number).uniform(-0.5, 0.5, size=(20, 3))
            np.savez(tmp_path / name / "records.npz", features=features, labels=np.arange(20) % 2)
            policy = tmp_path / name / "policy.toml"
            said(secagg, "plan", "policy", "--plan", plan, "--data-name", name, "--out", policy)
            given = ("--server", address, "--data", tmp_path / name / "records.npz", "--policy", policy)
            parties.append(subprocess.Popen(words(secagg, tmp_path, name, *given), stdout=subprocess.DEVNULL))
        assert [party.wait(120) for party in parties] == [0] * 4
    finally:
        for party in parties:
            party.kill()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["members"] == list(NAMES)
    found = said(secagg, "verify", result["transcript"], "--plan", plan, "--roster", roster)
    assert result["aggregate_sha256"] in found


def words(secagg: Path, folder: Path, name: str, *more: object) -> list[str]:
    """The command of a party."""
    role, home = "server" if name == "server" else "client", folder / name
    return list(
        map(str, [secagg, role, "--plan", folder / "plan.json", "--state", home / "state", "--tls", home, *more])
    )


def listens(state: Path, server: subprocess.Popen[bytes]) -> str:
    """Where the server listens, once it does."""
    while server.poll() is None:
        for file in state.glob("*/address"):
            if address := file.read_text():
                return address
    raise AssertionError("the server ended")
