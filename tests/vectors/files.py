"""Reading the vector files."""

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "v1"


def load(name: str) -> dict[str, Any]:
    """The content of one vector file."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return content


def named(case: dict[str, Any]) -> str:
    """The name of a failing case, as the id of its test."""
    return str(case["name"])
