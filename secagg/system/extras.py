"""Libraries that only some commands need: they come with an extra, `pip install 'secagg[EXTRA]'`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from secagg.errors import BadInput

OURS = ("secagg", "methods", "threat_models")


@contextmanager
def extra(name: str, what: str = "this", otherwise: str = "") -> Iterator[None]:
    """Around imports of libraries of an extra. Raises BadInput, with what to install, where one is absent.

    `what` needs them; `otherwise` says what could be done instead of installing them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in OURS:
            raise
        problem = f"{what} needs the library {library}, which is not installed"
        raise BadInput(problem, remedy=f"pip install 'secagg[{name}]'{otherwise}") from error


def require(library: str, name: str) -> None:
    """Raise BadInput now where a library of an extra is absent that the end of a long work needs."""
    with extra(name):
        import_module(library)
