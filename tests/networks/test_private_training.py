"""DP-SGD inside a member. Each statistical test fails a sound source with probability below 10⁻⁶, over its seed."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from secagg.encoding.updates import sum_of_records
from secagg.errors import BadInput
from secagg.networks import DpSgdSettings, dp_sgd, private_training, program_named, record_gradients
from secagg.networks.private_training import poisson_sample
from secagg.networks.taint import public
from tests.networks.models import SEED, every_program, seeded, some_parameters, some_records

FALSE_FAILURE = 1e-6
EXACT = DpSgdSettings(rate=0.5, steps=4, sampling_rate=1.0, clip=0.7, levels=1 << 26, sigma=0.0, denominator=12.0)
SOFTMAX = program_named("softmax", 7, 3)


def private(program, start, *others):
    """The parameters after DP-SGD from a public start."""
    return dp_sgd(public(program), public(start), *others).value


def one_sum(records, labels, *, sampling_rate=1.0, sigma=0.0, levels=1000, name="step"):
    """The integers that one step of the softmax program adds up, with its noise: rate and denominator leave them."""
    clip = 0.5
    settings = DpSgdSettings(levels / clip, 1, sampling_rate, clip, levels, sigma, 1.0)
    start = np.zeros(SOFTMAX.size)
    total = -private(SOFTMAX, start, records, labels, settings, seeded(name))
    assert np.array_equal(total, np.rint(total))
    return total.astype(np.int64)


@every_program
def test_without_noise_and_sampling_it_is_sgd_of_clipped_gradients(program):
    """With σ = 0, q = 1 and fine levels, steps are those of full-batch SGD with clipped gradients, to seven digits."""
    (records, labels), start = some_records(program, 12), some_parameters(program)
    expected, clipped = start.copy(), 0
    for _ in range(EXACT.steps):
        gradients = np.concatenate(list(record_gradients(program, expected, records, labels))).astype(np.float64)
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped += (lengths > EXACT.clip).sum()
        expected -= EXACT.rate * (gradients * np.minimum(1, EXACT.clip / lengths)).sum(axis=0) / EXACT.denominator
    assert clipped > 0
    found = private(program, start, records, labels, EXACT, seeded("none"))
    assert np.abs(found - expected).max() < 1e-6


@given(
    arrays(np.float32, (4, 6), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)),
    st.floats(1e-3, 1e3),
    st.sampled_from([1, 2, 7, 1000, 1 << 20, 1 << 26]),
)
def test_no_record_moves_the_sum_by_more_than_the_levels(gradients, clip, levels):
    """Whatever its gradient, leaving a record out moves the integers by at most `levels`, in exact arithmetic."""
    whole = sum_of_records(gradients, clip, levels)
    assert whole.dtype == np.int64
    for record in range(4):
        moved = whole - sum_of_records(np.delete(gradients, record, axis=0), clip, levels)
        assert sum(int(each) ** 2 for each in moved) <= levels**2


@pytest.mark.parametrize("size", [1, 13, 650, 30_001])
def test_integers_of_a_record_do_not_depend_on_the_others(size):
    """The sum of many records is that of their own integers, each made alone: their lengths round alike."""
    gradients = np.random.default_rng(size).normal(size=(41, size)).astype(np.float32)
    alone = np.array([sum_of_records(gradients[row : row + 1], 0.9, 1 << 26) for row in range(41)])
    for kept in (slice(0, 41), slice(5, 41), slice(0, 41, 3)):
        assert sum_of_records(gradients[kept], 0.9, 1 << 26).tolist() == alone[kept].sum(axis=0).tolist()


@given(arrays(np.float32, 5, elements=st.integers(-1000, 1000).map(lambda number: number / 8)))
def test_short_record_is_cut_towards_zero(gradient):
    """A gradient within the clip becomes its multiple by levels/clip, each entry without its fraction."""
    expected = [int(Fraction(float(each)) * 4096 / 512) for each in gradient]
    assert sum_of_records(gradient[None], 512.0, 4096).tolist() == expected
    entries = [int(Fraction(float(each)) * 3 / 512) for each in gradient]
    assert sum_of_records(gradient[None], 512.0, 3).tolist() == entries


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_gradient_that_is_not_finite_adds_nothing(bad):
    """NaN or an infinity makes that row zero, and no other."""
    rows = np.array([[3.0, 4.0], [bad, 1.0], [-0.5, 0.25]], dtype=np.float32)
    assert sum_of_records(rows, 5.0, 500).tolist() == [250, 425]


def test_long_record_counts_as_one_of_the_clip():
    """A record whose gradient has length 10⁶ moves a step's sum by the levels, but for cutting, and never by more."""
    records, labels = some_records(SOFTMAX, 9)
    records[4] *= 1e6
    (gradient,) = np.concatenate(list(record_gradients(SOFTMAX, np.zeros(SOFTMAX.size), records[4:5], labels[4:5])))[:1]
    assert np.linalg.norm(gradient) > 1e6
    kept = np.arange(9) != 4
    moved = one_sum(records, labels) - one_sum(records[kept], labels[kept])
    squares = sum(int(each) ** 2 for each in moved)
    assert (1000 - 24**0.5) ** 2 <= squares <= 1000**2


