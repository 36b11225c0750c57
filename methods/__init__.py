"""Methods: which blocks are summed, and which head the sum gives. README.md says how to add one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from methods.fedcgs import FedCGS
from methods.method import Method
from secagg.errors import BadInput

METHODS: Mapping[str, Callable[..., Method]] = {
    FedCGS.name: FedCGS,
}


def method_named(name: str, parameters: Mapping[str, str | float] | None = None) -> Method:
    """Return the method with these parameters, defaults for the rest. Raises BadInput for unknown names or types."""
    if name not in METHODS:
        raise BadInput(f"unknown method {name!r}", remedy=f"the methods are {', '.join(sorted(METHODS))}")
    given = dict(parameters or {})
    known = METHODS[name]().parameters
    for key, value in given.items():
        if key not in known:
            raise BadInput(f"method {name} has no parameter {key!r}", remedy=f"it has {', '.join(known)}")
        if isinstance(value, bool) or isinstance(value, str) != isinstance(known[key], str):
            raise BadInput(f"parameter {key} of method {name} is {value!r}", remedy=f"its default is {known[key]!r}")
    return METHODS[name](**given)


__all__ = ["METHODS", "Method", "method_named"]
