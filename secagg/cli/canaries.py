"""`secagg canaries`: plant a random half of canary records in a member's data, to audit a session that runs once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.agreement.plan import read_plan
from secagg.cli.console import Speaker, two_columns
from secagg.cli.options import FormatOption, PlanOption


def canaries(
    speaker: Speaker,
    plan: PlanOption,
    data: Annotated[str, typer.Option(help="The member's own records: features or images with labels (.npz).")],
    out: Annotated[
        Path, typer.Option("--out", help="A folder for canaries.npz and data.npz, which does not hold any.")
    ],
    count: Annotated[int, typer.Option(help="How many; 100 can show an epsilon of 3.49 at most, 1000 of 5.8.")] = 100,
    spare: Annotated[
        str | None, typer.Option(help="Records that no member has, to plant; needed unless the plan takes features.")
    ] = None,
    formats: FormatOption = None,
) -> None:
    """Make canaries, throw a fair coin for each, and put those with heads into a copy of a member's data.

    Take part with OUT/data.npz, show nobody OUT/canaries.npz before the sum is opened, and then audit the server's
    transcript: `secagg audit TRANSCRIPT --canaries OUT/canaries.npz --known DATA`. Each canary that is in is a false
    record, which the head learns too.
    """
    from threat_models.evidence.canaries import CANARY_FILE, DATA_FILE, prepare

    prepare(read_plan(plan), data, count, spare, out)
    files = {"data": str(out / DATA_FILE), "canaries": str(out / CANARY_FILE)}
    rows = [("take part with", files["data"]), ("keep secret until the end", files["canaries"])]
    rows.append(("canaries", f"{count}, each in the data with probability one half"))
    speaker.result({**files, "count": count}, two_columns("Canaries", rows))
