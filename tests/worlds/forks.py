"""Processes forked from one that has loaded what they need, which therefore start at once."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import pytest

from secagg.system.engines import processes

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "secagg.cli.server",
        "secagg.cli.client",
        "secagg.cli.helper",
        "secagg.experiments.workers",
        "torch",
        "tests.worlds.processes",
    ]
)


class _Worker(ForkServerProcess):
    """A forked process with the environment of its parent at this time, not of the process it is forked from."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.environment = dict(os.environ)

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self.environment)
        super().run()


class _Workers(ForkServerContext):
    """In place of the context that starts fresh interpreters."""

    Process = _Worker  # type: ignore[assignment]


def fork_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have engines fork their workers; those of `tests/system` and of commands in processes are fresh."""
    monkeypatch.setattr(processes, "get_context", lambda _: _Workers())
