"""secagg: build a classifier head from many members' records in one secure sum.

>>> import secagg
>>> secagg.simulate(features, labels, clients=10, partition="dirichlet:0.1")  # doctest: +SKIP
>>> secagg.SecureSumClassifier(clients=10).fit(features, labels).predict_proba(new)  # doctest: +SKIP
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from secagg.system.extras import extra

if TYPE_CHECKING:
    from secagg.data import open_dataset
    from secagg.experiments.comparison import compare
    from secagg.experiments.estimator import SecureSumClassifier
    from secagg.experiments.saved_results import read_results
    from secagg.experiments.simulation import simulate
    from secagg.experiments.sweep import sweep
    from secagg.experiments.tuning import tune
    from secagg.federation.endpoints import Client, Server
    from secagg.privacy.epsilon import promised as epsilon
    from secagg.scoring.predictor import Predictor
    from threat_models.audit import audit

__version__ = "0.1.0"
__all__ = [
    "Client",
    "Predictor",
    "SecureSumClassifier",
    "Server",
    "audit",
    "compare",
    "epsilon",
    "open_dataset",
    "read_results",
    "simulate",
    "sweep",
    "tune",
]
_PLACES = {
    "Client": "secagg.federation.endpoints:Client",
    "Predictor": "secagg.scoring.predictor:Predictor",
    "SecureSumClassifier": "secagg.experiments.estimator:SecureSumClassifier",
    "Server": "secagg.federation.endpoints:Server",
    "audit": "threat_models.audit:audit",
    "compare": "secagg.experiments.comparison:compare",
    "epsilon": "secagg.privacy.epsilon:promised",
    "open_dataset": "secagg.data:open_dataset",
    "read_results": "secagg.experiments.saved_results:read_results",
    "simulate": "secagg.experiments.simulation:simulate",
    "sweep": "secagg.experiments.sweep:sweep",
    "tune": "secagg.experiments.tuning:tune",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a server or client process does not need most of them."""
    if name not in _PLACES:
        raise AttributeError(f"module 'secagg' has no attribute {name!r}")
    module, _, own = _PLACES[name].partition(":")
    with extra("audit", name) if name == "audit" else nullcontext():
        return getattr(import_module(module), own)


def __dir__() -> list[str]:
    """Return the public names, including those that are imported on first use."""
    return sorted({*globals(), *__all__})
