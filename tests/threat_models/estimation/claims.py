"""Claims to audit: moments of ten classes, other sums, several sums, by either mechanism."""

from methods import method_named
from secagg.privacy import (
    Adjacency,
    BlockSensitivity,
    BlockwiseSensitivity,
    CellSensitivity,
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


def of_cells(adjacency: Adjacency) -> list[Part]:
    """Counts and sums of six cells, by shares in which the sums weigh most, and by shares in which the counts do."""
    cells = CellSensitivity(adjacency, ("slot_counts", "slot_sums"), 6, 16, 1 << 12)
    shares = ({"slot_counts": 0.1, "slot_sums": 0.9}, {"slot_counts": 0.8, "slot_sums": 0.2})
    return [Part(cells, each, budget=0.5) for each in shares]


def of_class_moments(adjacency: Adjacency) -> list[Part]:
    """Moments of each of three classes, by shares in which a pair between is worst, and two others."""
    (spec,) = method_named("ccvr", {}).sums(16, 3, 1 << 16)
    names = [block.name for block in spec.blocks]
    splits = ((0.02, 0.58, 0.40), (0.8, 0.1, 0.1), (0.01, 0.9, 0.09))
    stated = spec.sensitivity(Unit.RECORD, adjacency, 1)
    return [Part(stated, dict(zip(names, each, strict=True)), budget=1 / 3) for each in splits]


def of_members(adjacency: Adjacency) -> list[Part]:
    """Counts and sums without negative entries, by member."""
    (spec,) = method_named("fedproto", {"cap": 50, "width": 16}).sums(16, 3, 1 << 12)
    return [Part(spec.sensitivity(Unit.CLIENT, adjacency, 1), spec.shares, times=3)]


KINDS = (None, several, of_clients, of_cells, of_class_moments, of_members)
"""Kinds of claims, each made for an adjacency; None: moments alone."""
