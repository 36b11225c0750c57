"""What every planted fault begins with."""

import pytest

from secagg.plan_facts import planning


@pytest.fixture(autouse=True)
def _nothing_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No method has been tried: a process remembers those that kept their declaration, without the fault."""
    monkeypatch.setattr(planning, "_CHECKED", set())
