"""Baselines: what a user would otherwise pick, on the same records. No secure sum is involved.

The nearest class mean, one-shot FedAvg and CCVR are no baselines but methods with a secure sum.
"""

from collections.abc import Mapping

from methods.baselines.baseline import Baseline
from methods.baselines.centralised import Centralised
from methods.baselines.dp_sgd import DpSgd
from methods.baselines.fedbip_published import FedBiPPublished
from methods.baselines.fedpft import FedPFT
from methods.baselines.fedtc_set import FedTCSet
from methods.baselines.local_heads import Ensemble, LocalOnly
from methods.baselines.mpft_samples import MPFTCluster, MPFTRandom

BASELINES: Mapping[str, type[Baseline]] = {
    Centralised.name: Centralised,
    LocalOnly.name: LocalOnly,
    Ensemble.name: Ensemble,
    FedBiPPublished.name: FedBiPPublished,
    FedPFT.name: FedPFT,
    FedTCSet.name: FedTCSet,
    MPFTRandom.name: MPFTRandom,
    MPFTCluster.name: MPFTCluster,
}
"""Those that take the clients' records as they are divided; DP-SGD, which pools them and keeps an ε, is beside them."""

__all__ = ["BASELINES", "Baseline", "DpSgd"]
