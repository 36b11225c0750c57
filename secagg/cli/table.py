"""`secagg table`: make the tables and figures of sweeps or comparisons again from their results.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.cli.console import Speaker, speaking
from secagg.errors import BadInput
from secagg.experiments.results import results_of
from secagg.experiments.saved_results import read_results
from secagg.system.extras import require


@speaking
def table(
    speaker: Speaker,
    files: Annotated[list[Path], typer.Argument(help="results.json of one sweep or comparison, or of several.")],
    out: Annotated[Path, typer.Option(help="Folder for the tables and figures.")],
) -> None:
    """Make tables and figures again from results.json, without a run; several files over the same data become one.

    OUT receives what `secagg sweep` or `secagg compare` writes, and its results.json names the files that it was made
    from, with the digests and versions in each. Runs that were changed since they were written are refused.
    """
    require("matplotlib", "experiments")
    result = read_results(*files)
    if not results_of(result.runs):
        raise BadInput("every run in these files was refused", remedy="give a results.json that has results")
    out.mkdir(parents=True, exist_ok=True)
    result.write(out)
    for note in result.notes:
        speaker.say(f"note: {note}")
    speaker.say(f"wrote results, tables and plots into {out}")
    speaker.result(result.to_json(), result.summary())
