"""Log lines as JSON (--log-format json): one object a line, with time, level, party, plan, round and step."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

OWN_FIELDS = ("round", "step")
"""Fields that a record of a session brings itself, as they were when it was written."""


class JsonLines(logging.Formatter):
    """A log formatter that writes each record as one JSON object; `context` has fields that all of them share."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON: time (UTC), level, logger, message, shared fields, and any traceback."""
        content = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._context,
            **{name: value for name, value in vars(record).items() if name in OWN_FIELDS},
        }
        traceback = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        if traceback:
            content["traceback"] = traceback
        return json.dumps(content)


def complain(text: str) -> None:
    """Write a command's error to stderr: as a JSON log line where the command writes such, else after its name."""
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers):
        logging.getLogger("secagg").error("%s", text)
    else:
        print(f"secagg: {text}", file=sys.stderr)
