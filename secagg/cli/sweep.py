"""`secagg sweep`: simulate every combination of settings, and compare them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from secagg.cli.console import Speaker, give_options, refuse_unwritable, warn_of_programs
from secagg.cli.options import ComparisonPageOption, DataSource, Runs, SeedsOption, read_rounds, with_settings
from secagg.cli.simulate import simulate
from secagg.errors import BadInput
from secagg.experiments import sweep as experiments
from secagg.experiments.comparison import Comparison
from secagg.experiments.settings import SimulationSettings, kind_of
from secagg.experiments.sweep import Contender, SweepResult
from secagg.system.extras import extra
from secagg.wire import Choice

Grid = dict[str, tuple[Any, ...]]
"""The values to try, by the name of their setting."""


def with_lists(*without: str, **usual: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command an option with a list of values for each setting of `secagg simulate`.

    The command takes their values as `grid`, beside what `with_settings` gives it. `usual`: defaults that are other
    than there.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        expanded = with_settings()(command)
        simulated = inspect.signature(simulate).parameters
        names = [name for name in simulated if name in experiments.AXES and name not in without]
        lists = [_list_of(simulated[name].replace(default=usual.get(name, simulated[name].default))) for name in names]

        @wraps(command)
        def run(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in names}
            expanded(**given, grid={name: values_of(name, each) for name, each in chosen.items() if each is not None})

        own = [each for each in inspect.signature(expanded).parameters.values() if each.name != "grid"]
        give_options(run, [*own, *lists])
        return run

    return give


def _list_of(parameter: inspect.Parameter) -> inspect.Parameter:
    if isinstance(parameter.default, bool):
        return parameter
    spelled = [f"--{parameter.name.replace('_', '-')}", *(["--methods"] if parameter.name == "method" else [])]
    option = typer.Option(*spelled, help=get_args(parameter.annotation)[1].help, metavar="A,B,…")
    default = str(parameter.default) if parameter.default not in (None, "") else None
    return parameter.replace(annotation=Annotated[str | None, option], default=default)


@with_lists()
def sweep(
    speaker: Speaker,
    runs: Runs,
    source: DataSource,
    grid: Grid,
    seeds: SeedsOption = 5,
    audited: Annotated[
        str | None,
        typer.Option(
            "--audit", metavar="ATTACK", help="Try an attack on every plan too, and draw its success against ε."
        ),
    ] = None,
    html: ComparisonPageOption = None,
) -> None:
    """Simulate every combination of some settings over several seeds, and compare their accuracy.

    Every setting of `secagg simulate` takes a comma-separated list, as in --epsilon 0.5,1,2,inf; in a list the word
    default stands for what simulate does without the option. Methods take parameters of their own and short names, as
    in --methods "fedcgs,slow=fedavg[rounds=50 rate=0.1]". OUT receives results.csv and results.json (every run and
    the summary), table.md and table.tex (for a paper), measures.md and measures.tex (balanced accuracy, AUC, F1 and
    calibration error), accuracy.png and accuracy.svg, and where plans have several rounds curves.csv, curves.png and
    curves.svg. A combination that is refused stays in the table with a dash and the reason. After an interruption the
    same command goes on with the runs that are missing. A job array gives each job a --shard, and then the same command
    with --collect writes the tables. With --audit (`secagg attacks` names them) it also receives attack.csv,
    attack.png and attack.svg.
    """
    refuse_page(html, runs.shard)
    if audited is not None:
        with extra("audit"):
            from secagg.cli.attack_curve import adversary_of
        adversary_of(audited)
        if runs.shard is not None:
            raise BadInput("--audit goes with all runs", remedy="give it with --collect, after the last shard")
    contenders = [Contender.read(each) for each in grid["method"]]
    parameters = (*grid.get("parameters", ()), *(each.parameters for each in contenders))
    warn_of_programs(speaker, grid.get("backbone", ()), parameters, [each.method for each in contenders])
    data = source.open(speaker.say, min(grid["epsilon"]))
    with speaker.progress(f"sweeping over simulations on {data.name}") as progress:
        result = experiments.sweep_dataset(data, grid, seeds, runs.out, progress=progress, **runs.how)
    say_refusals(speaker, result, runs, "run")
    if audited is not None:
        from secagg.cli.attack_curve import attempt_all, write_attack_curve

        with speaker.progress(f"trying {audited} on each plan") as trying:
            attempts = attempt_all(data, result.runs, audited, runs.out, trying)
        for note in write_attack_curve(attempts, audited, runs.out):
            speaker.say(f"note: {audited}: {note}")
    say_written(speaker, runs, len(result.runs))
    if html is not None and result.series:
        write_page(speaker, f"A sweep on {data.name}", result, runs.out, html)
    speaker.result(result.to_json(), *([result.summary()] if result.series and runs.shard is None else []))


def say_refusals(speaker: Speaker, result: SweepResult, runs: Runs, each: str) -> None:
    """Print a sweep's refused runs and notes. Raises BadInput where every run was refused."""
    for line in result.refusals[0 if result.series or runs.shard else 1 :]:
        speaker.say(f"refused: {line}")
    if result.refusals and not result.series and runs.shard is None:
        raise BadInput(f"every {each} was refused: {result.refusals[0]}")
    for note in result.notes:
        speaker.say(f"note: {note}")


def refuse_page(html: Path | None, shard: str | None) -> None:
    """Raise BadInput, before any run, if the page `html` cannot be made or written, or if only a shard is to run."""
    if html is None:
        return
    with extra("audit", "the page"):
        import secagg.cli.page  # noqa: F401 (whether its libraries are there)
    if shard is not None:
        raise BadInput("--html shows all runs", remedy="give it with --collect, after the last shard")
    refuse_unwritable(html)


def write_page(speaker: Speaker, title: str, result: SweepResult | Comparison, out: Path, html: Path) -> None:
    """Write the HTML page of a comparison, with the figure in `out`, and print that it is written."""
    from secagg.cli.page import comparison_page

    html.write_text(comparison_page(title, result.tables, result.notes, out / "accuracy.svg"), encoding="utf-8")
    speaker.say(f"wrote {html}")


def say_written(speaker: Speaker, runs: Runs, made: int) -> None:
    """Print where the results are and, if only a shard (a job's part of the runs) was made, what is left to do."""
    if runs.shard is None:
        speaker.say(f"wrote results, tables and plots into {runs.out}")
    elif not made:
        speaker.say(f"shard {runs.shard} has no runs")
    else:
        speaker.say(
            f"{made} runs of shard {runs.shard} are in {runs.out}; after the last shard, --collect writes the tables"
        )


def values_of(name: str, text: str | bool) -> tuple[Any, ...]:
    """Return the values in the comma-separated list for a setting. Raises BadInput for a value of another type.

    A partition that is a number alone has the form of the one before it: dirichlet:0.05,0.1.
    """
    if isinstance(text, bool):
        return (text,)
    kind, _ = kind_of(name)
    default = getattr(SimulationSettings(), name)
    option = f"--{name.replace('_', '-')}"
    values: list[Any] = []
    for part in text.split(","):
        word = part.strip()
        if name == "partition" and values and word.replace(".", "", 1).isdigit():
            word = f"{values[-1].partition(':')[0]}:{word}"
        try:
            read = read_rounds if name == "refine" else str if issubclass(kind, Choice) else kind
            values.append(default if word == "default" else read(word))
        except ValueError:
            raise BadInput(f"{option} cannot be {word!r}", remedy="separate values by commas") from None
        if word == "":
            raise BadInput(f"{option} has an empty place in {text!r}", remedy="separate values by commas")
    return tuple(values)
