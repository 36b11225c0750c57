"""What the tests of the source share."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _kept_trees() -> Iterator[None]:
    """Collect no garbage while the whole source is parsed, nor later among its trees, which stay."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