def test_records_at_fault_and_the_count_of_records_do_not_enter():
    """Records full of NaN, however many, leave the bits as they are."""
    records, labels = some_records(SOFTMAX, 9)
    more = np.concatenate([records, np.full((30, 7), np.nan, np.float32)])
    more_labels = np.concatenate([labels, np.zeros(30, np.int64)])
    start = some_parameters(SOFTMAX)
    alone = private(SOFTMAX, start, records, labels, EXACT, seeded("same"))
    assert alone.tobytes() == private(SOFTMAX, start, more, more_labels, EXACT, seeded("same")).tobytes()


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_each_record_is_drawn_at_the_stated_rate_by_itself(rate):
    """Over 200 draws of 500 records, every record's count, every draw's, and that of neighbours drawn together fit."""
    source = seeded(f"poisson {rate}")
    taken = np.zeros((200, 500), dtype=bool)
    for row in taken:
        row[poisson_sample(500, rate, source)] = True
    both = (taken[:, ::2] & taken[:, 1::2]).sum()
    counts = [(taken.sum(axis=0), 200, rate), (taken.sum(axis=1), 500, rate), (both, 200 * 250, rate**2)]
    tails = [tail(found, trials, chance) for found, trials, chance in counts for tail in (below, above)]
    values = np.concatenate([np.ravel(tail) for tail in tails])
    assert len(values) == 2 * 701
    assert values.min() > FALSE_FAILURE / len(values)


def below(found, trials, chance):
    """The probability of so few or fewer."""
    return stats.binom.cdf(found, trials, chance)


def above(found, trials, chance):
    """The probability of so many or more."""
    return stats.binom.sf(found - 1, trials, chance)


