"""What all tests share: the way Hypothesis draws, no features kept on disk, and the folder of larger data sets."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("wide", deadline=None, max_examples=2_000)
settings.load_profile("fixed")
os.environ["SECAGG_CACHE"] = "off"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that wait for a busy core are far slower

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of larger data sets beside the checkout; tests that need it are skipped where it is absent."""
    if not DATA.is_dir():
        pytest.skip("needs the data sets in ../shared/data")
    return DATA
