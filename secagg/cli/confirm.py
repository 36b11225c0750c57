"""`secagg confirm`: complete an unconfirmed outcome from another party's transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.console import Speaker
from secagg.cli.options import ModelOption, PluginOption, StateOption
from secagg.session.confirming import confirm_from


def confirm(
    speaker: Speaker,
    transcript: Annotated[Path, typer.Argument(help="transcript.log of another party, of the same round.")],
    state: StateOption,
    _: ModelOption = None,
    plugin: PluginOption = None,
) -> None:
    """Confirm an outcome by another party's transcript, where the server did not show that others have the same one.

    The acknowledgements in it are checked as if the server had shown them. Then run the client or helper again.
    """
    own = confirm_from(transcript, state)
    speaker.result({"confirmed": str(own)}, f"{own}: confirmed; run the same command as before to go on")
