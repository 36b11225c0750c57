"""`secagg methods`: list methods and baselines, and check that what a method sums keeps its declared bounds."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib.metadata import entry_points
from textwrap import wrap
from typing import Annotated, Any

import typer

from methods import METHODS, method_named, parameters_of, split_method
from methods.baselines import BASELINES, DpSgd
from methods.declaration import check_declaration, check_steps
from methods.method import Method, Parameters, lines_of
from secagg.cli.console import Speaker, speaking, two_columns, warn_of_programs
from secagg.cli.options import ParametersOption
from secagg.encoding import Grid, Normalisation
from secagg.errors import BadInput
from secagg.experiments.baselines import DP_SGD, LEAVES_FOR_DP_SGD
from secagg.system import plugins
from secagg.wire import ranges_of

SMALL = (2, 2, 4)
"""The dimension, number of classes and number of levels for which a method's blocks are listed."""
TRIED = (8, 10, Grid(1.0, 1 << 10, normalisation=Normalisation.CENTRED_UNIT))
"""The dimension, number of classes and grid for which `check` tries a method; new plans try it with their own."""

WIDTH = 61
"""Columns of a row beside the longest name of a method, on a terminal of 80."""

app = typer.Typer(invoke_without_command=True)


@app.callback()
@speaking
def methods(
    speaker: Speaker,
    context: typer.Context,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Explain this method or baseline alone.")] = None,
) -> None:
    """List the methods and the baselines: what is summed, what a baseline lets out, and what each parameter does.

    A method runs under every protection, a baseline under none, for the reason that it gives.
    """
    if context.invoked_subcommand is not None:
        return
    if only is not None and only not in (names := [*METHODS, DP_SGD, *BASELINES]):
        raise BadInput(f"there is no method {only!r}", remedy=f"give one of {', '.join(names)}")
    known: dict[str, dict[str, Any]] = {}
    for name in METHODS:
        method = method_named(name)
        kind = type(method)
        title = (sys.modules[kind.__module__].__doc__ or name).splitlines()[0]
        known[name] = {"title": title, "blocks": _blocks(method), **_explained(kind, method.parameters)}
    baselines: dict[str, dict[str, Any]] = {
        DP_SGD: {"leaves": LEAVES_FOR_DP_SGD, **_explained(DpSgd, asdict(DpSgd()))},
        **{
            name: {"leaves": each.leaves, "protections": each.protections, **_explained(each, asdict(each()))}
            for name, each in BASELINES.items()
        },
    }
    installed = {each.name: plugins.installed_sha256(each) for each in entry_points(group=plugins.METHODS)}
    if only is not None:
        known, baselines = ({name: each[name] for name in each if name == only} for each in (known, baselines))
    rows = [(name, _lines(each, each["title"], f"sums {', '.join(each['blocks'])}")) for name, each in known.items()]
    others = [(name, _lines(each, f"leaves a client: {each['leaves']}")) for name, each in baselines.items()]
    tables = {
        "Methods": rows,
        "Baselines (--protection none)": others,
        "Installed by others (SHA-256 of their code)": installed.items(),
    }
    content = {"methods": known, "baselines": baselines, "installed": installed}
    speaker.result(content, "\n\n".join(two_columns(title, each) for title, each in tables.items() if each))


@app.command("check")
def check(
    speaker: Speaker,
    name: Annotated[str | None, typer.Argument(help="The method; default: every one.")] = None,
    parameters: ParametersOption = "",
) -> None:
    """Try a method on extreme records, alone and together, and refuse it where it breaks what it declares.

    Held are the blocks' shapes and integers, the bound of an entry, how far one record moves them, and that the blocks
    of several records are the sum of each one's. Every plan tries its method in the same way before it is made. Here
    `finalize` runs as well, on every round's sum, and shares of the noise must add up to 1.
    """
    if name is not None:
        name, parameters = split_method(name, parameters)
    warn_of_programs(speaker, (), methods=[name or ""])
    checked = {}
    for each in METHODS if name is None else (name,):
        method = method_named(each, parameters_of(each, {}, parameters))
        check_declaration(method, *TRIED)
        check_steps(method, *TRIED)
        checked[each] = {"blocks": _blocks(method), "parameters": method.parameters}
    rows = [(each, ", ".join(found["blocks"])) for each, found in checked.items()]
    speaker.result({"checked": checked}, two_columns("Does what it declares", rows))


def _blocks(method: Method) -> list[str]:
    return [block.name for kind in method.sums(*SMALL) for block in kind.blocks]


def _explained(kind: type, parameters: Parameters) -> dict[str, Any]:
    """Return a method's or baseline's parameters by name: their defaults, and what each does, with its range."""
    lines, ranges = lines_of(kind), ranges_of(kind)
    texts = {name: lines.get(name, "") + (f" ({ranges[name]})" if name in ranges else "") for name in parameters}
    return {"parameters": parameters, "explanations": texts}


def _lines(entry: dict[str, Any], *first: str) -> str:
    """Return the lines of a row: `first`, then each parameter with its default and explanation, wrapped to `WIDTH`."""
    listed = [f"  {name}={value}  {entry['explanations'][name]}" for name, value in entry["parameters"].items()]
    shown = [*first, *(["--parameters"] if listed else []), *listed]
    return "\n".join(
        part for line in shown for part in wrap(line, WIDTH, subsequent_indent=" " * 4, break_on_hyphens=False)
    )
