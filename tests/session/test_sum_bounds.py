"""Bounds of opened sums: a liar's vector is refused by every member, honest extremes and noise never are."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, norm

from secagg.agreement.plan import NoiseFrom
from secagg.errors import SessionAborted
from secagg.privacy import Unit
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from secagg.session.outcome import FALSE_ALARM_BITS, broken_bounds, conclude, noise_tails
from secagg.session.round_setup import contribution_of
from secagg.transcript import peek, read_transcript
from secagg.verification.transcript_series import verify_transcript
from tests.worlds.session import SessionRun, make_session
from tests.worlds.setups import make_setup, some_records

EXACT: dict[str, Any] = {"epsilon": math.inf, "delta": None, "adjacency": None}
CLIENTS = (1, 2, 3, 4, 5, 6)
PLANS: dict[str, dict[str, Any]] = {
    "exact": EXACT,
    "noise of clients": {"epsilon": 8.0, "unit": Unit.CLIENT},
    "DP-SGD": {"epsilon": 8.0, "noise": NoiseFrom.MEMBER, "sampling": 0.2},
}


def averaging(kind: str) -> RoundSetup:
    """Federated averaging of six members whose updates are clipped to 1."""
    choices = dict(PLANS[kind])
    private = {"sampling": choices.pop("sampling"), "steps": 5, "batch": 4} if "sampling" in choices else {}
    parameters = tuple({"rounds": 3, "clip": 1.0, **private}.items())
    return make_setup(6, dimension=16, classes=4, method="fedavg", parameters=parameters, **choices)


def noise_alone(setup: RoundSetup) -> np.ndarray:
    """The noise that honest clients add, drawn for a session."""
    zeros = some_records(setup, 4).take(np.zeros(0, dtype=np.int64))
    return np.sum([contribution_of(setup, zeros, OperatingSystem(), each)[0] for each in CLIENTS], axis=0)


def longest(setup: RoundSetup) -> np.ndarray:
    """An update that is as long as the plan allows, in integers, as long as no entry is above the entries' bound."""
    encoding = setup.round.work.encoding  # type: ignore[attr-defined]
    level = min(encoding.entry, math.isqrt(encoding.squared_bound // encoding.padded))
    return np.full(encoding.padded, level, dtype=np.int64)


@pytest.mark.parametrize("kind", PLANS)
def test_liar_is_refused_and_honest_extremes_are_not(kind: str) -> None:
    """All members at the clip, in one direction, pass; one that is 100 times as long does not, nor one in one entry.

    Honest noise fails with probability below 2⁻⁴⁰.
    """
    setup = averaging(kind)
    noise = noise_alone(setup) if setup.sum.calibration is not None else 0
    for sign in (1, -1):
        aligned = sign * longest(setup)
        assert broken_bounds(setup, 6, setup.sum.layout.split(6 * aligned + noise)) == ()
        (words,) = broken_bounds(setup, 6, setup.sum.layout.split(5 * aligned + 100 * aligned + noise))[-1:]
        assert words.startswith("update has length ")
        spike = np.zeros_like(aligned)
        spike[3] = sign * 100 * np.linalg.norm(aligned)
        (words, *_) = broken_bounds(setup, 6, setup.sum.layout.split(spike + noise))
        assert "which 6 honest clients cannot reach" in words


def test_the_bound_is_that_of_the_clients_in_the_sum() -> None:
    """What six clients may add up to is refused of five: the bound counts those in the sum, not all of the plan."""
    setup = averaging("exact")
    blocks = setup.sum.layout.split(6 * longest(setup))
    assert broken_bounds(setup, 6, blocks) == ()
    assert broken_bounds(setup, 5, blocks) != ()
    assert [bool(conclude(setup, CLIENTS[:n], 6 * longest(setup)).impossible) for n in (5, 6)] == [True, False]


@pytest.mark.parametrize("rounds", [1, 50])
def test_all_rounds_share_the_false_alarms(rounds: int) -> None:
    """Noise at the tail of 2⁻⁴⁰ over both tests of all blocks of all rounds passes, and a unit more does not."""
    setup = make_setup(6, dimension=16, classes=4, refine=rounds - 1, max_records=1, epsilon=1.0)
    block = setup.sum.layout.blocks[1]
    entry, _ = noise_tails(setup.sum.opened_noise(6)[block.name].sigma, block.size, 2 * 3 * rounds, 0)  # type: ignore[index]
    most = math.floor(6 * block.bound * block.multiplier + entry)
    for more in (0, 1):
        blocks = {each.name: np.zeros(each.shape, dtype=np.int64) for each in setup.sum.layout.blocks}
        blocks[block.name].flat[0] = most + more
        assert len(broken_bounds(setup, 6, blocks)) == more


@pytest.mark.parametrize(("epsilon", "is_multiplied"), [(math.inf, False), (1.0, False), (100.0, True)])
def test_liar_in_the_counts_is_refused(epsilon: float, is_multiplied: bool) -> None:
    """Counts above n·max_records are refused, and below 0 beyond the noise, with what was found out of bounds."""
    is_exact = math.isinf(epsilon)
    setup = make_setup(4, classes=3, class_gate=0, refine=1, **({"epsilon": epsilon} if not is_exact else {**EXACT}))
    block = setup.sum.layout.blocks[0]
    assert (block.multiplier > 1) == is_multiplied
    most = 4 * setup.plan.max_records * block.multiplier
    margin = 0 if is_exact else 20 * setup.sum.opened_noise(4)["counts"].sigma  # type: ignore[index]
    honest = np.zeros(setup.sum.layout.length, dtype=np.int64)
    honest[:3] = (most, 0, 0)
    assert broken_bounds(setup, 4, setup.sum.layout.split(honest)) == ()
    for lie in (most + margin + 1, -margin - 1):
        told = honest.copy()
        told[1] = lie
        (words,) = broken_bounds(setup, 4, setup.sum.layout.split(told))
        assert words.startswith("an entry of counts is outside ")
        if not is_exact:
            assert conclude(setup, (1, 2, 3, 4), told).impossible == (words,)


def test_number_of_records_beside_gradients_is_bounded() -> None:
    """The block that a mean is divided by is bounded like the counts, and the gradients by max_records clips each."""
    parameters = (("rounds", 3), ("clip", 1.0), ("gradients", 1))
    setup = make_setup(6, dimension=16, classes=4, method="fedavg", parameters=parameters, **EXACT)
    gradient, count = setup.sum.layout.blocks
    records, total = setup.plan.max_records, np.zeros(setup.sum.layout.length, dtype=np.int64)
    total[0], total[-1] = 6 * records * gradient.bound, 6 * records
    assert broken_bounds(setup, 6, setup.sum.layout.split(total)) == ()
    for place, name in ((-1, count.name), (0, gradient.name)):
        told = total.copy()
        told[place] += 10
        assert any(f" {name} " in f" {words}" for words in broken_bounds(setup, 6, setup.sum.layout.split(told)))


@pytest.mark.parametrize("size", [1, 10, 1000, 136_458])
@pytest.mark.parametrize("tests", [1, 60])
def test_tails_are_those_of_a_gaussian_and_not_much_more(size: int, tests: int) -> None:
    """Exact tails of N(0, σ²) at the margins are below 2⁻⁴⁰ over the tests, and above it a little further in."""
    entry, length = noise_tails(7.0, size, tests, 0)
    allowed = -FALSE_ALARM_BITS * math.log(2) - math.log(tests)
    assert math.log(2 * size) + norm.logsf(entry / 7) <= allowed < math.log(2 * size) + norm.logsf(0.9 * entry / 7)
    assert chi2.logsf((length / 7) ** 2, size) <= allowed
    deviation = length / 7 - math.sqrt(size)
    assert chi2.logsf((math.sqrt(size) + 0.5 * deviation) ** 2, size) > allowed


async def test_members_leave_with_a_signed_abort(tmp_path: Path) -> None:
    """A census of more clients than there are, which none proves, is refused by all, and `verify` says so."""
    world = make_session(tmp_path, clients=4, class_gate=1, dropouts=0, colluders=0, protection="none")
    world.vectors[3] = world.vectors[3] + 10
    ending = await SessionRun(world).run()
    for member, end in ending.clients.items():
        assert isinstance(end, SessionAborted)
        assert "the opened sum is refused: an entry of census is outside 0 to 4" in end.reason
        assert "which 4 honest clients cannot reach" in end.reason
        assert end.reason.endswith("; a sum was opened: count this as a release")
        *_, last = sent = [peek(e.content).step for e in read_transcript(world.transcript(member)) if e.kind == "sent"]
        assert last == "Abort"
        assert "Acknowledgement" not in sent  # written down it would stand for a sum that was refused
    found = verify_transcript(world.transcript(0))
    assert "its sum is beyond what honest clients' vectors and noise add up to" in found["verdict"]
    assert "aborted" in verify_transcript(world.transcript(1))["session"]


async def test_lie_of_one_client_less_is_not_seen(tmp_path: Path) -> None:
    """The border: a census entry of all clients passes, although one of them lied. The bound finds nothing smaller."""
    world = make_session(tmp_path, clients=4, class_gate=1, dropouts=0, colluders=0, protection="none")
    total = world.total((1, 2, 3, 4))
    world.vectors[3] = world.vectors[3] + (4 - total)
    ending = await SessionRun(world).run()
    assert {*ending.clients.values()} == {ending.server}
