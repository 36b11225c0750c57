"""Run an operator's command on events (--hook): a child process that can neither block nor end a session."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from secagg.errors import BadInput

MOST_AT_A_TIME = 4
"""The most runs of a hook at a time; an event that comes while so many run is dropped, and logged."""
LIMIT_SECONDS = 60.0
"""Seconds after which a run is killed, with its own children."""
FAREWELL_SECONDS = 10.0
"""Seconds that an ending command waits for the hook's runs."""
_log = logging.getLogger("secagg.hook")


class Hook:
    """A command that is run, without a shell, once for each event; the event is a JSON object on its standard input.

    What it prints is dropped; an exit code other than 0 is logged. Raises BadInput for a command that cannot be found.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise BadInput(f"--hook {command!r} does not parse ({error})", remedy="quote it as for a shell") from None
        if "\0" in command:
            raise BadInput(f"--hook {command!r} has a NUL character", remedy="leave it out")
        if not self._words or shutil.which(self._words[0]) is None:
            remedy = "name an executable file, with its arguments after it"
            raise BadInput(f"--hook {command!r}: there is no such command", remedy=remedy)
        self._running: dict[subprocess.Popen[bytes], float] = {}

    def run(self, event: Mapping[str, Any]) -> None:
        """Start the command with an event. Failures are logged and go no further."""
        self.reap()
        if len(self._running) >= MOST_AT_A_TIME:
            _log.warning("the event %s is dropped: %d runs of the hook go on", event["event"], MOST_AT_A_TIME)
            return
        try:
            with tempfile.TemporaryFile() as content:  # a pipe would block once it is full
                content.write(json.dumps(event).encode() + b"\n")
                content.seek(0)
                nowhere = subprocess.DEVNULL
                child = subprocess.Popen(  # noqa: S603 (the operator's own command, and no shell)
                    self._words, stdin=content, stdout=nowhere, stderr=nowhere, start_new_session=True
                )
        except OSError as error:
            _log.warning("the hook did not run: %s", error.strerror)
            return
        self._running[child] = time.monotonic() + LIMIT_SECONDS

    def reap(self) -> None:
        """Log the runs that have failed, and kill those that take too long."""
        for child, limit in list(self._running.items()):
            if child.poll() is None and time.monotonic() > limit:
                with suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                _log.warning("a run of the hook is killed after %d s", LIMIT_SECONDS)
                child.wait()
            elif child.returncode:
                _log.warning("the hook ended with exit code %d", child.returncode)
            if child.returncode is not None:
                del self._running[child]

    def finish(self) -> None:
        """Wait for the runs that go on, for at most FAREWELL_SECONDS; those that take longer are left to themselves."""
        deadline = time.monotonic() + FAREWELL_SECONDS
        while self._running and time.monotonic() < deadline:
            self.reap()
            time.sleep(0.02)
