"""FedPFT: a head trained on features from the clients' Gaussian mixtures (Beitollahi et al. 2024).

Settings are those of the comparison in Guan et al. 2025 (section 4) and of its code, but for what is said below.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from methods.baselines.baseline import NUMBER, ClientData, Fitted, Linear, holders
from methods.baselines.softmax_regression import by_sgd
from secagg.errors import BadInput
from secagg.system.extras import extra
from secagg.wire import Range, require_in_range

LEAST_VARIANCE = 1e-6
"""The number added to every variance, as scikit-learn does."""
HALF = 2
"""Bytes of a float16."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """One class's Gaussian mixture as it is sent, in float16: weights (k,), means (k, d) and variances (k, d)."""

    weights: NDArray[np.float16]
    means: NDArray[np.float16]
    variances: NDArray[np.float16]

    def __post_init__(self) -> None:
        if not all(np.isfinite(part).all() for part in (self.means, self.variances)):
            raise BadInput("a feature is too large for the float16 that fedpft sends", remedy="use --normalise")

    @property
    def size(self) -> int:
        """Bytes of the mixture on the wire."""
        return HALF * (self.weights.size + self.means.size + self.variances.size)

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return features (count, d) drawn from the mixture."""
        shares = self.weights.astype(np.float64)
        component = np.repeat(np.arange(len(shares)), generator.multinomial(count, shares / shares.sum()))
        draws = generator.standard_normal((count, self.means.shape[1]))
        deviations = np.sqrt(self.variances.astype(np.float64))
        return self.means[component].astype(np.float64) + draws * deviations[component]


@dataclass(frozen=True)
class FedPFT:
    """The baseline FedPFT: clients send Gaussian mixtures of each class's features; the server trains on samples.

    `components`: K of a mixture, or one per record where there are fewer; `iterations`: most steps of
    expectation-maximisation (published: 10,000, at the tolerance 10⁻¹²; here at scikit-learn's 10⁻³).
    `fewest`: a class of which a client has fewer records is left out there. The published code leaves out classes with
    10 records or fewer, which is 11; the default 1 leaves out none.
    """

    components: Annotated[
        int, Range(1, math.inf), "Gaussians of a mixture, or one per record where there are fewer"
    ] = 10
    iterations: Annotated[int, Range(1, math.inf), "Most steps of expectation-maximisation"] = 100
    fewest: Annotated[int, Range(1, math.inf), "Records of a class below which a client leaves it out"] = 1

    name: ClassVar[str] = "fedpft"
    leaves: ClassVar[str] = (
        "a Gaussian mixture of the client's own records of every class; where there are no more of them than "
        "components, these records themselves"
    )
    protections: ClassVar[str] = (
        "no secure sum, as the server samples from every client's own mixtures, which have no sum; no finite epsilon, "
        "as there is no useful bound on how one record moves what expectation-maximisation ends at"
    )

    def __post_init__(self) -> None:
        require_in_range(self)

    def fit(self, clients: Sequence[ClientData], classes: int, seed: int) -> Fitted:
        """Train one head on samples of all mixtures. A client sends its mixtures in float16, with class and count."""
        generator = np.random.default_rng(seed)
        start = time.process_time()
        sent = []  # of each client: class, number of records and mixture, for each class with `fewest` records
        for client in holders(clients):
            cells = enumerate(client.features[client.labels == label] for label in range(classes))
            seeds = generator.integers(2**32, size=classes)
            kept = [(label, own) for label, own in cells if len(own) >= self.fewest]
            sent.append([(label, len(own), self.mixture(own, int(seeds[label]))) for label, own in kept])
        seconds = time.process_time() - start
        received = [cell for cells in sent for cell in cells]
        if not received:
            raise BadInput(f"no client has {self.fewest} records of a class", remedy="lower fewest")
        samples = np.concatenate([mixture.sample(count, generator) for _, count, mixture in received])
        labels = np.repeat([label for label, _, _ in received], [count for _, count, _ in received])
        most = max(sum(mixture.size + 2 * NUMBER for _, _, mixture in cells) for cells in sent)
        return Fitted((Linear(by_sgd(samples, labels, classes, generator)),), most, seconds)

    def mixture(self, features: NDArray[np.float64], seed: int) -> Mixture:
        """Fit a mixture to features (n, d), n ≥ 1. A single record gives one component with `LEAST_VARIANCE`."""
        if len(features) == 1:
            return _half(np.ones(1), features, np.full(features.shape, LEAST_VARIANCE))
        with extra("experiments"):
            from sklearn.exceptions import ConvergenceWarning
            from sklearn.mixture import GaussianMixture
            from threadpoolctl import threadpool_limits

        model = GaussianMixture(
            min(self.components, len(features)),
            covariance_type="diag",
            reg_covar=LEAST_VARIANCE,
            max_iter=self.iterations,
            random_state=seed,
        )
        # Threads would add up in an order of their own.
        with warnings.catch_warnings(), threadpool_limits(limits=1):
            warnings.simplefilter("ignore", ConvergenceWarning)  # a step more changes little; equal records are fine
            model.fit(features)
        return _half(model.weights_, model.means_, model.covariances_)


def _half(weights: NDArray[np.float64], means: NDArray[np.float64], variances: NDArray[np.float64]) -> Mixture:
    with np.errstate(over="ignore"):  # refused by the mixture
        return Mixture(weights.astype(np.float16), means.astype(np.float16), variances.astype(np.float16))
