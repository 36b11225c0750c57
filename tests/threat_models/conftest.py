"""What the tests of audits share."""

import pytest


@pytest.fixture(autouse=True)
def every_audit_errs_or_none(repeatable_chance: None) -> None:
    """An audit is wrong at the rate that it states: here in every run or in none."""
