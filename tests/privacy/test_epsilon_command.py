"""`secagg epsilon`."""

import json
import math

import pytest
import typer
from typer.testing import CliRunner

import secagg
from secagg.cli.epsilon import epsilon
from secagg.errors import BadInput
from secagg.privacy import SampledSteps, TrainingCost
from tests.vectors.files import load

VECTORS = load("privacy_accounting")
app = typer.Typer()
app.command()(epsilon)


def ask(*arguments: str, delta: str = "1e-5") -> dict[str, object]:
    """The JSON answer."""
    result = CliRunner().invoke(app, [*arguments, "--delta", delta, "--json", "-"], catch_exceptions=False)
    assert result.exit_code == 0
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def test_the_known_multiplier_of_epsilon_one():
    """σ/Δ = 3.731 at δ = 10⁻⁵ is ε = 1, rounded up; the adjacency is passed through and changes nothing else."""
    plain = ask("--noise-multiplier", "3.731")
    assert 0.9998 < plain["epsilon"] <= 1.0
    assert plain["adjacency"] is None
    for adjacency in ("add-remove", "replace-one"):
        assert ask("--noise-multiplier", "3.731", "--adjacency", adjacency) == plain | {"adjacency": adjacency}


@pytest.mark.parametrize("case", VECTORS["single"], ids=lambda case: case["epsilon"])
@pytest.mark.parametrize(("mechanism", "lost"), [("gaussian", 0.0), ("discrete-shares", 3.0)])
def test_target_epsilon_is_the_inverse(case, mechanism, lost):
    """The multiplier is the tabled one, rounded up, and asked about it the command answers at most the target.

    A share of σ = 100 grid units counts as √(100² − 3).
    """
    found = ask("--target-epsilon", case["epsilon"], "--mechanism", mechanism)
    exact = float(case["noise_multiplier"]) * 100 / math.sqrt(100**2 - lost)
    assert exact <= found["noise_multiplier"] <= exact * (1 + 1e-9)
    again = ask("--noise-multiplier", repr(found["noise_multiplier"]), "--mechanism", mechanism)
    assert again["epsilon"] == found["epsilon"] <= float(case["epsilon"])


def test_rounding_does_not_miss_a_tiny_target():
    """At an ε where one step of rounding weighs more than one of μ, the multiplier still keeps the target."""
    target = "0.0002579264100464482"
    found = ask("--target-epsilon", target, "--sessions", "100", delta="5.479943973296488e-10")
    assert found["epsilon"] <= float(target)


def test_sessions_compose():
    """Two, four and ten sessions with the noise of ε = 1 give the tabled ε; asking for all at once undoes it."""
    table = {case["name"]: float(case["epsilon"]) for case in VECTORS["scaled"]}
    multiplier = repr(ask("--target-epsilon", "1")["noise_multiplier"])
    for sessions, name in [("2", "two_sessions"), ("4", "four_sessions"), ("10", "ten_sessions")]:
        reached = ask("--noise-multiplier", multiplier, "--sessions", sessions)["epsilon"]
        assert reached == pytest.approx(table[name], rel=1e-9)
        for mechanism in ("gaussian", "discrete-shares"):
            more = ask("--target-epsilon", "1", "--sessions", sessions, "--mechanism", mechanism)
            assert 0.999 < more["epsilon"] <= 1.0


def test_lost_shares_cost_privacy():
    """What if k clients drop or collude: the same noise gives more, the same promise takes more."""
    shares = ("--mechanism", "discrete-shares", "--shares", "10")
    whole = ask("--target-epsilon", "1", *shares)
    lost = ask("--noise-multiplier", repr(whole["noise_multiplier"]), *shares, "--dropped", "1", "--colluding", "1")
    assert (whole["honest_shares"], lost["honest_shares"]) == (10, 8)
    assert 1.1 < lost["epsilon"] < 1.2
    more = ask("--target-epsilon", "1", *shares, "--dropped", "1", "--colluding", "1")
    assert more["noise_multiplier"] == pytest.approx(whole["noise_multiplier"] * (10 / 8) ** 0.5, rel=1e-4)
    assert more["epsilon"] <= 1.0


