"""`secagg methods`: list methods and baselines, and check that what a method sums keeps its declared bounds."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from methods import METHODS, kind_named, method_named, parameters_of, split_method
from methods.baselines import BASELINES, DpSgd
from methods.declaration import check_declaration, check_steps
from methods.method import Method
from secagg.cli.console import Speaker, speaking, two_columns, warn_of_programs
from secagg.cli.options import ParametersOption
from secagg.encoding import Grid, Normalisation
from secagg.experiments.baselines import DP_SGD, LEAVES_FOR_DP_SGD
from secagg.system import plugins

SMALL = (2, 2, 4)
"""The dimension, number of classes and number of levels for which a method's blocks are listed."""
TRIED = (8, 10, Grid(1.0, 1 << 10, normalisation=Normalisation.CENTRED_UNIT))
"""The dimension, number of classes and grid for which `check` tries a method; new plans try it with their own."""

app = typer.Typer(invoke_without_command=True)


@app.callback()
@speaking
def methods(speaker: Speaker, context: typer.Context) -> None:
    """List the methods and the baselines: what is summed, what a baseline lets out, and the parameters of each.

    A method runs under every protection, a baseline under none, for the reason that it gives.
    """
    if context.invoked_subcommand is not None:
        return
    known = {}
    for name in METHODS:
        title = (sys.modules[kind_named(name).__module__].__doc__ or name).splitlines()[0]
        method = method_named(name)
        known[name] = {"title": title, "blocks": _blocks(method), "parameters": method.parameters}
    baselines = {
        DP_SGD: {"leaves": LEAVES_FOR_DP_SGD, "parameters": asdict(DpSgd())},
        **{
            name: {"leaves": each.leaves, "protections": each.protections, "parameters": asdict(each())}
            for name, each in BASELINES.items()
        },
    }
    rows = [(name, f"{each['title']}\nsums {', '.join(each['blocks'])}{_name(each)}") for name, each in known.items()]
    others = [(name, f"leaves a client: {each['leaves']}{_name(each)}") for name, each in baselines.items()]
    tables = [two_columns("Methods", rows), two_columns("Baselines (--protection none)", others)]
    installed = {each.name: plugins.installed_sha256(each) for each in entry_points(group=plugins.METHODS)}
    if installed:
        tables.append(two_columns("Installed by others (SHA-256 of their code)", installed.items()))
    content = {"methods": known, "baselines": baselines, "installed": installed}
    speaker.result(content, "\n\n".join(tables))


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


def _name(entry: dict[str, Any]) -> str:
    listed = " ".join(f"{name}={value}" for name, value in entry["parameters"].items())
    return f"\n--parameters {listed}" if listed else ""
