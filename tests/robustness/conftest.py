"""The table of what ran over damaged files, at the end of a run."""

import pytest

TABLE = pytest.StashKey[list[str]]()
"""Its head and its rows."""


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty table."""
    config.stash[TABLE] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    for row in config.stash[TABLE]:
        terminalreporter.write_line(row)
