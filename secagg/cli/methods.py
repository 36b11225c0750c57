"""`secagg methods`: what can be summed, what it is compared with, and whether it does what it declares."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer

from methods import METHODS, kind_named, method_named, parameters_of
from methods.baselines import BASELINES, DpSgd
from methods.declaration import check_declaration, check_steps
from methods.method import Method
from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns, warn_of_programs
from secagg.cli.options import ParametersOption
from secagg.encoding import Grid, Normalisation
from secagg.experiments.baselines import DP_SGD, LEAVES_FOR_DP_SGD
from secagg.system import plugins

SMALL = (2, 2, 4)
"""A dimension, a number of classes and of levels that show a method's blocks."""
TRIED = (8, 10, Grid(1.0, 1 << 10, normalisation=Normalisation.CENTRED_UNIT))
"""A dimension, a number of classes and a grid on which `check` tries a method; plans try it on their own."""

app = typer.Typer(invoke_without_command=True)


@app.callback()
def methods(context: typer.Context, json_to: JsonOption = None, quiet: QuietOption = False) -> None:
    """List the methods and the baselines: what is summed, what a baseline lets out, and the parameters of each.

    A method runs under every protection, a baseline under none, for the reason that it gives.
    """
    if context.invoked_subcommand is not None:
        return
    known = {name: _method(name) for name in METHODS}
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
    Speaker(quiet=quiet, json_to=json_to).result(content, "\n\n".join(tables))


@app.command("check")
def check(
    name: Annotated[str | None, typer.Argument(help="The method; default: every one.")] = None,
    parameters: ParametersOption = "",
    json_to: JsonOption = None,
    quiet: QuietOption = False,
) -> None:
    """Try a method on extreme records, alone and together, and refuse it where it breaks what it declares.

    Held are the blocks' shapes and integers, the bound of an entry, how far one record moves them, and that the blocks
    of several records are the sum of each one's. Every plan tries its method in the same way before it is made. Here
    `finalize` runs as well, on every round's sum, and shares of the noise must add up to 1.
    """
    speaker = Speaker(quiet=quiet, json_to=json_to)
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


def _method(name: str) -> dict[str, Any]:
    return {
        "title": (sys.modules[kind_named(name).__module__].__doc__ or name).splitlines()[0],
        "blocks": _blocks(method_named(name)),
        "parameters": method_named(name).parameters,
    }


def _name(entry: dict[str, Any]) -> str:
    listed = " ".join(f"{name}={value}" for name, value in entry["parameters"].items())
    return f"\n--parameters {listed}" if listed else ""
