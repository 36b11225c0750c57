"""What the commands of all parties share: their options, their keys, and how they show what came of a session."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.cli.console import Speaker
from secagg.errors import BadInput
from secagg.transport import Credentials, read_credentials
from secagg.transport.credentials import End

StateOption = Annotated[Path, typer.Option("--state", help="This party's folder: sessions, transcripts, ledger.")]
TlsOption = Annotated[Path, typer.Option("--tls", help="This party's keys and certificates (secagg pki).")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait for the server to be there.")]


def credentials_for(role: str, tls: Path, speaker: Speaker) -> Credentials:
    """Read a member's keys, and warn of certificates that end soon.

    Raises BadInput for one that has another role in the roster.
    """
    credentials = read_credentials(tls)
    warn_of_ends(speaker, credentials.ends())
    if (found := credentials.roster.role(credentials.index)) != role:
        raise BadInput(f"{credentials.name} is no {role} in the roster, but {found}")
    return credentials


def warn_of_ends(speaker: Speaker, ends: Iterable[End]) -> None:
    """Say which certificates end soon, and what is to be done."""
    for end in ends:
        if end.is_near:
            authority = end.file.name == "ca.pem"
            remedy = "found the consortium anew" if authority else "secagg pki renew, then have it issued"
            speaker.say(f"WARNING: {end.sentence()}: {remedy}")


def rows_of(content: dict[str, Any]) -> list[tuple[str, str]]:
    """The plain values, for people; lists and tables are in the JSON."""
    plain = {name: value for name, value in content.items() if value is not None and not isinstance(value, dict | list)}
    return [(name.replace("_", " "), str(value)) for name, value in plain.items()]
