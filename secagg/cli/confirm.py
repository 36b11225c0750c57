"""`secagg confirm`: complete an unconfirmed outcome from other parties' transcripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.console import Speaker
from secagg.cli.home import at_home
from secagg.cli.options import ModelOption, PluginOption, StateOption
from secagg.session.confirming import confirm_from


@at_home("state")
def confirm(
    speaker: Speaker,
    transcripts: Annotated[list[Path], typer.Argument(help="transcript.log of other parties, of the same round.")],
    state: StateOption,
    _: ModelOption = None,
    plugin: PluginOption = None,
) -> None:
    """Confirm an outcome by other parties' transcripts, where the server did not show that they have the same one.

    The acknowledgements in them are checked as if the server had shown them. Then run the client or helper again.
    """
    own, known = confirm_from(transcripts, state)
    text = f"{own}: confirmed; run the same command as before to go on"
    if known:
        text = f"{own}: was confirmed before; if a round of the plan is not, give other parties' files of that one"
    speaker.result({"confirmed": str(own), "was_confirmed": known}, text)
