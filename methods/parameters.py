"""Parameters of a method as somebody types them: options that methods share, and words such as "slots=16 keep=0.9"."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from methods import METHODS, ROUNDS, method_named, read_planned
from methods.method import Parameters
from secagg.errors import BadInput

PROGRAM = ".pt2"
"""In a text that names an exported program's file: only then the networks are loaded."""


def parameters_of(name: str, given: Mapping[str, str | float | None], text: str = "") -> dict[str, str | float]:
    """Return what was given of the options that methods share (None: not given), and in `text`: "slots=16 keep=0.9".

    Raises BadInput for an option that the method does not have, unless it has FedCGS's default, which says nothing;
    and for rounds that are given as both.
    """
    known, defaults = method_named(name).parameters, method_named("fedcgs").parameters
    chosen = {key: value for key, value in given.items() if value is not None}
    for key in set(chosen) - set(known):
        if chosen[key] != defaults.get(key):
            having = [each for each in METHODS if key in method_named(each).parameters]
            raise BadInput(
                f"method {name} has no {key}", remedy=f"leave it out, or use one of {', '.join(sorted(having))}"
            )
    if ROUNDS in chosen and any(word.startswith(f"{ROUNDS}=") for word in text.split()):
        raise BadInput("rounds are given twice", remedy="give them once, as an option or among the parameters")
    return {key: value for key, value in chosen.items() if key in known} | read_parameters(name, known, text)


def read_parameters(name: str, known: Parameters, text: str) -> Parameters:
    """Return the parameters that somebody types, as `read_planned`; a program's file is admitted, and by its digest."""
    if PROGRAM in text:
        text = import_module("secagg.networks.exported").planned_programs(text)
    return read_planned(name, known, text)
