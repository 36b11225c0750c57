"""Federated methods by name: what clients sum, and how the sum becomes a head. ADDING.md says how to add a method.

A method of one's own needs no place here: a file's `FILE.py:NAME`, or an entry point of the group `secagg.methods`
(`secagg.system.plugins`); plans name it by its code's digest.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Callable, Mapping
from importlib import import_module

from methods.gate import GATE, put_gate
from methods.method import Method, Parameters, SumSpec
from secagg.agreement.plan import Plan
from secagg.errors import BadInput
from secagg.system import plugins


class _Registry(UserDict[str, str | Callable[..., Method]]):
    """Methods by name, each imported from its "module:Class" when it is asked for."""

    def __getitem__(self, name: str) -> Callable[..., Method]:
        found = super().__getitem__(name)
        if isinstance(found, str):
            module, _, place = found.partition(":")
            found = getattr(import_module(module), place)
        return found


METHODS = _Registry(
    {
        "ccvr": "methods.closed_form.ccvr:CCVR",
        "fedavg": "methods.training.fedavg:FedAvg",
        "fedavg-one-shot": "methods.training.fedavg:FedAvgOneShot",
        "fedbip": "methods.slots.fedbip:FedBiP",
        "fedcgs": "methods.closed_form.fedcgs:FedCGS",
        "feddat": "methods.training.feddat:FedDAT",
        "fedpcl": "methods.own_models.fedpcl:FedPCL",
        "fedpop": "methods.search.fedpop:FedPop",
        "fedproto": "methods.own_models.fedproto:FedProto",
        "fedtc": "methods.slots.fedtc:FedTC",
        "fraug": "methods.training.fraug:FRAug",
        "mpft": "methods.slots.mpft:MPFT",
        "prototypes": "methods.closed_form.prototypes:Prototypes",
    }
)
ROUNDS = "rounds"
"""Name of the parameter of methods that says how many sums they take."""
PROGRAM = ".pt2"
"""Mark of an exported program's file in a text of parameters: networks are loaded only where it is there."""

HOW = "methods/ADDING.md shows what one is"
_seen: set[str] = set()
"""Plug-in methods that were checked already, by their names in plans."""


_WITH_PARAMETERS = re.compile(r"\s*([^\[\]]*[^\[\]\s])\s*(?:\[([^\[\]]*)\]\s*)?")


def method_named(name: str, parameters: Mapping[str, str | float] | None = None) -> Method:
    """Return the named method; a parameter `gate` above 0 leaves out classes held by fewer clients than that (`Gated`).

    Parameters that are not given have their defaults.
    Raises BadInput for unknown names or types.
    """
    kind = kind_named(name)
    given = dict(parameters or {})
    threshold = given.pop(GATE, 0)
    known = kind().parameters
    for key, value in given.items():
        if key not in known:
            raise BadInput(f"method {name} has no parameter {key!r}", remedy=f"it has {', '.join(known) or 'none'}")
        types = (int, float) if isinstance(known[key], float) else type(known[key])
        if isinstance(value, bool) or not isinstance(value, types):
            raise BadInput(f"parameter {key} of method {name} is {value!r}", remedy=f"its default is {known[key]!r}")
    method = kind(**given)
    if isinstance(threshold, bool) or not isinstance(threshold, int):
        raise BadInput(f"the class gate is {threshold!r}", remedy="give a whole number of clients")
    return put_gate(method, threshold)


def method_of(plan: Plan) -> Method:
    """Return the method that a plan names, with the plan's parameters. Raises BadInput like `method_named`.

    Others write plans: one that names code by anything but its digest would run what is here by that name, unasked.
    """
    if plan.method not in METHODS and not plugins.is_planned(plan.method):
        problem = f"the plan's method {plan.method!r} is none of ours, and no code by its digest"
        raise BadInput(problem, remedy="have the plan written by plan new, which names code NAME@SHA-256")
    return method_named(plan.method, plan.method_parameters)


def kind_named(name: str) -> Callable[..., Method]:
    """Return the class that implements a method: one of `METHODS`, or a plug-in's, whose code this executes.

    Raises BadInput for unknown names, and for code that is not here or brings no method.
    """
    if name in METHODS:
        return METHODS[name]
    found = plugins.load(plugins.METHODS, name)
    if found is None:
        problem = f"unknown method {name!r}: {', '.join(sorted(METHODS))} have a secure sum"
        remedy = "secagg methods lists them, and the baselines that simulate and compare take; FILE.py:NAME is your own"
        raise BadInput(problem, remedy=remedy)
    kind: Callable[..., Method] = found.value
    if found.planned not in _seen:
        _refuse_others(found)
        _seen.add(found.planned)
    return kind


