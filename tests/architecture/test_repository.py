"""The files around the code: folders, locked versions, generated code."""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import PurePosixPath

import pytest
from packaging.version import Version

from tests.architecture import lock, regenerate
from tests.architecture.source import ROOT

FOLDERS = {"protos", "secagg", "methods", "tests", "threat_models"}
PYPROJECT = """
[build-system]
requires = ["build-tool>=1"]
[project]
dependencies = ["Some_Library>=2"]
[project.optional-dependencies]
all = ["project[tables]"]
dev = ["checker==3.1"]
tables = ["of-extra>=1"]
vision = ["never-locked>=1"]
"""


def strange_folders(paths: list[str]) -> set[str]:
    """The visible top-level folders of some files that are not among the agreed ones."""
    tops = {PurePosixPath(path).parts[0] for path in paths if "/" in path}
    return {top for top in tops - FOLDERS if not top.startswith(".")}


def test_top_level_folders_are_the_agreed_ones():
    """Every file that git holds or would add lies at the top or in an agreed folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    assert strange_folders(listing.stdout.splitlines()) == set()


def test_what_the_readme_writes_is_no_part_of_the_checkout():
    """The folders and files that README's commands leave are ignored by git, and `make clean` removes them."""
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    written = re.findall(r"--(?:out|html) (\S+)", readme)
    assert {"demo-shared", "audit.html"} <= set(written)
    removed = re.search(r"@rm -rf (.*)", makefile)[1].split()
    for name in written:
        path = name if "." in name else f"{name}/"
        assert any(fnmatch(path, pattern) for pattern in removed), path
        command = ["git", "check-ignore", "--quiet", path]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode in (0, 128), path  # 128: not a git checkout


def test_strange_folder_is_found():
    """A folder outside the agreed ones is named; files at the top and hidden folders are not."""
    assert strange_folders(["README.md", ".ci/run", "secagg/agreement/plan.py", "docs/a/b.md"]) == {"docs"}


def test_lock_meets_every_declared_requirement():
    """The lock file fixes an allowed version of all that pyproject.toml asks for."""
    requirements = lock.declared((ROOT / "pyproject.toml").read_text())
    assert lock.unmet(requirements, lock.locked(lock.LOCK.read_text())) == []


def test_every_locked_version_has_its_hashes():
    """No package can be installed from a file that the lock does not name by its SHA-256."""
    blocks = lock.LOCK.read_text().removeprefix(lock.HEADER).replace(" \\\n    ", " ").splitlines()
    without = [
        block for block in blocks if not re.fullmatch(r"[a-z0-9-]+==[\w.!]+( --hash=sha256:[0-9a-f]{64})+", block)
    ]
    assert without == []
    assert len(blocks) == len(lock.locked(lock.LOCK.read_text()))


def test_lock_reads_what_it_writes():
    """Versions come back from a written lock file, and each package has its hashes in order."""
    text = lock.written({"b": "2", "a": "1.0"}, {"a": {"ff", "00"}, "b": {"11"}})
    assert lock.locked(text) == {"a": Version("1.0"), "b": Version("2")}
    assert text.splitlines()[1:4] == ["a==1.0 \\", "    --hash=sha256:00 \\", "    --hash=sha256:ff"]


@pytest.mark.parametrize(
    ("filename", "served"),
    [
        ("numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl", True),
        ("numpy-2.1.0-cp313-cp313t-macosx_14_0_arm64.whl", True),
        ("numpy-2.1.0-cp37-abi3-manylinux_2_28_x86_64.whl", True),
        ("numpy-2.1.0-py2.py3-none-any.whl", True),
        ("numpy-2.1.0.tar.gz", True),
        ("numpy-2.1.0-cp310-cp310-manylinux_2_17_x86_64.whl", False),
        ("numpy-2.1.0-cp311-cp311-win_amd64.whl", False),
        ("numpy-2.1.0-pp311-pypy311_pp73-manylinux_2_17_x86_64.whl", False),
        ("numpy-2.1.1-cp311-cp311-manylinux_2_17_x86_64.whl", False),
        ("numpy-2.1.1.tar.gz", False),
        ("numpy-2.1.0.exe", False),
    ],
)
def test_lock_names_the_files_of_its_pythons(filename, served):
    """Only this version's files for a Python and a system that secagg runs on are named."""
    assert lock.serves(filename, Version("2.1.0")) is served


@pytest.mark.parametrize(
    ("pins", "missing"),
    [
        ("build-tool==1.0\nsome-library==2.5\nof-extra==1\nchecker==3.1\n", []),
        ("some-library==2.5\nof-extra==1\nchecker==3.1\n", ["build-tool>=1"]),
        ("build-tool==1.0\nsome-library==1.9\nof-extra==1\nchecker==3.1\n", ["Some_Library>=2"]),
        ("build-tool==1.0\nsome-library==2.5\nchecker==3.1\n", ["of-extra>=1"]),
        ("# checker==3.1\nbuild-tool==1.0\nsome-library==2.5\nof-extra==1\n", ["checker==3.1"]),
    ],
)
def test_unmet_requirement_is_found(pins, missing):
    """A requirement that the lock leaves out or contradicts is named, also one of an extra in `all`."""
    assert lock.unmet(lock.declared(PYPROJECT), lock.locked(pins)) == missing


def test_package_is_found_from_the_folder_that_holds_a_clone(tmp_path):
    """Where a folder called secagg, a clone, lies in the working folder, `import secagg` still finds the package."""
    (tmp_path / "secagg").symlink_to(ROOT)
    program = "import secagg; print(secagg.__version__ and secagg.simulate.__name__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "simulate\n", done.stderr


def test_generated_code_is_what_the_protos_give():
    """Regenerating gives the same bytes as the committed files."""
    assert regenerate.differences(regenerate.generate(regenerate.PROTOS), regenerate.GENERATED) == []


def test_stale_generated_code_is_found_and_mended(tmp_path):
    """A changed, a missing and a superfluous file are named, and writing puts all three right."""
    source = tmp_path / "protos" / "secagg" / "v1" / "greeting.proto"
    source.parent.mkdir(parents=True)
    source.write_text('syntax = "proto3";\npackage secagg.v1;\nmessage Greeting { bytes text = 1; }\n')
    expected = regenerate.generate(tmp_path / "protos")
    folder = tmp_path / "generated"
    regenerate.write(expected, folder)
    (folder / "greeting_pb2.py").write_text("changed")
    (folder / "greeting_pb2.pyi").unlink()
    (folder / "old_pb2.py").touch()
    assert regenerate.differences(expected, folder) == ["greeting_pb2.py", "greeting_pb2.pyi", "old_pb2.py"]
    regenerate.write(expected, folder)
    assert regenerate.differences(expected, folder) == []