@pytest.mark.parametrize(
    ("word", "rate", "drawn"),
    [(2**62 - 1, 0.25, 1), (2**62, 0.25, 0), (2**64 - 1, 1.0, 1), (0, 2.0**-30, 1), (2**34, 2.0**-30, 0)],
)
def test_record_is_drawn_where_its_word_is_below_the_rate(word, rate, drawn):
    """A record is drawn exactly where its word is below 2⁶⁴·rate: of 2⁶⁴ words, as many as the rate says."""

    class Word:
        def bytes(self, count):
            return word.to_bytes(8, "little") * (count // 8)

    assert len(poisson_sample(3, rate, Word())) == 3 * drawn


def test_step_over_some_records_is_of_those_drawn():
    """What a step adds up under sampling is the sum of the records that the same stream draws."""
    records, labels = some_records(SOFTMAX, 50)
    drawn = poisson_sample(50, 0.4, seeded("some"))
    assert 0 < len(drawn) < 50
    sampled = one_sum(records, labels, sampling_rate=0.4, name="some")
    assert sampled.tolist() == one_sum(records[drawn], labels[drawn]).tolist()


def test_empty_step_is_a_noisy_step_of_the_stated_variance():
    """Without records each number of each of 300 steps moves by noise whose variance is σ² to what chance allows."""
    nothing = some_records(SOFTMAX, 0)
    noise = np.array([one_sum(*nothing, sigma=40.0, name=f"noise {step}") for step in range(300)])
    assert (noise != 0).any(axis=1).all()
    statistic = (noise.astype(np.float64) ** 2).sum() / 40.0**2
    low, high = stats.chi2.ppf([FALSE_FAILURE / 2, 1 - FALSE_FAILURE / 2], noise.size)
    assert low < statistic < high


def test_every_step_has_noise_of_its_own():
    """Two steps without records move by two different noises, which add up."""
    nothing = some_records(SOFTMAX, 0)
    settings = DpSgdSettings(2000.0, 2, 0.5, 0.5, 1000, 40.0, 1.0)
    both = -private(SOFTMAX, np.zeros(SOFTMAX.size), *nothing, settings, seeded("two"))
    first = one_sum(*nothing, sigma=40.0, name="two")
    assert np.abs(both - first).sum() > 0
    assert not np.array_equal(both, 2 * first)


def test_every_step_draws_its_records_anew(monkeypatch):
    """Of 400 records each of 8 steps takes so many, and any two steps so many in common, as independent draws do."""
    records, labels = some_records(SOFTMAX, 400)
    settings, steps = DpSgdSettings(1.0, 8, 0.3, 1.0, 1024, 0.0, 100.0), []
    place = {row.tobytes(): number for number, row in enumerate(records)}

    def spied(program, weights, x, y, **how):
        taken = np.isin(np.arange(400), [place[row.tobytes()] for row in x])
        steps.append(taken)
        return record_gradients(program, weights, x, y, **how)

    monkeypatch.setattr(private_training, "record_gradients", spied)
    private(SOFTMAX, np.zeros(SOFTMAX.size), records, labels, settings, seeded("anew"))
    taken = np.array(steps)
    assert taken.shape == (8, 400)
    pairs = [(one & other).sum() for number, one in enumerate(taken) for other in taken[:number]]
    counts = [(taken.sum(axis=1), 400, 0.3), (np.array(pairs), 400, 0.3**2)]
    values = np.concatenate(
        [tail(found, trials, chance) for found, trials, chance in counts for tail in (below, above)]
    )
    assert len(values) == 2 * (8 + 28)
    assert values.min() > FALSE_FAILURE / len(values)


def test_adams_moments_come_from_noisy_means_alone():
    """Each step is that of `torch.optim.Adam` on the noisy mean gradient, with decay added after the noise.

    The noisy mean is read from a step of SGD at the same parameters with the same draws.
    """
    records, labels = some_records(SOFTMAX, 40)
    settings = DpSgdSettings(0.01, 1, 0.5, 1.0, 1 << 20, 4.0e6, 20.0, "adam", 0.3)
    plain = replace(settings, rate=1.0, optimiser="sgd", decay=0.0)
    start = np.concatenate([some_parameters(SOFTMAX), np.zeros(2 * SOFTMAX.size + 1)])
    weights = torch.tensor(start[: SOFTMAX.size], dtype=torch.float32)
    adam, mirror = torch.optim.Adam([weights], lr=0.01, weight_decay=0.3), seeded("adam")
    for _ in range(5):
        at = weights.numpy().astype(np.float64)
        noisy = at - private(SOFTMAX, at, records, labels, plain, mirror)
        weights.grad = torch.tensor(noisy, dtype=torch.float32)
        adam.step()
    row = private(
        SOFTMAX,
        start.astype(np.float32).astype(np.float64),
        records,
        labels,
        replace(settings, steps=5),
        seeded("adam"),
    )
    state = adam.state[weights]
    for found, expected in zip(np.split(row[:-1], 3), (weights, state["exp_avg"], state["exp_avg_sq"]), strict=True):
        assert np.allclose(found, expected.numpy(), rtol=1e-5, atol=1e-7)
    assert row[-1] == 5


def test_private_training_learns():
    """With noise far below the sum, 60 sampled steps tell more than nine in ten records right."""
    records, labels = some_records(SOFTMAX, 300)
    settings = DpSgdSettings(1.0, 60, 0.2, 1.0, 1024, 1024.0, 60.0)
    trained = private(SOFTMAX, SOFTMAX.start(SEED), records, labels, settings, seeded("learn"))
    scores = records @ trained[:21].reshape(3, 7).T + trained[21:]
    assert (scores.argmax(axis=1) == labels).mean() > 0.9


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: value} for name in ("rate", "clip", "denominator") for value in (0.0, -1.0, np.inf, np.nan)),
        {"steps": 0},
        *({"sampling_rate": value} for value in (0.0, -0.1, 1.1, 2.0**-31, np.nan)),
        *({"levels": value} for value in (0, -1, (1 << 26) + 1)),
        *({"sigma": value} for value in (-1.0, 1.0, 1.99, 1e13, np.inf, np.nan)),
        *({"decay": value} for value in (-1.0, np.inf, np.nan)),
        {"optimiser": "adamw"},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(wrong):
    """Each setting has its range, and a σ that accounting cannot take is none."""
    good = {"rate": 1.0, "steps": 1, "sampling_rate": 0.5, "clip": 1.0, "levels": 8, "sigma": 4.0, "denominator": 1.0}
    DpSgdSettings(**good)
    with pytest.raises(BadInput):
        DpSgdSettings(**good | wrong)


def test_a_watch_sees_each_step_and_changes_none():
    """The watch has each step's noise and the noisy sum that moves the parameters, which are as without a watch."""
    records, labels = some_records(SOFTMAX, 9)
    settings = DpSgdSettings(0.5, 3, 0.5, 0.7, 1000, 400.0, 12.0)
    seen = []
    start = np.zeros(SOFTMAX.size)
    watched = private(SOFTMAX, start, records, labels, settings, seeded("w"), lambda *step: seen.append(step))
    assert np.array_equal(watched, private(SOFTMAX, start, records, labels, settings, seeded("w")))
    unit = settings.rate * settings.clip / (settings.levels * settings.denominator)
    assert watched == pytest.approx(-unit * np.sum([total for *_, total in seen], axis=0), rel=1e-12, abs=1e-15)
    assert len(seen) == settings.steps
    for taken, noise, total in seen:
        assert taken == settings
        assert 0 < np.linalg.norm(total - noise) <= len(records) * settings.levels
        assert np.std(noise) > 200


def test_a_watch_of_no_records_sees_noise_alone():
    """Without records the noisy sum is the noise."""
    records, labels = some_records(SOFTMAX, 0)
    settings = DpSgdSettings(0.5, 3, 0.5, 0.7, 1000, 400.0, 12.0)
    seen = []
    private(SOFTMAX, np.zeros(SOFTMAX.size), records, labels, settings, seeded("w"), lambda *step: seen.append(step))
    assert all(np.array_equal(noise, total) for _, noise, total in seen)
