"""Deadline of a step, kept on the disk, so that a restarted party does not begin the time anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from secagg.errors import BadInput
from secagg.system.files import write_synced

CLOSING_FILE = "closing"
"""Holds the step that a party waits in, when it closes (seconds of the system's clock), and whether it was put off.

A last word, 0 or 1, says whether it was extended; files of older versions lack it."""
LOOK_SECONDS = 1.0
"""How often a deadline is to be looked at, so that it notices when the process was stopped."""
_MOST_GRACE = 10.0
_STOPPED_SECONDS = 2.0


def read_closing(folder: Path, step: str) -> tuple[float, bool, bool] | None:
    """When a step closes, in seconds since 1970, and whether that was put off, or extended; None for no note of it."""
    try:
        noted, closes, is_put_off, *rest = (folder / CLOSING_FILE).read_text(encoding="ascii").split()
        return (float(closes), is_put_off == "1", rest == ["1"]) if noted == step else None
    except (OSError, ValueError):
        return None


class Deadline:
    """When one step closes. Of several lives of a party the first one sets it.

    A party that was itself away (restarted, or stopped) when its step should have closed could hear nobody: once, it
    puts the close off, so that those who waited for it are heard. A step takes at most its time, the time in which the
    party was away, and `slack` seconds: half of them for this, half for those who waited for a place to upload.
    `extend` doubles the step's time, once for all lives. `clock` counts seconds and never goes back:
    that of the event loop, so that a party has one clock for its waits and its deadlines.
    """

    def __init__(
        self, folder: Path, step: str, seconds: float, slack: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin the step's time, or go on with it. Raises BadInput when the disk refuses."""
        self._file = folder / CLOSING_FILE
        self._step = step
        self._seconds = seconds
        self._slack = slack
        self._clock = clock
        self._is_put_off = self.is_extended = False
        now = self._looked = clock()
        kept = read_closing(folder, step)
        if kept is None:
            self._closes = now + seconds
            self._keep()
        else:
            closes, self._is_put_off, self.is_extended = kept
            self._closes = now + min(seconds, closes - time.time())
            self._put_off(now)

    def left(self, waited: float = 0.0) -> float:
        """Seconds until the step closes, not above 0 when it does; who `waited` for a place has that time on top."""
        now = self._clock()
        if now > self._looked + LOOK_SECONDS + _STOPPED_SECONDS:
            self._put_off(now)
        self._looked = now
        return self._closes + min(waited, self._slack / 2) - now

    def extend(self) -> bool:
        """Give the step its time once more, from now on; return False for one that is extended already.

        Raises BadInput when the disk refuses.
        """
        if self.is_extended:
            return False
        self._closes, self.is_extended = self._looked + self._seconds, True
        self._keep()
        return True

    def _put_off(self, now: float) -> None:
        later = now + min(_MOST_GRACE, self._slack / 2)
        if not self._is_put_off and self._closes < later:
            self._closes, self._is_put_off = later, True
            self._keep()

    def _keep(self) -> None:
        closes = time.time() + self._closes - self._clock()
        try:
            write_synced(self._file, f"{self._step} {closes} {int(self._is_put_off)} {int(self.is_extended)}".encode())
        except OSError as error:
            raise BadInput(
                f"cannot write {self._file} ({error.strerror})", remedy="free the disk and start again"
            ) from None
