"""`secagg compare`: compare methods by accuracy, cost and protection."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.console import Speaker, warn_of_programs
from secagg.cli.options import ComparisonPageOption, DataSource, Runs, SeedsOption
from secagg.cli.sweep import Grid, refuse_page, say_written, with_lists, write_page
from secagg.errors import BadInput
from secagg.experiments import comparison as experiments
from secagg.experiments.sweep import Contender


@with_lists("method", "parameters")
def compare(
    speaker: Speaker,
    methods: Annotated[
        str,
        typer.Option(
            "--methods", "--method", metavar="A,NAME=B[X=1 Y=2],…", help="Methods and baselines, with their parameters."
        ),
    ],
    runs: Runs,
    source: DataSource,
    grid: Grid,
    seeds: SeedsOption = 3,
    html: ComparisonPageOption = None,
) -> None:
    """Compare methods over partitions and seeds: accuracy, bytes, seconds, epsilon, and which protection ran.

    A method takes its parameters in brackets, and a short name before it, which tables and figures have: as in
    "fedcgs,sixteen=fedtc[slots=16 keep=0.9]". --partition, --epsilon, --expand
    and --leave-out take lists, as in --partition dirichlet:0.05,0.1,0.5 or --leave-out "domain=*" (each domain in
    turn); the other options of `secagg simulate` take one value. Whatever cannot run under the protection asked for
    runs without any, and is marked with the reason. A second table has how each method differs from the first, paired
    by seed. OUT receives results.csv, results.json, table.md, table.tex, paired.md, paired.tex, measures.md,
    measures.tex, accuracy.png and accuracy.svg, and curves.csv, curves.png and curves.svg where plans have several
    rounds. After an interruption the same command goes on with the runs that are missing. --shard and --collect are
    those of `secagg sweep`.
    """
    refuse_page(html, runs.shard)
    contenders = [Contender.read(text) for text in methods.split(",")]
    named = [each.method for each in contenders]
    warn_of_programs(speaker, grid.get("backbone", ()), [each.parameters for each in contenders], named)
    data = source.open(speaker.say, min(grid["epsilon"]))
    with speaker.progress(f"comparing methods on {data.name}") as progress:
        result = experiments.compare_dataset(data, contenders, grid, seeds, runs.out, progress=progress, **runs.how)
    if runs.shard is None and not any(run.result for run in result.runs):
        raise BadInput(f"every run was refused: {result.runs[0].refusal}")
    for note in result.notes:
        speaker.say(f"note: {note}")
    say_written(speaker, runs, len(result.runs))
    if html is not None:
        write_page(speaker, f"Methods on {data.name}", result, runs.out, html)
    speaker.result(result.to_json(), *([result.summary()] if runs.shard is None else []))
