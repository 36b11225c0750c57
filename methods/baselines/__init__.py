"""Baselines: how a user would otherwise train on the same records, to compare methods with. None has a secure sum.

The nearest class mean, one-shot FedAvg and CCVR are no baselines but methods with a secure sum.
"""

from collections.abc import Mapping

from methods.baselines.baseline import Baseline
from methods.baselines.dp_sgd import DpSgd
from methods.baselines.fedpft import FedPFT
from methods.baselines.softmax_regression import Centralised, Ensemble, LocalOnly
from secagg.system import plugins

BASELINES: Mapping[str, type[Baseline]] = {
    Centralised.name: Centralised,
    LocalOnly.name: LocalOnly,
    Ensemble.name: Ensemble,
    FedPFT.name: FedPFT,
}
"""Baselines that train on each client's records, by name; DP-SGD, which takes pooled records and an ε, is apart."""


def baseline_named(name: str) -> type[Baseline] | None:
    """Return the baseline class with this name, or the one at FILE.py:NAME, which runs that file; None if none exists.

    Raises BadInput for a file that is not here, or does not hold the name.
    """
    if name in BASELINES or plugins.file_in(name) is None:
        return BASELINES.get(name)
    found = plugins.load(plugins.METHODS, name)
    kind = found.value if found is not None else None
    is_baseline = isinstance(kind, type) and all(hasattr(kind, each) for each in ("fit", "leaves", "protections"))
    return kind if is_baseline else None


__all__ = ["BASELINES", "Baseline", "DpSgd", "baseline_named"]
