"""The ε over every column of the tables of training, recomputed from the plans' noise alone: mpmath, and opacus.

Nothing here is asked of `secagg.privacy`: lengths in grid units, the shares that count and the number of sums are
written out once more.
"""

import math

import mpmath
import pytest
from mpmath import mpf

from secagg.agreement.plan import Plan
from tests.benchmarks.accuracy import DELTA
from tests.benchmarks.training import CNN, DIGITS, MEMBERS, ROUNDS, Form, of_members, plan_of, setup_for
from tests.session.noise_checks import delta_by_hand

SHAPES = {"mnist": (28, 28), "usps": (16, 16)}
KNOWN_SHARE = 1
"""Of the shares in a sum: a member's own, or the one colluder's."""
GRADIENT_UNITS = 8192
"""Length of a clipped gradient on its grid; a record also adds 1 to the number of records."""
UPDATE_LEVELS, PADDED = 1024, 2624
"""Length of a clipped update on its grid, and its entries, each of which rounding at random may move."""
GRADIENT_LEVELS = 1 << 20
"""Length of a clipped gradient on the grid of a member's own steps."""


def plans(form: Form, shape: tuple[int, ...]) -> list[Plan]:
    """The plan of every noisy column of a row."""
    epsilons = [each for each in form.epsilons if math.isfinite(each)]
    found = [setup_for(form.asked(epsilon)[0], shape).plan for epsilon in epsilons]
    assert [plan.epsilon for plan in found] == epsilons
    assert {(plan.delta, plan.dropouts, plan.colluders) for plan in found} == {(DELTA, 0, 1)}
    return found


def check_epsilon(plan: Plan, lengths: dict[str, mpf], shares: int) -> None:
    """ROUNDS sums, so many shares on each block, which one unit moves by its length, keep ε and waste little."""
    with mpmath.workdps(40):
        assert [noise.block for noise in plan.noises] == list(lengths)
        parts = [(n.multiplier * lengths[n.block]) ** 2 / (shares * mpf(n.sigma) ** 2 - 3) for n in plan.noises]
        mu = mpmath.sqrt(ROUNDS * sum(parts))
    assert delta_by_hand(mu, plan.epsilon) <= DELTA
    assert delta_by_hand(mu, plan.epsilon * (1 - 1e-3)) > DELTA


@pytest.mark.parametrize("name", DIGITS)
def test_epsilon_of_gradients_is_kept(name: str) -> None:
    """A record adds one gradient of the clip's length and 1, under nine shares of ten, in every round."""
    for plan in plans(CNN["gradients"], SHAPES[name]):
        assert (plan.unit, plan.adjacency) == ("record", "add-remove")
        check_epsilon(plan, {"gradient": mpf(GRADIENT_UNITS), "count": mpf(1)}, 10 - KNOWN_SHARE)


@pytest.mark.parametrize("name", DIGITS)
def test_epsilon_of_training_inside_members_is_kept(name: str) -> None:
    """Opacus's accountant, which shares no code, gives the steps of all rounds the ε above, within two per cent."""
    accountants = pytest.importorskip("opacus.accountants")
    words = dict(word.split("=") for word in CNN["dp-sgd"].settings["parameters"].split())
    for plan in plans(CNN["dp-sgd"], SHAPES[name]):
        assert (plan.unit, plan.adjacency, plan.noise) == ("record", "add-remove", "member")
        accountant = accountants.PRVAccountant()
        multiplier = plan.training_sigma / GRADIENT_LEVELS
        accountant.history = [(multiplier, float(words["sampling"]), ROUNDS * int(words["steps"]))]
        assert 0.98 * plan.epsilon < accountant.get_epsilon(DELTA, eps_error=0.005) < 1.005 * plan.epsilon


@pytest.mark.parametrize("members", MEMBERS)
def test_epsilon_of_client_level_is_kept(members: int) -> None:
    """A member adds an update of the clip's length and what rounding makes of it; masked, all shares but one hide it.

    Whoever opens adds one share, which alone is enough; so does each member where nothing hides its vector.
    """
    c, root = UPDATE_LEVELS, mpmath.sqrt(PADDED)
    length = mpmath.sqrt(mpmath.floor(min((c + root) ** 2, c * c + mpf(PADDED) / 4 + c + root / 2)))
    as_run = plans(of_members(members), (28, 28))
    assert {plan.unit for plan in as_run} == {"client"}
    for plan in (*as_run, plan_of(members, "masked").plan, plan_of(members, "none").plan):
        check_epsilon(plan, {"update": length}, members - KNOWN_SHARE if plan.protection == "masked" else 1)
