"""Optional libraries, which only some commands need: `pip install 'secagg[EXTRA]'` installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from secagg.errors import BadInput

OURS = ("secagg", "methods", "threat_models")


@contextmanager
def extra(name: str, what: str = "this", otherwise: str = "") -> Iterator[None]:
    """Guard imports of optional libraries: if one is missing, raise BadInput with the extra to install.

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
    """Raise BadInput if the library of an extra is missing, before long work that would fail at its end."""
    with extra(name):
        import_module(library)
