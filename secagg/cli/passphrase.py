"""The passphrase of the authority's key: from a file, the environment or a prompt; no argument, which others see."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from secagg.errors import BadInput, why
from secagg.system.reading import read_limited
from secagg.transport.enrolment import is_locked

VARIABLE = "SECAGG_CA_PASSPHRASE"
_MOST = 4096
PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help=f"First line: the authority's passphrase. Else {VARIABLE}, or a prompt."),
]


def passphrase_of(ca: Path, file: Path | None) -> bytes | None:
    """The passphrase for an authority's key; None where it has none. Raises BadInput."""
    return ask_passphrase(file, twice=False) if is_locked(ca) else None


def ask_passphrase(file: Path | None, *, twice: bool) -> bytes:
    """A passphrase from a file, else the environment, else whoever sits at the terminal, `twice` where it is new.

    Raises BadInput where there is nobody to ask, and for an empty one.
    """
    if file is not None:
        try:
            lines = read_limited(file, _MOST).decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"cannot read the passphrase in {file} ({_reason(error)})",
                remedy="give --passphrase-file a text file that you may read",
            ) from None
        given = lines[0] if lines else ""
    elif VARIABLE in os.environ:
        given = os.environ[VARIABLE]
    elif sys.stdin.isatty():
        asked = "Passphrase of the authority's key"
        given = str(typer.prompt(asked, hide_input=True, confirmation_prompt=twice, err=True))
    else:
        raise BadInput(
            "the authority's key needs a passphrase, and there is nobody to ask",
            remedy=f"give --passphrase-file, or set {VARIABLE}",
        )
    if not given:
        raise BadInput("the passphrase is empty", remedy="write it on the first line of the file, or into the variable")
    return given.encode()


def _reason(error: Exception) -> str:
    """Why a file cannot be read; what does not decode is not quoted."""
    return why(error) if isinstance(error, OSError) else "it is no UTF-8"
