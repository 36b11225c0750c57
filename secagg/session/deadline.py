"""The deadline of a protocol step, stored on disk so that a restart does not begin the step's time anew."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from secagg.errors import BadInput
from secagg.system.files import write_synced

CLOSING_FILE = "closing"
"""Holds the step that a party waits in, its closing time (seconds since 1970), and whether that was postponed.

Two more words say whether it was extended, 0 or 1, and how many seconds the operator added; older files lack them."""
LOOK_SECONDS = 1.0
"""Seconds between two looks at a deadline; a longer gap shows that the process was stopped."""
MOST_ADDED = 7 * 86_400
"""The most seconds by which an operator extends a wait, all extensions together."""
REMIND_SECONDS = 60.0
"""Seconds between two lines of a log that say who is still awaited."""
_MOST_GRACE = 10.0
_STOPPED_SECONDS = 2.0


@dataclass(frozen=True)
class _Closing:
    """When a step closes (`at`), whether that was postponed and extended, and the seconds that the operator added."""

    at: float
    is_put_off: bool = False
    is_extended: bool = False
    added: int = 0


def read_closing(folder: Path, step: str) -> _Closing | None:
    """Return how a step closes, in seconds since 1970; None if not stored."""
    try:
        noted, closes, is_put_off, *rest = (folder / CLOSING_FILE).read_text(encoding="ascii").split()
        is_extended, added = (*rest, "0", "0")[:2]
        usable = noted == step and math.isfinite(float(closes)) and 0 <= int(added) <= MOST_ADDED
        return _Closing(float(closes), is_put_off == "1", is_extended == "1", int(added)) if usable else None
    except (OSError, ValueError):
        return None


def forget_closing(folder: Path) -> None:
    """Forget when the present step closes, so that a restarted party waits for the step's whole time again."""
    (folder / CLOSING_FILE).unlink(missing_ok=True)


class Deadline:
    """The deadline of one protocol step; it stays the same when the party's process restarts.

    A party that was itself away (restarted, or stopped) when its step should have closed could hear nobody: once, it
    puts the close off, so that those who waited for it are heard. A step takes at most its time, the time in which the
    party was away, and `slack` seconds: half of them for this, half for those who waited for a place to upload.
    `extend` doubles the step's time, once for all lives. `clock` counts seconds and never goes back:
    that of the event loop, so that a party has one clock for its waits and its deadlines.
    """

    def __init__(
        self, folder: Path, step: str, seconds: float, slack: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start the step's time, or continue with the stored deadline. Raises BadInput when the disk refuses."""
        self._file = folder / CLOSING_FILE
        self._step = step
        self._seconds = seconds
        self._slack = slack
        self._clock = clock
        now = self._looked = clock()
        kept = read_closing(folder, step)
        if kept is None:
            self._keep(_Closing(now + seconds))
        else:
            self._closing = replace(kept, at=now + min(seconds + kept.added, kept.at - time.time()))
            self._put_off(now)

    @property
    def is_extended(self) -> bool:
        """Whether the step was extended, in this life or an earlier one."""
        return self._closing.is_extended

    def left(self, waited: float = 0.0) -> float:
        """Return the seconds until the step closes, 0 or less once it has closed.

        A wait for an upload place (`waited`) is added, up to half of the slack.
        """
        now = self._clock()
        if now > self._looked + LOOK_SECONDS + _STOPPED_SECONDS:
            self._put_off(now)
        self._looked = now
        return self._closing.at + min(waited, self._slack / 2) - now

    def close_now(self) -> None:
        """End the step's time, as the party's operator wants. Raises BadInput (disk)."""
        self._keep(replace(self._closing, at=self._clock()))

    def add(self, seconds: int) -> float:
        """Add seconds, as the party's operator wants; return how many are left. Raises BadInput (also for the disk)."""
        closing, most = self._closing, MOST_ADDED - self._closing.added
        if not 1 <= seconds <= most:
            remedy = f"{most} of {MOST_ADDED} s for a wait are left; else go on or cancel"
            raise BadInput(f"seconds must be at least 1, and at most {most} (got {seconds})", remedy=remedy)
        self._keep(replace(closing, at=max(closing.at, self._clock()) + seconds, added=closing.added + seconds))
        return self.left()

    def extend(self) -> bool:
        """Restart the step's whole time now; return False if that was done before. Raises BadInput (disk)."""
        if self.is_extended:
            return False
        self._keep(replace(self._closing, at=self._looked + self._seconds, is_extended=True))
        return True

    def _put_off(self, now: float) -> None:
        later = now + min(_MOST_GRACE, self._slack / 2)
        if not self._closing.is_put_off and self._closing.at < later:
            self._keep(replace(self._closing, at=later, is_put_off=True))

    def _keep(self, closing: _Closing) -> None:
        """Write down how the step closes from now on; only what the disk has taken holds."""
        closes, flags = time.time() + closing.at - self._clock(), f"{closing.is_put_off:d} {closing.is_extended:d}"
        try:
            write_synced(self._file, f"{self._step} {closes} {flags} {closing.added}".encode())
        except OSError as error:
            problem = f"cannot write {self._file} ({error.strerror})"
            raise BadInput(problem, remedy="free the disk and start again") from None
        self._closing = closing
