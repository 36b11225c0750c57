"""Optional libraries, which only some commands need: `pip install 'secagg[EXTRA]'` installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from secagg.errors import BadInput

OURS = ("secagg", "methods", "threat_models")


@contextmanager
def extra(name: str, what: str = "this", otherwise: str = "") -> Iterator[None]:
    """Wrap imports of optional libraries. Raises BadInput, with the extra to install, if one is missing.

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
    """Raise BadInput if an extra's library is missing; to be called before long work whose end needs it."""
    with extra(name):
        import_module(library)
