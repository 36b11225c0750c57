"""What all tests share: how Hypothesis draws, no features kept, where files are written, the larger data sets."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.worlds.chance import repeatable

settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("wide", deadline=None, max_examples=2_000)
settings.load_profile("fixed")
os.environ["SECAGG_CACHE"] = "off"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for a busy core are far slower
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

MEMORY = Path("/dev/shm")  # noqa: S108 (pytest makes a folder of its own in it)
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # parties sync every record: a disk is slow at that

gc.disable()  # until all tests are collected: what is imported and collected stays


def pytest_collection_finish() -> None:
    """Collect no garbage among what was imported: each search through it would take half a second."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # the usual ones search young objects fourteen times as often
    gc.enable()


DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of larger data sets beside the checkout; tests that need it are skipped where it is absent."""
    if not DATA.is_dir():
        pytest.skip("needs the data sets in ../shared/data")
    return DATA


@pytest.fixture
def repeatable_chance(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keys and noise of the test's own, the same in every run: for what errs at a rate that it states, as audits do."""
    with repeatable(request.node.nodeid):
        yield
