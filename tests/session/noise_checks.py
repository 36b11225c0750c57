"""Checks that noise, records and words keep what a plan promises.

Every check is used twice: on the code as it is, and in `tests/mutations` on code with a fault, which it must report by
an AssertionError or by the refusal that a member would see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from secagg.agreement.plan import NoiseFrom, Plan
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.encoding import Integers
from secagg.errors import ProtocolViolation, SecaggError, SessionAborted
from secagg.experiments.session import run_session
from secagg.plan_facts.records import LocalRecords, read_records
from secagg.privacy import Adjacency, PrivacyClaim
from secagg.protection.masking.messages import Survivors
from secagg.randomness import OperatingSystem, RandomSource, SeededRandomness
from secagg.session import RoundSetup, contribution_of
from secagg.unsafe_for_tests import TOKEN
from tests.protection.rehearsal import Rehearsal
from tests.worlds.rosters import make_roster
from tests.worlds.setups import exact, local, some_records

FALSE_FAILURE = 1e-9
"""Probability with which `check_noise` reports noise that is as planned."""


def sigmas(setup: RoundSetup) -> np.ndarray:
    """σ of one share on every entry of the flat vector, read off the plan."""
    planned = {noise.block: noise for noise in setup.plan.noises}
    parts = []
    for block in setup.sum.layout.blocks:
        noise = planned[block.name]
        each = np.full(block.size, noise.sigma)
        if noise.off_diagonal:
            rows, columns = np.triu_indices((round((8 * block.size + 1) ** 0.5) - 1) // 2)
            each[rows != columns] = noise.off_diagonal
        parts.append(each)
    return np.concatenate(parts)


def honest(setup: RoundSetup) -> int:
    """The fewest honest noisers in what anybody sees: without protection a single share."""
    alone = setup.plan.noise == NoiseFrom.AGGREGATOR or setup.plan.protection == "none"
    knowing = max(setup.plan.colluders, int(setup.plan.result == "members"))
    return 1 if alone else max(1, setup.facts.fewest - knowing)


def check_promise(plan: Plan, roster: Roster) -> None:
    """A member that recomputes ε from the plan accepts it, and the noise gives no less than 99.9 % of that ε."""
    claim = RoundSetup.of(plan, roster).facts.claim
    assert claim is not None
    assert 0.999 * plan.epsilon <= claim.releases.epsilon(plan.delta) <= plan.epsilon == claim.epsilon


def neighbours(setup: RoundSetup) -> Iterator[tuple[LocalRecords, LocalRecords]]:
    """Pairs of data sets that differ by one record, the worst among them, for plans of at least two features."""
    levels, dimension = setup.plan.levels, setup.plan.dimension

    def data(label: int, angle: float | None) -> LocalRecords:
        record = np.zeros((0 if angle is None else 1, dimension), dtype=np.int64)
        if angle is not None:
            record[0, :2] = np.trunc(levels * (1 - 1e-12) * np.array([np.cos(angle), np.sin(angle)]) + 1e-6)
        return LocalRecords(record, np.full(len(record), label), np.zeros(len(record), np.int64))

    if setup.plan.adjacency == Adjacency.ADD_REMOVE:
        yield from ((data(0, angle), data(0, None)) for angle in (0.0, 0.3, np.pi / 2))
    else:
        yield from ((data(0, 0.0), data(label, angle)) for label in (0, 1) for angle in np.linspace(0, np.pi, 91))


def distance(setup: RoundSetup, one: LocalRecords, other: LocalRecords) -> float:
    """How far apart the noisy sums of two data sets lie, in standard deviations that the honest shares count as."""
    variances = sigmas(setup) ** 2 * honest(setup)
    if setup.plan.noise == NoiseFrom.CLIENT:
        variances -= 3
    return float(np.linalg.norm((exact(setup, one) - exact(setup, other)) / np.sqrt(variances)))


def delta_by_hand(mu: Any, epsilon: float) -> Any:
    """δ of one Gaussian release at ε, in 40 digits (Balle & Wang 2018, Theorem 8)."""
    with mpmath.workdps(40):
        mu = mpmath.mpf(mu)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


def check_neighbours(setup: RoundSetup) -> None:
    """For one sum: the worst neighbours use the promise up, to 3 % of ε, and none oversteps it."""
    worst = max(distance(setup, *pair) for pair in neighbours(setup))
    plan = setup.plan
    assert delta_by_hand(worst, plan.epsilon) <= plan.delta <= delta_by_hand(worst, 0.97 * plan.epsilon)


def check_stated(claim: PrivacyClaim) -> None:
    """For one add/remove sum of shares: neither the computed ε nor the one in words is below the exact one."""
    first = claim.releases.first
    with mpmath.workdps(40):
        squared = mpmath.mpf(0)
        for noise in first.blocks:
            parts = [(noise.sigma, 1)] if noise.off_diagonal is None else [(noise.sigma, 1), (noise.off_diagonal, 2)]
            counted = min(times * (first.fewest * mpmath.mpf(sigma) ** 2 - 3) for sigma, times in parts)
            squared += (noise.multiplier * mpmath.mpf(noise.block.l2)) ** 2 / counted
        mu = mpmath.sqrt(squared)
    found = re.search(r"\(epsilon ([\d.]+),", claim.sentence())
    assert found is not None
    assert float(found[1]) >= claim.epsilon >= claim.releases.epsilon(claim.delta)
    assert delta_by_hand(mu, claim.releases.epsilon(claim.delta)) <= claim.delta


def check_noise(setup: RoundSetup, noise: np.ndarray, shares: int) -> None:
    """`noise` on an opened sum is that of `shares` shares: χ² of every block, two-sided, FALSE_FAILURE in all.

    Integers are spread over the unit around them: else three counts of a small σ are all zero far more often than the
    continuous law has it (at σ = 6 once in 3,400).
    """
    spread = noise + np.random.default_rng().uniform(-0.5, 0.5, noise.shape)
    squares = spread**2 / (sigmas(setup) ** 2 * shares + 1 / 12)
    start, level = 0, FALSE_FAILURE / len(setup.sum.layout.blocks)
    for block in setup.sum.layout.blocks:
        part = squares[start : start + block.size]
        start += block.size
        law = stats.chi2(block.size)
        assert 2 * min(law.cdf(part.sum()), law.sf(part.sum())) > level, f"{block.name}: {part.mean():.3f}"


def noise_of(setup: RoundSetup, sources: Sequence[RandomSource]) -> np.ndarray:
    """The noise on the sum of so many members' contributions."""
    total = np.zeros(setup.sum.layout.length, dtype=np.int64)
    for number, source in enumerate(sources):
        records = some_records(setup, 5 + number, seed=number)
        total += contribution_of(setup, records, source)[0] - exact(setup, records)
    return total


