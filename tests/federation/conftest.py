"""What the tests of whole plans share."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def processes_crash_but_machines_do_not() -> Iterator[None]:
    """Skip the wait for the disk: what a killed process has written stays in the kernel's hands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
