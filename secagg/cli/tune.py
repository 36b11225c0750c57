"""`secagg tune`: tune the settings of a method that trains, by FedPop (population-based search)."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.console import Speaker, two_columns, warn_of_programs
from secagg.cli.options import DataSource, ParametersOption, Runs, read_words
from secagg.cli.sweep import Grid, say_refusals, say_written, with_lists
from secagg.experiments.tuning import Tuning
from secagg.experiments.tuning import tune_dataset as run_tuning


@with_lists("method", "parameters", clients=20, reference=False)
def tune(
    speaker: Speaker,
    runs: Runs,
    source: DataSource,
    grid: Grid,
    method: Annotated[str, typer.Option(help="The method whose settings are sought, one that trains.")] = "fedavg",
    parameters: ParametersOption = "",
    space: Annotated[
        str,
        typer.Option(
            metavar="NAME=LOW:HIGH …",
            help="Settings to try: NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A|B|C, or a file of them.",
            callback=read_words,
        ),
    ] = "",
    search: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE …",
            help="How: parameters of fedpop (secagg methods), such as population=5 interval=5 local=2 search=halving.",
            callback=read_words,
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Searches, each with a first population of its own.")] = 1,
) -> None:
    """Find settings for a method that trains, while it trains: simulate FedPop over secure sums of scores.

    Members are divided into fixed cohorts, one for each setting that is tried at a time; of what they train and of how
    good it is on records held back, only cohorts' sums are opened. --parameters are the method's settings that stay;
    --rounds, --clients, --epsilon and the others of `secagg simulate` take lists, as in `secagg sweep`. OUT receives
    settings.txt, which --parameters of simulate and of plan new takes, and the tables, plots and curves of a sweep,
    whose accuracies nobody chose by. What has ended is not repeated; --shard and --collect are those of `secagg sweep`.
    """
    warn_of_programs(speaker, grid.get("backbone", ()), [parameters])
    data = source.open(speaker.say, min(grid["epsilon"]))
    tuning = Tuning(method, parameters, space, search)
    with speaker.progress(f"tuning {method} on {data.name}") as progress:
        result = run_tuning(data, tuning, grid, seeds, runs.out, progress=progress, **runs.how)
    say_refusals(speaker, result.sweep, runs, "search")
    say_written(speaker, runs, len(result.sweep.runs))
    named = [(", ".join(filter(None, (each.file, each.search))), each.parameters) for each in result.found]
    rows = named if runs.shard is None else []
    speaker.result(result.to_json(), *([two_columns("Found", rows), result.sweep.table.text()] if rows else []))
