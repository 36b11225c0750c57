"""Claims to audit: moments of ten classes, other sums, several sums, by either mechanism."""

from secagg.privacy import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    CensusSensitivity,
    Mechanism,
    MomentSensitivity,
    PrivacyClaim,
    Unit,
)
from secagg.privacy.calibration import Part, calibrate_releases, of_client

DELTA = 1e-5
MOMENTS = {each: MomentSensitivity(each, classes=10, dimension=16, levels=1 << 10) for each in Adjacency}
GRADIENT = (BlockSensitivity("gradient", 4096.0, 40),)


def claimed(
    mechanism: Mechanism = Mechanism.GAUSSIAN,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    *,
    epsilon: float = 1.0,
    parties: int = 3,
    shares: object = "moments",
    parts: object = None,
) -> PrivacyClaim:
    """ε = 1 unless said otherwise; of `parties` shares one may be missing."""
    fewest = 1 if mechanism is Mechanism.GAUSSIAN else max(1, parties - 1)
    releases = calibrate_releases(
        parts or [Part(MOMENTS[adjacency], shares)],
        epsilon=epsilon,
        delta=DELTA,
        mechanism=mechanism,
        parties=parties,
        fewest=fewest,
    )
    return PrivacyClaim(releases, epsilon, DELTA)


def several(adjacency: Adjacency) -> list[Part]:
    """A census, moments, and four rounds of a gradient."""
    return [
        Part(CensusSensitivity(Unit.RECORD, adjacency, 10), "equal", budget=0.02),
        Part(MOMENTS[adjacency], "moments", budget=0.5),
        Part(BlockwiseSensitivity(Unit.RECORD, adjacency, GRADIENT), "equal", times=4, budget=0.48),
    ]


def of_clients(adjacency: Adjacency) -> list[Part]:
    """A census and moments of clients with at most 100 records."""
    return [
        Part(of_client(CensusSensitivity(Unit.RECORD, adjacency, 10), 100), "equal", budget=0.02),
        Part(of_client(MOMENTS[adjacency], 100), "moments", budget=0.98),
    ]
