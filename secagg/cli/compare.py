"""`secagg compare`: methods beside each other, with what each costs and what protected it."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.console import JsonOption, QuietOption, Speaker, warn_of_programs
from secagg.cli.options import (
    CollectOption,
    ComparisonPageOption,
    DatasetOption,
    EngineOption,
    FormatOption,
    ImageSizeOption,
    LabelOption,
    RayOption,
    ReferenceOption,
    ResultsOption,
    SchemaOption,
    SeedsOption,
    ShardOption,
    TestOption,
    WorkersOption,
)
from secagg.cli.sweep import REFERENCE, refuse_page, told_of, values_of, with_lists, write_page
from secagg.errors import BadInput
from secagg.experiments import compare as experiments
from secagg.experiments.given import open_simulated
from secagg.system.engines import PROCESSES


@with_lists("method", "parameters")
def compare(
    *,
    methods: Annotated[
        str,
        typer.Option(
            "--methods", "--method", metavar="A,B[X=1 Y=2],…", help="Methods and baselines, with their parameters."
        ),
    ],
    out: ResultsOption,
    dataset: DatasetOption = "digits",
    label: LabelOption = None,
    schema: SchemaOption = None,
    image_size: ImageSizeOption = None,
    seeds: SeedsOption = 3,
    reference: ReferenceOption = True,
    workers: WorkersOption = None,
    engine: EngineOption = PROCESSES,
    ray: RayOption = None,
    shard: ShardOption = None,
    collect: CollectOption = False,
    test: TestOption = None,
    formats: FormatOption = None,
    html: ComparisonPageOption = None,
    json_to: JsonOption = None,
    quiet: QuietOption = False,
    **lists: str | None,
) -> None:
    """Compare methods over partitions and seeds: accuracy, bytes, seconds, epsilon, and which protection ran.

    A method takes its parameters in brackets, as in "fedcgs,fedtc[slots=16 keep=0.9]". --partition, --epsilon, --expand
    and --leave-out take lists, as in --partition dirichlet:0.05,0.1,0.5 or --leave-out "domain=*" (each domain in
    turn); the other options of `secagg simulate` take one value. Whatever cannot run under the protection asked for
    runs without any, and is marked with the reason. A second table has how each method differs from the first, paired
    by seed. OUT receives results.csv, results.json, table.md, table.tex, paired.md, paired.tex, measures.md,
    measures.tex, accuracy.png and accuracy.svg, domains.png and domains.svg where domains are told apart, and
    curves.csv, curves.png and curves.svg where plans have several rounds. After an interruption the same command goes
    on with the runs that are missing. --shard and --collect are those of `secagg sweep`.
    """
    speaker = Speaker(quiet=quiet, json_to=json_to)
    refuse_page(html, shard)
    contenders = [experiments.Contender.read(text) for text in methods.split(",")]
    grid = {name: values_of(name, text) for name, text in lists.items() if text is not None}
    grid[REFERENCE] = (reference,)
    how = {"engine": engine, "ray": ray, "shard": shard, "collect": collect}
    warn_of_programs(
        speaker,
        grid.get("backbone", ()),
        [each.parameters for each in contenders],
        (each.method for each in contenders),
    )
    data = open_simulated(speaker.say, dataset, min(grid["epsilon"]), label, schema, image_size, test)
    with speaker.progress(f"comparing methods on {data.name}") as progress:
        result = experiments.compare(data, contenders, grid, seeds, out, workers, progress, **how)
    if shard is None and not any(run.result for run in result.runs):
        raise BadInput(f"every run was refused: {result.runs[0].refusal}")
    for note in result.notes:
        speaker.say(f"note: {note}")
    told_of(speaker, shard, len(result.runs), out)
    if html is not None:
        write_page(speaker, f"Methods on {data.name}", result, out, html)
    speaker.result(result.to_json(), *([result.summary()] if shard is None else []))