def test_small_shares_of_long_vectors_cost_privacy():
    """The sum of shares of σ = 1 grid unit over many coordinates is visibly no discrete Gaussian."""
    shares = ("--noise-multiplier", "4.05", "--mechanism", "discrete-shares", "--shares", "10")
    assert ask(*shares)["epsilon"] < 1.0 < ask(*shares, "--grid-sigma", "1", "--coordinates", "100")["epsilon"]


def test_words_for_people():
    """Without --json the answer is a table that names σ/Δ and the mechanism."""
    result = CliRunner().invoke(app, ["--noise-multiplier", "3.731", "--delta", "1e-5"])
    assert "epsilon           0.9999 at delta 1e-05" in result.stdout
    assert "3.731000 (σ/Δ)" in result.stdout


NOISE, TARGET = "--noise-multiplier", "--target-epsilon"
SHARES = ("--mechanism", "discrete-shares", "--shares", "3")


@pytest.mark.parametrize("arguments", [
    [], [NOISE, "1", TARGET, "1"], [NOISE, "0"], [NOISE, "nan"], [NOISE, "-1"], [NOISE, "inf"],
    [TARGET, "inf"], [TARGET, "-1"], [TARGET, "-1", *SHARES],
    [NOISE, "1", "--shares", "3"], [NOISE, "1", "--dropped", "1"],
    [NOISE, "1", *SHARES, "--dropped", "2", "--colluding", "1"], [NOISE, "1", *SHARES, "--grid-sigma", "0.4"],
])  # fmt: skip
def test_questions_without_an_answer_are_refused(arguments):
    """One clear line, exit code 2."""
    result = CliRunner().invoke(app, [*arguments, "--delta", "1e-5"])
    assert isinstance(result.exception, BadInput)


FEWER = "give a larger noise multiplier, or fewer sessions"
FINER = "give a larger grid sigma, or fewer coordinates or sessions"
COARSE = ("--grid-sigma", "0.6", "--coordinates", "10000")


@pytest.mark.parametrize(("arguments", "remedy"), [
    ([NOISE, "1e-7"], FEWER), ([NOISE, "1e-300"], FEWER), ([NOISE, "1e-300", *SHARES], FEWER),
    ([NOISE, "1", "--sessions", str(1 << 40)], FEWER), ([NOISE, "1", *SHARES, "--sessions", str(1 << 40)], FEWER),
    ([NOISE, "1", *SHARES, *COARSE], FINER), ([TARGET, "1", *SHARES, *COARSE], FINER),
    ([TARGET, "0.01", *SHARES, "--grid-sigma", "1.0", "--coordinates", "100"], FINER),
])  # fmt: skip
def test_answers_beyond_all_numbers_are_refused(arguments, remedy):
    """Where noise is so little, or sessions so many, that no ε is computed, one line says what to change."""
    result = CliRunner().invoke(app, [*arguments, "--delta", "1e-5"])
    assert isinstance(result.exception, BadInput)
    assert result.exception.remedy == remedy


@pytest.mark.parametrize(
    "given",
    [{}, {"noise_multiplier": 1e-7}, {"target_epsilon": -1.0}, {"noise_multiplier": 1.0, "shares": 3},
     {"noise_multiplier": 1.0, "mechanism": "laplace"}, {"noise_multiplier": 1.0, "adjacency": "neighbours"}],
)  # fmt: skip
def test_from_python_refusals_name_no_options(given):
    """`secagg.epsilon` refuses what the command refuses, in words that fit its arguments."""
    with pytest.raises(BadInput) as refused:
        secagg.epsilon(1e-5, **given)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize("option", ["--sessions", "--coordinates", "--shares"])
def test_numbers_that_no_float_holds_are_refused(option):
    """A number of sessions, coordinates or shares beyond every plan's is refused by its option's name."""
    result = CliRunner().invoke(app, [NOISE, "1", *SHARES, option, "1" + 400 * "0", "--delta", "1e-5"])
    assert result.exit_code == 2
    assert option in result.output


def test_noise_beyond_all_numbers_gives_zero():
    """So much noise that μ² has no float is still answered, rounded up."""
    assert ask(NOISE, "1e300")["epsilon"] == 0.0