def check_shares_differ(setup: RoundSetup, sources: Sequence[RandomSource]) -> None:
    """No two members' noise agrees in more than one coordinate of ten."""
    shares = [noise_of(setup, [source]) for source in sources]
    for number, one in enumerate(shares):
        assert all(np.mean(one == other) < 0.1 for other in shares[:number])


def check_record_is_bounded(setup: RoundSetup) -> None:
    """Taking any one record away, however long its feature vector, moves the sum by no more than μ."""
    generator = np.random.default_rng(1)
    features = generator.normal(size=(12, setup.plan.dimension))
    features *= 10.0 ** np.arange(-5, 7)[:, None]
    labels = np.arange(12) % len(setup.plan.classes)
    assert setup.facts.claim is not None
    most = setup.facts.claim.releases.first.mu(honest(setup))
    for index in range(12):
        fewer = (np.delete(features, index, axis=0), np.delete(labels, index))
        assert distance(setup, local(setup, features, labels), local(setup, *fewer)) <= most, f"record {index}"


BAD_ROWS: Mapping[str, tuple[Any, int]] = {
    "NaN": (np.nan, 0),
    "infinite": (np.inf, 0),
    "minus infinite": (-np.inf, 1),
    "unlabelled": (0.5, -1),
    "a label too high": (0.5, 3),
    "a label far too high": (0.5, 1 << 40),
}
"""A value for the last feature, and a label; other entries are good."""


def check_bad_record_is_silent(setup: RoundSetup, folder: Path, value: float, label: int) -> None:
    """A member with a bad record takes part, and sends the very bytes that it sends without that record."""
    generator = np.random.default_rng(2)
    features, labels = generator.normal(size=(9, setup.plan.dimension)), np.arange(9) % len(setup.plan.classes)
    vectors = []
    for name, rows in (("clean", [0, 1, 2, 3, 5, 6, 7, 8]), ("dirty", list(range(9)))):
        own, classes = features.copy(), labels.copy()
        own[4, -1], classes[4] = value, label
        np.savez(folder / f"{name}.npz", features=own[rows], labels=classes[rows])
        records = read_records(setup.plan, str(folder / f"{name}.npz"))
        vectors.append(contribution_of(setup, records, SeededRandomness(b"the same noise", TOKEN))[0])
    assert vectors[0].tobytes() == vectors[1].tobytes()


Contribute = Callable[[RoundSetup, Any, RandomSource], Integers]


class _Watched:
    """Records that note when they are looked at."""

    def __init__(self, records: LocalRecords, log: list[str]) -> None:
        self._records = records
        self._log = log

    def __getattr__(self, name: str) -> Any:
        self._log.append("records")
        return getattr(self._records, name)

    def __len__(self) -> int:
        self._log.append("records")
        return len(self._records)


class _WatchedSource:
    """Randomness that notes when it is asked for."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def bytes(self, count: int) -> bytes:
        """Fresh bytes."""
        self._log.append("noise")
        return OperatingSystem().bytes(count)


def check_noise_comes_first(setup: RoundSetup, contribute: Contribute = contribution_of) -> None:
    """All noise is drawn before the records are looked at."""
    log: list[str] = []
    contribute(setup, _Watched(some_records(setup), log), _WatchedSource(log))
    assert {"noise", "records"} == set(log)
    assert log == sorted(log)


def check_small_sum_is_refused(setup: RoundSetup, leaving: Mapping[int, str]) -> None:
    """With so many gone that fewer remain than the noise is calibrated for, no sum comes about."""
    _, keys = make_roster(len(setup.roster.clients))
    vectors = {
        member: contribution_of(setup, some_records(setup), OperatingSystem())[0] for member in setup.context.clients
    }
    try:
        members = run_session(setup, dict(enumerate(keys)), vectors.__getitem__, leaving).members
    except SessionAborted:
        return
    raise AssertionError(f"the sum of {len(members)} was opened")


def check_small_set_is_not_signed(setup: RoundSetup) -> None:
    """Shown a survivor set one smaller than the noise is calibrated for, a client refuses and blames the server."""
    members = setup.context.clients[: setup.plan.min_clients_in_sum - 1]
    session = Rehearsal(replace(setup.context, length=6)).until_shown("Survivors")
    try:
        session.show(members[0], Survivors(members, bytes(32)))
    except ProtocolViolation as error:
        if error.culprit == SERVER_INDEX:
            return
    raise AssertionError(f"signed for {len(members)} survivors")


def reported(check: Callable[..., None], *arguments: Any) -> str:
    """What a check says of a fault, after the error's name; fails when it finds none."""
    with pytest.raises((AssertionError, SecaggError)) as report:
        check(*arguments)
    return f"{type(report.value).__name__}: {report.value}"
