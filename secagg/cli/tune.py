"""`secagg tune`: find settings of a method that trains."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns, warn_of_programs
from secagg.cli.options import (
    CollectOption,
    DatasetOption,
    EngineOption,
    FormatOption,
    ImageSizeOption,
    LabelOption,
    ParametersOption,
    RayOption,
    ReferenceOption,
    ResultsOption,
    SchemaOption,
    ShardOption,
    TestOption,
    WorkersOption,
    words_of,
)
from secagg.cli.sweep import REFERENCE, told_of, values_of, with_lists
from secagg.errors import BadInput
from secagg.experiments.given import open_simulated
from secagg.experiments.tuning import Tuning
from secagg.experiments.tuning import tune as run_tuning
from secagg.system.engines import PROCESSES


@with_lists("method", "parameters", clients=20)
def tune(
    *,
    out: ResultsOption,
    method: Annotated[str, typer.Option(help="The method whose settings are sought, one that trains.")] = "fedavg",
    parameters: ParametersOption = "",
    space: Annotated[
        str,
        typer.Option(
            metavar="NAME=LOW:HIGH …",
            help="Settings to try: NAME=LOW:HIGH, NAME=log:LOW:HIGH or NAME=A|B|C, or a file of them.",
            callback=words_of,
        ),
    ] = "",
    search: Annotated[
        str,
        typer.Option(
            metavar="NAME=VALUE …",
            help="How: parameters of fedpop (secagg methods), such as population=5 interval=5 local=2 search=halving.",
            callback=words_of,
        ),
    ] = "",
    dataset: DatasetOption = "digits",
    label: LabelOption = None,
    schema: SchemaOption = None,
    image_size: ImageSizeOption = None,
    seeds: Annotated[int, typer.Option(min=1, help="Searches, each with a first population of its own.")] = 1,
    reference: ReferenceOption = False,
    workers: WorkersOption = None,
    engine: EngineOption = PROCESSES,
    ray: RayOption = None,
    shard: ShardOption = None,
    collect: CollectOption = False,
    test: TestOption = None,
    formats: FormatOption = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
    **lists: str | None,
) -> None:
    """Find settings for a method that trains, while it trains: simulate FedPop over secure sums of scores.

    Members are divided into fixed cohorts, one for each setting that is tried at a time; of what they train and of how
    good it is on records held back, only cohorts' sums are opened. --parameters are the method's settings that stay;
    --rounds, --clients, --epsilon and the others of `secagg simulate` take lists, as in `secagg sweep`. OUT receives
    settings.txt, which --parameters of simulate and of plan new takes, and the tables, plots and curves of a sweep,
    whose accuracies nobody chose by. What has ended is not repeated; --shard and --collect are those of `secagg sweep`.
    """
    speaker = Speaker(quiet=quiet, json_to=json_to)
    grid = {name: values_of(name, text) for name, text in lists.items() if text is not None}
    grid[REFERENCE] = (reference,)
    how = {"engine": engine, "ray": ray, "shard": shard, "collect": collect}
    warn_of_programs(speaker, grid.get("backbone", ()), [parameters])
    data = open_simulated(speaker.say, dataset, min(grid["epsilon"]), label, schema, image_size, test)
    tuning = Tuning(method, parameters, space, search)
    with speaker.progress(f"tuning {method} on {data.name}") as progress:
        result = run_tuning(data, tuning, grid, seeds, out, workers, progress, **how)
    for line in result.sweep.refusals[0 if result.sweep.series or shard else 1 :]:
        speaker.say(f"refused: {line}")
    if result.sweep.refusals and not result.sweep.series and shard is None:
        raise BadInput(f"every search was refused: {result.sweep.refusals[0]}")
    for note in result.sweep.notes:
        speaker.say(f"note: {note}")
    told_of(speaker, shard, len(result.sweep.runs), out)
    named = [(", ".join(filter(None, (each.file, each.search))), each.parameters) for each in result.found]
    rows = named if shard is None else []
    speaker.result(result.to_json(), *([two_columns("Found", rows), result.sweep.table.text()] if rows else []))
