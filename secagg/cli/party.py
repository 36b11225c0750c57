"""Options and output that the commands of all parties share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

StateOption = Annotated[Path, typer.Option("--state", help="This party's folder: sessions, transcripts, ledger.")]
TlsOption = Annotated[Path, typer.Option("--tls", help="This party's keys and certificates (secagg pki).")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait for the server to be there.")]


def rows_of(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The plain values, for people; lists and tables are in the JSON."""
    plain = {name: value for name, value in content.items() if value is not None and not isinstance(value, dict | list)}
    return [(name.replace("_", " "), str(value)) for name, value in plain.items()]
