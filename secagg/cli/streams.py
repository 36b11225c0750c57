"""Standard output and standard error, whose readers may go before the command is done.

A reader that has gone (`secagg audit … | head -3`) is no verdict: what is written from then on goes nowhere, and the
command ends with the exit code of its result.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO


class _Unread:
    """A text stream that goes on when its reader has gone; in everything else the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop the text where nobody reads it."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what is left where nobody reads it."""
        with self._dropping():
            self._stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # what is in the buffer goes there too, at the latest at the end
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def streams_without_readers() -> Iterator[None]:
    """Inside, both streams can be written to, even those that were closed or whose reader goes.

    What their encoding lacks is written as an escape.
    """
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        inside = [_usable(stream or nowhere) for stream in before]
        sys.stdout, sys.stderr = inside
        try:
            yield
        finally:
            for stream in inside:
                with suppress(OSError):  # of a full disk, which was said where the result was written
                    stream.flush()
            sys.stdout, sys.stderr = before


def _usable(stream: TextIO) -> Any:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return _Unread(stream)
