"""What tasks of tests do, as a module that every process can load."""

from __future__ import annotations

import os

from secagg.system.engines.interface import Arrays
from secagg.system.threads import VARIABLES


def add(context: int, arrays: Arrays, task: int) -> tuple[float, int, list[str | None]]:
    """A number of the array, the process, and how many threads it was told to use."""
    return context + float(arrays["numbers"][task]), os.getpid(), [os.environ.get(name) for name in VARIABLES]


def write(_context: None, arrays: Arrays, task: int) -> None:
    """Change what all processes share."""
    arrays["numbers"][task] = 1.0


def die(_context: None, _arrays: Arrays, task: int) -> int:
    """End the process, but for task 0."""
    if task:
        os._exit(9)
    return task
