"""secagg: build a classifier head from many members' records in one secure sum.

>>> import secagg
>>> secagg.simulate(features, labels, clients=10, partition="dirichlet:0.1")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secagg.experiments.simulation import simulate
    from secagg.experiments.sweep import sweep

__version__ = "0.1.0"
__all__ = ["simulate", "sweep"]


def __getattr__(name: str) -> Any:
    """Load `simulate` and `sweep` when they are first used: a server or client process does not need them."""
    if name == "simulate":
        from secagg.experiments.simulation import simulate

        return simulate
    if name == "sweep":
        from secagg.experiments.sweep import sweep

        return sweep
    raise AttributeError(f"module 'secagg' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is there, and what is loaded when it is first used."""
    return sorted({*globals(), *__all__})
