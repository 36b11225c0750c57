"""The wheel, installed in an environment of its own with the locked versions, works as the checkout does."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from tests.architecture.lock import LOCK
from tests.architecture.source import ROOT

pytestmark = pytest.mark.long
NAMES = ("alice", "bob", "carol")
ABSENT = ("matplotlib", "sklearn", "opacus", "tenseal", "transformers", "diffusers", "pyarrow", "Crypto")


def said(*words: object, code: int = 0) -> str:
    """Standard output of a command that ends with this code; where there is none, what it complained of."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout or done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what it requires, and no extra."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("secagg-*.whl")
    venv.create(folder / "venv", with_pip=True)
    subprocess.run([folder / "venv/bin/pip", "install", "--quiet", "--constraint", LOCK, wheel], check=True)
    return folder / "venv" / "bin"


def test_only_what_a_member_needs_is_installed(programs: Path) -> None:
    """The core brings no library of an extra, and every file that a command reads is in the wheel."""
    program = f"from importlib.util import find_spec; print([name for name in {ABSENT} if find_spec(name)])"
    assert said(programs / "python", "-I", "-c", program) == "[]\n"
    assert "heart" in said(programs / "secagg", "plan", "new", "--help").lower()
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
    said(secagg, "plan", "new", "--roster", roster, "--out", plan, *chosen)
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