def test_delta_that_no_sum_keeps_is_refused_for_shares_alone():
    """Shares of noise may not fit into the ring, so that δ < 10⁻¹⁵ is refused as in a plan; one party's are exact."""
    refused = CliRunner().invoke(app, [NOISE, "4", *SHARES, "--delta", "0.9e-15"])
    assert isinstance(refused.exception, BadInput)
    assert "noise does not fit into the ring" in refused.exception.problem
    shares = ask(NOISE, "4", "--mechanism", "discrete-shares", delta="1e-15")
    assert ask(NOISE, "4", delta="1e-16")["epsilon"] > shares["epsilon"] > ask(NOISE, "4", delta="1e-15")["epsilon"]


@pytest.mark.parametrize("delta", ["0", "1", "nan", "-1"])
def test_delta_out_of_range_is_refused(delta):
    """δ lies strictly between 0 and 1."""
    result = CliRunner().invoke(app, ["--noise-multiplier", "1", "--delta", delta])
    assert isinstance(result.exception, BadInput)


TRAINED = ("--sampling", "0.1", "--steps", "10", "--rounds", "10")


def test_sampled_steps_have_their_own_composition():
    """ε of ten rounds of ten steps is that of a plan's claim, and so is the noise that an ε takes; add-remove alone."""
    steps = SampledSteps(0.1, 4.0, 100)
    found = ask("--noise-multiplier", "4", *TRAINED)
    assert found["epsilon"] == TrainingCost(steps).epsilon(1e-5)
    assert (found["adjacency"], found["sampling"], found["steps"], found["rounds"]) == ("add-remove", 0.1, 10, 10)
    assert found["epsilon"] == secagg.epsilon(1e-5, noise_multiplier=4.0, sampling=0.1, steps=100)["epsilon"]
    asked = ask("--target-epsilon", "1", *TRAINED)
    assert asked["noise_multiplier"] == pytest.approx(3.9417, abs=1e-3)
    assert 0.999 < asked["epsilon"] <= 1.0
    result = CliRunner().invoke(app, ["--noise-multiplier", "4", *TRAINED, "--delta", "1e-5"])
    assert "100 steps, a record in each with probability 0.1" in result.stdout


@pytest.mark.parametrize(("sessions", "epsilon"), [("2", 1.4711), ("4", 2.1653), ("8", 3.2073), ("16", 4.7945)])
def test_several_trainings_cost_what_a_ledger_says(sessions, epsilon):
    """Trainings of ε = 1 add up by their rows: two cost 1.47, not 2.15."""
    multiplier = repr(ask("--target-epsilon", "1", *TRAINED)["noise_multiplier"])
    found = ask("--noise-multiplier", multiplier, *TRAINED, "--sessions", sessions)
    assert found["epsilon"] == pytest.approx(epsilon, abs=2e-4)


@pytest.mark.parametrize("arguments", [
    [NOISE, "1", "--steps", "2"], [NOISE, "1", "--rounds", "2"], [*TRAINED], [NOISE, "1", TARGET, "1", *TRAINED],
    [NOISE, "1", *TRAINED, *SHARES], [NOISE, "1", *TRAINED, "--adjacency", "replace-one"],
    [NOISE, "4", *TRAINED, "--sessions", "17"], [TARGET, "1", *TRAINED, "--sessions", "2"],
    [NOISE, "4", "--sampling", "nan"], [NOISE, "4", "--sampling", "0"], [NOISE, "4", "--sampling", "1.1"],
    [NOISE, "nan", *TRAINED], [TARGET, "0", *TRAINED], [TARGET, "inf", *TRAINED],
    [NOISE, "4", "--sampling", "0.1", "--steps", "100000", "--rounds", "100000"],
])  # fmt: skip
def test_sampled_questions_without_an_answer_are_refused(arguments):
    """One clear line for steps without a rate, other mechanisms and neighbours, and more than a ledger takes."""
    result = CliRunner().invoke(app, [*arguments, "--delta", "1e-5"])
    assert isinstance(result.exception, BadInput)
