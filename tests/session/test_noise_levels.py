"""Plans that remove surplus noise: who has it by default, what is left of the noise, and deaths at every write."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from secagg.agreement.plan import NoiseFrom
from secagg.errors import BadInput
from secagg.experiments.session import run_session
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.planning import SurplusNoise
from secagg.privacy import Adjacency, Unit, noise_levels
from secagg.privacy.noise_levels import LEAST_PART
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, contribution_of
from tests.session.test_crashes import CLIENT, SERVER, check_point, fuse_points, numbered
from tests.worlds.rosters import make_roster
from tests.worlds.setups import WIDE, exact, make_setup, some_records

AUTO = SurplusNoise.AUTO


def planned(clients: int = 5, surplus_noise: SurplusNoise = AUTO, **choices: Any) -> RoundSetup:
    """A plan with the default for surplus noise."""
    return make_setup(clients, surplus_noise=surplus_noise, **choices)


@pytest.mark.parametrize(
    ("clients", "dropouts", "levels"),
    [(3, 1, (0,)), (4, 1, (0,)), (10, None, (0,)), (20, None, (0, 1)), (13, 5, (0, 2)), (21, None, ()), (5, 0, ())],
)
def test_small_federations_remove_surplus_noise_by_default(
    clients: int, dropouts: int | None, levels: tuple[int, ...]
) -> None:
    """Up to 20 clients have noise levels where any may be missing, larger federations do not."""
    choices = {"dropouts": dropouts, "colluders": int(clients > 3)}
    setup = planned(clients, **choices)
    assert setup.plan.noise_levels == levels
    assert [each.missing for each in setup.sum.context.removable] == list(levels)
    assert planned(clients, SurplusNoise.KEEP, **choices).plan.noise_levels == ()


def test_larger_federations_are_offered_it() -> None:
    """With more than 20 clients a plan has noise levels if it is asked for them."""
    assert planned(30, SurplusNoise.REMOVE, dropouts=4).plan.noise_levels == (0, 2)


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ({"clients": 60, "dropouts": 20, "dimension": 128}, "surplus noise is too much to remove for 60 clients"),
        ({"protection": "encrypted"}, "key holder would see through the noise"),
        ({"protection": "shared"}, "no seeds of clients' noise are opened"),
        ({"protection": "none"}, "no seeds of clients' noise are opened"),
    ],
)
def test_removal_that_cannot_be_had_is_refused_with_its_reason(choices: dict[str, Any], problem: str) -> None:
    """Where removal would be too long or unsafe, a plan that asks for it is refused; by default noise is kept."""
    fixed = {"dropouts": 1, "refine": 0, **choices}
    with pytest.raises(BadInput, match=problem):
        planned(surplus_noise=SurplusNoise.REMOVE, **fixed)
    assert planned(**fixed).plan.noise_levels == ()


def test_members_refuse_a_plan_with_too_much_to_remove() -> None:
    """A plan that was altered to remove the noise of too many clients, dropouts and entries is refused by everybody."""
    setup = planned(60, dropouts=20, dimension=128, class_gate=1)
    with pytest.raises(BadInput, match="surplus noise is too much to remove for 60 clients"):
        RoundSetup.of(replace(setup.plan, noise_levels=(0,)), setup.roster)


def test_where_nobody_may_be_missing_there_is_nothing_to_remove() -> None:
    """Without dropouts, and where aggregators add the noise, a plan that asks for removal has no levels."""
    setup = planned(surplus_noise=SurplusNoise.REMOVE, dropouts=0)
    assert setup.plan.noise_levels == ()
    assert "none to remove: no client may be missing" in dict(explain(setup.facts))["surplus noise"]
    by_aggregators = planned(surplus_noise=SurplusNoise.REMOVE, protection="shared", noise=NoiseFrom.AGGREGATOR)
    assert by_aggregators.plan.noise_levels == ()
    assert "surplus noise" not in dict(explain(by_aggregators.facts))


BAD_LEVELS = {
    "descending": ((1, 0), "noise levels ascend"),
    "twice": ((0, 0), "noise levels ascend"),
    "as many as may be missing": ((0, 4), "no noise level where 4 may be missing"),
}


@pytest.mark.parametrize("bad", BAD_LEVELS)
def test_plan_with_impossible_levels_is_refused(bad: str) -> None:
    """Members refuse a plan whose levels do not ascend, or reach the most that may be missing."""
    setup, (levels, problem) = planned(13, dropouts=4), BAD_LEVELS[bad]
    with pytest.raises(BadInput, match=problem):
        RoundSetup.of(replace(setup.plan, noise_levels=levels), setup.roster)


def test_levels_of_other_noise_are_refused() -> None:
    """A plan whose noise is not the clients', or whose protection opens no seeds, has no levels."""
    others: tuple[dict[str, Any], ...] = (
        {"protection": "shared", "noise": NoiseFrom.AGGREGATOR},
        {"protection": "encrypted"},
    )
    for choices in others:
        setup = planned(dropouts=1, **choices)
        with pytest.raises(BadInput, match=r"noise levels ascend, and are of|is not removed under"):
            RoundSetup.of(replace(setup.plan, noise_levels=(0,)), setup.roster)


