"""`make quick` runs the tests of what changed."""

import subprocess
import sys
from time import monotonic

import pytest

from tests.architecture import quick
from tests.architecture.source import PACKAGES, ROOT


def test_every_module_has_tests_that_exist():
    """Whichever module of the installed packages changes, `make quick` finds tests for it."""
    files = [path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert [file for file in files if not quick.affected([file])] == []


@pytest.mark.parametrize(
    ("paths", "tests"),
    [
        (["secagg/wire/codec.py", "secagg/wire/framing.py"], ["tests/wire"]),
        (["secagg/errors.py"], ["tests/system"]),
        (["methods/slots/fedtc.py"], ["tests/methods"]),
        (["tests/wire/test_gone.py", "tests/crypto/test_vectors.py"], ["tests/crypto/test_vectors.py"]),
        (["tests/crypto/test_vectors.py", "secagg/crypto/keys.py"], ["tests/crypto"]),
        (["tests/session/conftest.py"], ["tests/session"]),
        (["README.md", "secagg/cli/README.md", "tests/worlds/chance.py", ".ci/run"], []),
        (["tests/architecture/test_source.py"], []),
    ],
)
def test_changed_files_lead_to_their_tests(paths, tests):
    """A module leads to the tests of its package, a test to itself, and each is named once, if it is there."""
    assert quick.affected(paths) == tests


def test_step_is_stopped_at_the_deadline(capsys):
    """What takes too long is stopped, said to be unfinished, and counts for no fault."""
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert quick.ends_well("tests", process, monotonic() + 0.2)
    assert process.returncode != 0
    assert "not finished: make test" in capsys.readouterr().out


def test_fault_is_shown(capsys):
    """What a failing step printed is shown, and the whole fails."""
    words = [sys.executable, "-c", "raise SystemExit(print('found a fault') or 1)"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert not quick.ends_well("lint", process, monotonic() + 20)
    assert "found a fault" in capsys.readouterr().out
