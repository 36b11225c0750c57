"""`secagg methods`: what can be summed, and what it is compared with."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from methods import METHODS, method_named
from methods.baselines import BASELINES, DpSgd
from secagg.cli.console import JsonOption, QuietOption, Speaker, two_columns
from secagg.experiments.baselines import DP_SGD

SMALL = (2, 2, 4)
"""A dimension, a number of classes and of levels that show a method's blocks."""


def methods(json_to: JsonOption = None, quiet: QuietOption = False) -> None:
    """List the methods and the baselines: what is summed, what a baseline lets out, and the parameters of each.

    A method runs under every protection, a baseline under none, for the reason that it gives.
    """
    known = {name: _method(name) for name in METHODS}
    baselines = {
        DP_SGD: {"leaves": "every record: somebody trusted has them all", "parameters": asdict(DpSgd())},
        **{
            name: {"leaves": each.leaves, "protections": each.protections, "parameters": asdict(each())}
            for name, each in BASELINES.items()
        },
    }
    rows = [(name, f"{each['title']}\nsums {', '.join(each['blocks'])}{_named(each)}") for name, each in known.items()]
    others = [(name, f"leaves a client: {each['leaves']}{_named(each)}") for name, each in baselines.items()]
    text = "\n\n".join([two_columns("Methods", rows), two_columns("Baselines (--protection none)", others)])
    Speaker(quiet=quiet, json_to=json_to).result({"methods": known, "baselines": baselines}, text)


def _method(name: str) -> dict[str, Any]:
    kinds = method_named(name).sums(*SMALL)
    return {
        "title": (sys.modules[METHODS[name].__module__].__doc__ or name).splitlines()[0],
        "blocks": [block.name for kind in kinds for block in kind.blocks],
        "parameters": method_named(name).parameters,
    }


def _named(entry: dict[str, Any]) -> str:
    listed = " ".join(f"{name}={value}" for name, value in entry["parameters"].items())
    return f"\n--parameters {listed}" if listed else ""