def planned_method(name: str) -> str:
    """Return a method's name as plans hold it; a plug-in's is NAME@SHA-256 of its code. Raises as `kind_named` does."""
    found = None if name in METHODS else plugins.load(plugins.METHODS, name)
    return found.planned if found is not None else name


def _refuse_others(found: plugins.Plugin) -> None:
    """Raise BadInput for a plug-in that is not a method's class: plans name classes, never functions to call."""
    if not isinstance(found.value, type):
        raise BadInput(f"{found.name} of {found.source} is no class, and so no method", remedy=HOW)
    try:
        made = found.value()
        lacking = [
            each
            for each in ("name", "parameters", "sums", "begin", "read_artifact")
            if not hasattr(made, each) or getattr(type(made), each, None) is getattr(Method, each)  # a stub
        ]
    except Exception as error:
        problem = f"{found.name} of {found.source} cannot be made without arguments ({type(error).__name__}: {error})"
        raise BadInput(problem, remedy="give each of its fields a default") from error
    if lacking:
        raise BadInput(f"{found.name} of {found.source} is no method: it lacks {', '.join(lacking)}", remedy=HOW)


def sums_of(plan: Plan) -> tuple[SumSpec, ...]:
    """Return the specification of each kind of secure sum in a plan, in order. Raises BadInput as `method_of` does."""
    method = method_of(plan)
    return method.sums(plan.dimension, len(plan.classes), plan.levels)


def read_planned(name: str, known: Parameters, text: str) -> Parameters:
    """Parse "slots=16 keep=0.9" into parameters, typed as their defaults in `known`; reads no file. Raises BadInput."""
    read: Parameters = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if not equals or key not in known or key in read:
            offered = ", ".join(f"{key}={default}" for key, default in known.items()) or "none"
            raise BadInput(f"method {name} cannot take {word!r}", remedy=f"its parameters are {offered}, each once")
        try:
            read[key] = type(known[key])(value)
        except ValueError:
            raise BadInput(
                f"{key} of method {name} cannot be {value!r}", remedy=f"its default is {known[key]}"
            ) from None
    return read


def split_method(text: str, parameters: str = "") -> tuple[str, str]:
    """Return the name in METHOD or METHOD[PARAMETER=VALUE …], and the parameters in it before those given beside it.

    Raises BadInput for text of another form; it looks for no method.
    """
    found = _WITH_PARAMETERS.fullmatch(text)
    if found is None:
        raise BadInput(f"cannot tell the method in {text!r}", remedy="write fedcgs or fedtc[slots=16 keep=0.9]")
    return found[1], " ".join(f"{found[2] or ''} {parameters}".split())


def parameters_of(name: str, given: Mapping[str, str | float | None], text: str = "") -> dict[str, str | float]:
    """Merge the `given` options that are not None with a `text` like "slots=16 keep=0.9" into a method's parameters.

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
    refuse_twice(ROUNDS, chosen.get(ROUNDS), text)
    return {key: value for key, value in chosen.items() if key in known} | read_parameters(name, known, text)


def refuse_twice(key: str, option: str | float | None, text: str) -> None:
    """Raise BadInput if a parameter is given as an `option`, which is None else, and in a `text` of parameters too."""
    if option is not None and any(word.startswith(f"{key}=") for word in text.split()):
        raise BadInput(f"{key} is given twice", remedy="give it once, as an option or among the parameters")


def read_parameters(name: str, known: Parameters, text: str) -> Parameters:
    """Parse parameters as a user types them; a file of an exported network is registered and replaced by its digest.

    Raises BadInput as `read_planned` does.
    """
    if PROGRAM in text:
        text = import_module("secagg.networks.exported").planned_programs(text)
    return read_planned(name, known, text)


__all__ = [
    "METHODS",
    "ROUNDS",
    "Method",
    "kind_named",
    "method_named",
    "method_of",
    "parameters_of",
    "planned_method",
    "read_parameters",
    "read_planned",
    "refuse_twice",
    "sums_of",
]
