"""What a party's log holds: one line for each thing, no traceback of gRPC, and equal lines counted, not repeated."""

from __future__ import annotations

import logging
from dataclasses import dataclass

MOST_EQUAL = 5
WINDOW_SECONDS = 60.0


@dataclass
class _Seen:
    """How often a line came since it came first."""

    first: float
    name: str
    level: int
    count: int = 0


class CalmHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes log records to a stream. Of equal ones only the first few in a minute, and then how many there were."""

    def __init__(self, stream: object = None) -> None:
        super().__init__(stream)
        self._seen: dict[str, _Seen] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, unless it is one too many."""
        if record.name.partition(".")[0] == "grpc":
            if "ExecuteBatchError" in record.getMessage():
                return  # a caller hung up
            record.exc_info = record.exc_text = None
        self._count_up(record.created - WINDOW_SECONDS)
        text = record.getMessage()
        seen = self._seen.setdefault(text, _Seen(record.created, record.name, record.levelno))
        seen.count += 1
        if seen.count <= MOST_EQUAL:
            super().emit(record)

    def close(self) -> None:
        """Say what was counted, and close."""
        self._count_up(float("inf"))
        super().close()

    def _count_up(self, before: float) -> None:
        """Say how often those lines came that came first before then."""
        while self._seen and (oldest := next(iter(self._seen.items())))[1].first < before:
            text, seen = oldest
            del self._seen[text]
            if seen.count > MOST_EQUAL:
                said = f"… and {seen.count - MOST_EQUAL} more like it: {text}"
                super().emit(logging.LogRecord(seen.name, seen.level, "", 0, said, (), None))
