"""What the commands of all parties share: their options, their keys, and how they show what came of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.errors import BadInput
from secagg.transport import Credentials, read_credentials

StateOption = Annotated[Path, typer.Option("--state", help="This party's folder: sessions, transcripts, ledger.")]
TlsOption = Annotated[Path, typer.Option("--tls", help="This party's keys and certificates (secagg pki).")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait for the server to be there.")]


def credentials_for(role: str, tls: Path) -> Credentials:
    """Read a member's keys. Raises BadInput for one that has another role in the roster."""
    credentials = read_credentials(tls)
    if (found := credentials.roster.role(credentials.index)) != role:
        raise BadInput(f"{credentials.name} is no {role} in the roster, but {found}")
    return credentials


def rows_of(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The plain values, for people; lists and tables are in the JSON."""
    plain = {name: value for name, value in content.items() if value is not None and not isinstance(value, dict | list)}
    return [(name.replace("_", " "), str(value)) for name, value in plain.items()]