@pytest.mark.parametrize("unit", Unit)
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("refine", [0, 2])
def test_every_part_is_large_enough_and_every_level_keeps_the_promise(
    unit: Unit, adjacency: Adjacency, refine: int
) -> None:
    """Each part of a share has 6 squared grid units or more, and ε of each number of missing clients is the plan's."""
    setup = planned(20, dropouts=4, unit=unit, adjacency=adjacency, refine=refine, max_records=16)
    claim = setup.facts.sum_claim
    assert claim is not None
    assert setup.plan.noise_levels == (0, 2)
    for calibration, _ in claim.releases.parts:
        assert min(sigma for part in calibration.parts for sigma, _ in part) >= LEAST_PART
    for missing in range(5):
        found = claim.releases.epsilon(claim.delta, honest=20 - missing - setup.plan.colluders, missing=missing)
        assert found <= setup.plan.epsilon
        assert found >= 0.99 * setup.plan.epsilon or missing not in (0, 2, 4)


@pytest.mark.parametrize("is_whole", [False, True])
def test_levels_of_too_little_noise_are_refused(monkeypatch: pytest.MonkeyPatch, is_whole: bool) -> None:
    """Members recompute ε of each level: a first part 2 % too small, even in a whole share, makes them refuse it."""
    setup = planned(20, dropouts=4)
    honest = noise_levels.parts_of

    def less(*arguments: Any) -> tuple[float, ...]:
        first, *others, last = honest(*arguments)
        return (0.98 * first, *others, math.sqrt(last**2 + is_whole * (1 - 0.98**2) * first**2))

    monkeypatch.setattr("secagg.privacy.calibration.parts_of", less)
    with pytest.raises(BadInput, match="the noise gives"):
        RoundSetup.of(setup.plan, setup.roster)


@pytest.mark.parametrize("leaves", [(), (5,), (4, 5), (3, 4, 5)])
def test_noise_in_the_sum_is_that_of_its_level(leaves: tuple[int, ...]) -> None:
    """What a sum of real contributions has beside the records has the variance of its level; false failures: 10⁻⁹."""
    setup = planned(9, dimension=WIDE, dropouts=3, epsilon=8.0)
    assert setup.plan.noise_levels == (0, 1)
    records = {member: some_records(setup, 10, seed=member) for member in setup.context.clients}
    vectors = {member: contribution_of(setup, own, OperatingSystem())[0] for member, own in records.items()}
    keys = dict(enumerate(make_roster(9)[1]))
    opened = run_session(setup, keys, vectors.__getitem__, dict.fromkeys(leaves, "UploadHeader"))
    rest = opened.total - sum(exact(setup, records[member]) for member in opened.members)
    assert len(opened.members) == 9 - len(leaves)
    sigma = np.concatenate([np.full(count, sigma) for sigma, count in left(setup, len(leaves))])
    squared = float(np.sum((rest / sigma) ** 2)) / len(opened.members)
    low, high = stats.chi2.ppf([5e-10, 1 - 5e-10], len(rest))
    assert low <= squared <= high


def left(setup: RoundSetup, missing: int) -> list[tuple[float, int]]:
    """σ of what is left of one share, from 9 clients' numbers: the promise needs v/(9 − d − 1) of each of them."""
    level = next((level for level in (0, 1) if missing <= level), 3)
    factor = math.sqrt((9 - 3 - 1) / (9 - level - 1))
    blocks = setup.sum.calibration.blocks if setup.sum.calibration is not None else ()
    return [(sigma * factor, count) for block in blocks for sigma, count in block.segments]


def test_plan_show_has_sigma_of_every_level() -> None:
    """The row on surplus noise says when there is any, and σ of what is left for each number of missing clients."""
    kept = planned(4, SurplusNoise.KEEP, dropouts=1, colluders=1)
    assert dict(explain(kept.facts))["surplus noise"].startswith("it is kept: if no client is missing,")
    setup = planned(13, dropouts=4)
    said = dict(explain(setup.facts))["surplus noise"]
    assert said.startswith("if fewer than 3 clients are missing,")
    assert all(f"with {missing} missing" in said for missing in ("0", "1 to 2", "3 to 4"))
    calibration = setup.sum.calibration
    assert calibration is not None
    for missing in (0, 2, 4):
        noise = calibration.opened_noise(13 - missing)["counts"]
        assert f"{noise.sigma / noise.multiplier:.6g} records" in said


NOISY: dict[str, Any] = {
    "dropouts": 1,
    "epsilon": 8.0,
    "delta": 1e-5,
    "adjacency": Adjacency.ADD_REMOVE,
    "levels": None,
    "colluders": 0,
    "surplus_noise": SurplusNoise.REMOVE,
}


@pytest.mark.parametrize("only", ["after record", "memory", pytest.param("before record", marks=pytest.mark.long)])
async def test_client_killed_at_every_write_goes_on(tmp_path: Path, subtests: pytest.Subtests, only: str) -> None:
    """Killed at any write of dealing, upload or opening, a client sends the same bytes; its noise is removed."""
    names = await fuse_points(tmp_path, CLIENT, **NOISY)
    for number, name in numbered(names, only=only):
        with subtests.test(point=f"{number}: {name}"):
            await check_point(tmp_path, CLIENT, number, **NOISY)


@pytest.mark.parametrize("only", ["after record", pytest.param("before record", marks=pytest.mark.long)])
async def test_server_killed_at_every_write_goes_on(tmp_path: Path, subtests: pytest.Subtests, only: str) -> None:
    """Killed at any write, the server opens the same sum from its transcript, with the noise removed."""
    names = await fuse_points(tmp_path, SERVER, **NOISY)
    for number, name in numbered(names, only=only):
        with subtests.test(point=f"{number}: {name}"):
            await check_point(tmp_path, SERVER, number, **NOISY)
