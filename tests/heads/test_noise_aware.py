"""The head and its refinement from noisy releases: what the known noise is good for."""

import math

import numpy as np
import pytest

from secagg.encoding import Grid, accumulate, quantise
from secagg.encoding.softmax_gradient import RESIDUAL_LEVELS, Mapped, softmax_gradient
from secagg.errors import BadInput
from secagg.heads import head_digest, predict, refinement
from secagg.heads.discriminant import ReleaseNoise, denoise, discriminant, edge, noise_aware_discriminant, read_release

GRID = Grid(1.0, 1 << 14)
CLASSES, DIMENSION = 5, 24
SHARES = (0.02, 0.58, 0.40)
REFINED = tuple(refinement.FIRST_SHARES.values())
MULTIPLIER = 1000
ROUNDS = 16


def sample(seed=0, count=6000, prior=None):
    """Overlapping classes with a steep common covariance, as records of length 1 (a little below) and labels."""
    fixed = np.random.default_rng(99)
    means = 0.2 * fixed.normal(size=(CLASSES, DIMENSION)) * np.linspace(1.5, 0.3, DIMENSION)
    spread = np.geomspace(1.5, 0.1, DIMENSION)
    generator = np.random.default_rng(seed)
    labels = generator.choice(CLASSES, count, p=prior)
    features = (means[labels] + generator.normal(size=(count, DIMENSION)) * spread) @ _rotation(fixed)
    return features / np.linalg.norm(features, axis=1, keepdims=True) * (1 - 1e-12), labels


def _rotation(generator):
    return np.linalg.qr(generator.normal(size=(DIMENSION, DIMENSION)))[0]


RECORDS, LABELS = sample()
TEST, TEST_LABELS = sample(1, 4000)
EXACT = accumulate(quantise(RECORDS, GRID), LABELS, CLASSES, GRID.levels)


def release(exact, mu, seed, grid=GRID, multiplier=MULTIPLIER, shares=SHARES):
    """One joint Gaussian release with `mu` = Δ/σ over all blocks, and its noise."""
    generator = np.random.default_rng(seed)
    sigma = [1 / (mu * share**0.5) for share in shares]
    noise = ReleaseNoise(sigma[0] * multiplier, sigma[1] * grid.levels, sigma[2] * grid.levels**2, multiplier)
    rows, columns = np.triu_indices(exact["class_sums"].shape[1])
    per_entry = noise.second_moment * np.where(rows == columns, 1, 0.5**0.5)
    scales = {"counts": noise.counts, "class_sums": noise.class_sums, "second_moment": per_entry}
    noisy = {}
    for name, scale in scales.items():
        block = exact[name] * (multiplier if name == "counts" else 1)
        noisy[name] = block + np.rint(generator.normal(size=block.shape) * scale).astype(np.int64)
    return noisy, noise


def accuracy(head, features=TEST, labels=TEST_LABELS):
    """Fraction of held-out records that a head gets right."""
    return (predict(head, features) == labels).mean()


def noisy_matrix(seed, values, sigma):
    """A matrix with the given spectrum plus symmetric noise: (noisy, true)."""
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.normal(size=(len(values), len(values))))[0]
    true = (basis * values) @ basis.T
    raw = generator.normal(size=true.shape) * sigma
    return true + (raw + raw.T) / 2**0.5, true


def test_spectrum_of_pure_noise_vanishes():
    """Eigenvalues that are all noise are estimated as next to nothing, a spike above it survives."""
    noisy, _ = noisy_matrix(0, np.zeros(200), 1.0)
    assert denoise(noisy, 1.0)[0].mean() < 0.1 * edge(200, 1.0)
    noisy, _ = noisy_matrix(1, np.append(np.zeros(199), 6 * 200**0.5), 1.0)
    values, vectors = denoise(noisy, 1.0)
    assert values[-1] == pytest.approx(6 * 200**0.5 * (1 - 1 / 36), rel=0.1)
    assert (np.diff(values) >= 0).all()
    assert np.allclose(vectors @ vectors.T, np.eye(200))


@pytest.mark.parametrize("seed", range(5))
def test_denoised_matrix_is_nearer_than_a_clipped_one(seed):
    """For steep, flat and low-rank spectra the error is below that of clipping negative eigenvalues."""
    for values in (np.geomspace(0.01, 200, 100), np.full(100, 5.0), np.repeat([0.0, 40.0], [80, 20])):
        noisy, true = noisy_matrix(seed, values, 1.0)
        estimate, vectors = denoise(noisy, 1.0)
        raw, _ = np.linalg.eigh(noisy)
        clipped = (vectors * np.maximum(raw, 0)) @ vectors.T
        error = np.linalg.norm((vectors * estimate) @ vectors.T - true)
        assert error < 0.97 * np.linalg.norm(clipped - true)


def test_without_noise_it_is_the_discriminant():
    """As σ → 0 the head becomes that of the exact sums."""
    noisy, noise = release(EXACT, 1e4, 0)
    exact = discriminant(EXACT, GRID, ridge=0.0)
    got = noise_aware_discriminant(noisy, GRID, noise)
    assert np.allclose(got.weight, exact.weight, rtol=0.02, atol=0.02 * np.abs(exact.weight).max())
    assert np.allclose(got.bias, exact.bias, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("mu", "least"), [(0.25, 0.93), (0.07, 0.8)])
def test_head_survives_the_noise(mu, least):
    """Where the plain discriminant falls, the head keeps most of what the exact sums give."""
    exact = accuracy(discriminant(EXACT, GRID))
    kept = [accuracy(noise_aware_discriminant(*_with_grid(release(EXACT, mu, seed)))) for seed in range(5)]
    assert np.mean(kept) > least * exact
    plain = [accuracy(_blind(EXACT, mu, seed)) for seed in range(5)]
    assert np.mean(kept) > np.mean(plain) + 0.1


def _with_grid(noisy):
    return noisy[0], GRID, noisy[1]


def _blind(exact, mu, seed):
    """The head that takes the noise for data: known σ, but next to no ridge for it."""
    noisy, noise = release(exact, mu, seed)
    tiny = ReleaseNoise(noise.counts, noise.class_sums * 1e-3, noise.second_moment * 1e-3, noise.count_multiplier)
    return noise_aware_discriminant(noisy, GRID, tiny)


def told(factor):
    """Mean accuracy over twelve releases when the stated σ of B is `factor` times the true one."""
    heads = []
    for seed in range(12):
        noisy, noise = release(EXACT, 0.1, seed)
        stated = ReleaseNoise(noise.counts, noise.class_sums, factor * noise.second_moment, MULTIPLIER)
        heads.append(accuracy(noise_aware_discriminant(noisy, GRID, stated)))
    return np.mean(heads)


@pytest.mark.parametrize("factor", [0.1, 0.5, 2.0, 10.0])
def test_true_noise_is_the_best_to_state(factor):
    """Told too little or too much noise, the head is worse: the rule uses the right σ, √2 and unit included."""
    assert told(1.0) > told(factor) + 0.005


def test_counts_within_the_noise_become_equal_and_rare_classes_stay_rare():
    """Balanced counts under strong noise are estimated far better than they were opened; a long tail stays."""
    true, opened, estimated = EXACT["counts"], [], []
    for seed in range(20):
        noisy, noise = release(EXACT, 0.02, seed)
        opened.append(np.linalg.norm(noisy["counts"] / MULTIPLIER - true))
        estimated.append(np.linalg.norm(read_release(noisy, GRID, noise).counts - true))
    assert np.mean(estimated) < 0.75 * np.mean(opened)
    features, labels = sample(4, 6000, [0.5, 0.3, 0.15, 0.04, 0.01])
    tail = accumulate(quantise(features, GRID), labels, CLASSES, GRID.levels)
    noisy, noise = release(tail, 0.5, 5)
    assert np.allclose(read_release(noisy, GRID, noise).counts, tail["counts"], atol=60)


def test_counts_are_at_least_one_and_at_least_the_length_of_their_sum():
    """Negative and tiny opened counts are lifted to what A proves, and never below 1; the total uses tr(B)."""
    noisy, noise = release(EXACT, 0.25, 6)
    noisy["counts"][:] = [-(10**6), 5, *noisy["counts"][2:]]
    estimate = read_release(noisy, GRID, noise)
    lengths = np.linalg.norm(EXACT["class_sums"] / GRID.levels, axis=1)
    assert (estimate.counts >= 0.9 * lengths).all()
    empty = {name: np.zeros_like(block) for name, block in EXACT.items()}
    assert (read_release(*_with_grid(release(empty, 0.25, 7))).counts >= 1).all()


def test_multiplier_and_grid_are_units_only():
    """The same release with another count multiplier and a four times finer grid gives the same head."""
    noisy, noise = release(EXACT, 0.25, 8)
    finer = {"counts": noisy["counts"] * 3, "class_sums": noisy["class_sums"] * 4}
    finer["second_moment"] = noisy["second_moment"] * 16
    stated = ReleaseNoise(noise.counts * 3, noise.class_sums * 4, noise.second_moment * 16, MULTIPLIER * 3)
    one = noise_aware_discriminant(noisy, GRID, noise)
    other = noise_aware_discriminant(finer, Grid(1.0, GRID.levels * 4), stated)
    assert np.allclose(one.weight, other.weight, rtol=1e-4, atol=1e-6)
    assert np.allclose(one.bias, other.bias, rtol=1e-4, atol=1e-6)


def test_nothing_but_noise_still_gives_a_head():
    """A release without any record in it gives a finite head, for few and for many dimensions."""
    for dimension in (1, 2, 40):
        zero = accumulate(np.zeros((0, dimension), dtype=np.int64), np.zeros(0, dtype=np.int64), 3, GRID.levels)
        noisy, noise = release(zero, 0.25, 9)
        assert noise_aware_discriminant(noisy, GRID, noise).present.all()
        assert np.isfinite(refinement.begin(noisy, GRID, noise).start).all()


def test_same_release_gives_the_same_bits():
    """Nothing is drawn: head, geometry and step are functions of the release."""
    noisy, noise = release(EXACT, 0.25, 10)
    assert head_digest(noise_aware_discriminant(noisy, GRID, noise)) == head_digest(
        noise_aware_discriminant(noisy, GRID, noise)
    )
    one, other = (refinement.begin(noisy, GRID, noise) for _ in range(2))
    assert (one.whitening.matrix == other.whitening.matrix).all()
    assert (one.start == other.start).all()


@pytest.mark.parametrize("sigmas", [(0, 1, 1), (1, -1, 1), (1, 1, float("nan")), (1, float("inf"), 1)])
def test_noise_that_is_none_is_refused(sigmas):
    """Every block has noise: a σ of zero, below it or undefined is refused, and so is a multiplier of 0."""
    with pytest.raises(BadInput):
        ReleaseNoise(*sigmas)
    with pytest.raises(BadInput):
        ReleaseNoise(1, 1, 1, 0)


def round_mu(mu, rounds=ROUNDS):
    """μ of one of `rounds` rounds that share what the first sum leaves of `mu`."""
    return mu * math.sqrt((1 - refinement.FIRST_SHARE) / rounds)


def begun(mu, seed, exact=EXACT):
    """The geometry after the first sum of a plan that keeps `mu` in all."""
    noisy, noise = release(exact, mu * refinement.FIRST_SHARE**0.5, seed, shares=REFINED)
    return refinement.begin(noisy, GRID, noise)


def refine(mu, seed, rounds=ROUNDS, exact=EXACT, records=RECORDS, labels=LABELS):
    """The accuracy of the refined head of one whole plan that keeps `mu`."""
    generator = np.random.default_rng(seed)
    place = begun(mu, seed, exact)
    levels = place.whitening.levels
    mapped = place.whitening.apply(quantise(records, GRID))
    sigma = RESIDUAL_LEVELS * levels / round_mu(mu, rounds)
    weights = before = place.start
    for _ in range(rounds):
        opened = softmax_gradient(
            Mapped.of(mapped, levels), labels, refinement.integer_weights(weights), refinement.CLIP
        )
        opened = opened + np.rint(generator.normal(size=opened.shape) * sigma).astype(np.int64)
        stepped = refinement.step(weights, before, opened, sigma, place, rounds, refinement.NOISY_PACE)
        weights, before = stepped, weights
    return accuracy(refinement.refined_head(weights, place, GRID))


def read_noisy(exact, mu, seed):
    """What is read of one sum that keeps `mu`."""
    noisy, noise = release(exact, mu, seed)
    return read_release(noisy, GRID, noise)


def one_shot(mu, seed, exact=EXACT):
    """The accuracy of the head of one sum that keeps `mu`."""
    noisy, noise = release(exact, mu, seed)
    return accuracy(noise_aware_discriminant(noisy, GRID, noise))


def test_mapped_records_are_nearly_white():
    """With little noise the mapped records have much the same mean square in every direction, and a mean near 0."""
    place = begun(100, 0)
    mapped = place.whitening.apply(quantise(RECORDS, GRID)) / place.whitening.levels
    raw, white = (np.linalg.eigvalsh(rows.T @ rows) for rows in (RECORDS, mapped[:, :-1]))
    assert white.max() / white.min() < 3 < raw.max() / raw.min()
    assert np.linalg.norm(mapped[:, :-1].mean(axis=0)) < 0.1


def test_exact_start_decides_as_the_one_shot_head():
    """Without noise the first weights, behind the recentring, agree with the one-shot head on nearly every record."""
    place = refinement.begin_exact(EXACT, GRID)
    mine = predict(refinement.refined_head(place.start, place, GRID), TEST)
    exact = noise_aware_discriminant(EXACT, GRID, refinement.ONE_GRID_STEP)
    assert (mine == predict(exact, TEST)).mean() > 0.93


def test_scale_counts_the_directions_that_records_fill():
    """The mapped records' second moment in its largest directions is n/d_eff, with little noise and with much."""
    for mu in (100, 1.0, 0.2):
        place = begun(mu, 5)
        mapped = place.whitening.apply(quantise(RECORDS, GRID)) / place.whitening.levels
        largest = np.linalg.eigvalsh(mapped[:, :-1].T @ mapped[:, :-1]).max()
        assert 0.5 < largest / place.scale < 2


@pytest.mark.parametrize("mu", [0.1, 0.25, 1.0])
def test_rounds_are_better_than_one_sum(mu):
    """At the same μ, refined heads are better than those of one sum, on average over three runs."""
    assert np.mean([refine(mu, seed) for seed in range(3)]) > np.mean([one_shot(mu, seed) for seed in range(3)])


def test_few_records_leave_something():
    """When n is small against the noise, rounds are still no worse than one sum."""
    few = accumulate(quantise(RECORDS[:150], GRID), LABELS[:150], CLASSES, GRID.levels)
    refined = [refine(0.5, seed, exact=few, records=RECORDS[:150], labels=LABELS[:150]) for seed in range(8)]
    assert np.mean(refined) > np.mean([one_shot(0.5, seed, few) for seed in range(8)])


def test_mean_that_is_noise_is_taken_for_zero():
    """Of records whose mean is 0 the shrunk mean is 0 or short, where noise makes the plain one long."""
    balanced = np.concatenate([RECORDS[:100], -RECORDS[:100]])
    exact = accumulate(quantise(balanced, GRID), np.tile(LABELS[:100], 2), CLASSES, GRID.levels)
    read = [read_noisy(exact, 0.05, seed) for seed in range(20)]
    assert np.mean([np.linalg.norm(each.mean) for each in read]) > 0.8
    assert np.mean([np.linalg.norm(each.shrunk_mean) for each in read]) < 0.3


def test_mean_without_much_noise_is_not_shrunk():
    """A mean that stands out of the noise stays where it is."""
    read = read_noisy(EXACT, 10, 1)
    assert np.allclose(read.shrunk_mean, read.mean, rtol=1e-3)


def test_noise_of_all_steps_stays_below_one_logit():
    """Fed with noise alone, k steps change a record's logits by about one unit of standard deviation, or less."""
    for mu in (0.02, 0.1, 1.0):
        place = begun(mu, 2)
        sigma = RESIDUAL_LEVELS * place.whitening.levels / round_mu(mu)
        generator = np.random.default_rng(3)
        weights = before = np.zeros_like(place.start)
        for _ in range(ROUNDS):
            noise = np.rint(generator.normal(size=weights.shape) * sigma).astype(np.int64)
            stepped = refinement.step(weights, before, noise, sigma, place, ROUNDS, refinement.NOISY_PACE)
            weights, before = stepped, weights
        assert weights.std() < 1.2


def test_momentum_keeps_a_share_of_the_last_move():
    """Without a gradient the weights go on by β of their last move; the exact pace has none."""
    place = begun(1.0, 3)
    weights, before = np.ones_like(place.start), np.zeros_like(place.start)
    nothing = np.zeros(weights.shape, dtype=np.int64)
    for pace, moved in ((refinement.NOISY_PACE, 0.5), (refinement.EXACT_PACE, 0.0)):
        stepped = refinement.step(weights, before, nothing, 1.0, place, ROUNDS, pace)
        assert np.array_equal(stepped, weights + moved)


def test_shares_of_all_sums_add_up():
    """First sum and rounds together are the whole μ²: nothing is spent twice and nothing is left."""
    rounds = [round_mu(0.3, 7) ** 2 for _ in range(7)]
    assert sum(rounds) + refinement.FIRST_SHARE * 0.3**2 == pytest.approx(0.3**2)
    assert sum(REFINED) == pytest.approx(1)


def test_step_that_does_not_fit_is_refused():
    """Another shape, no noise and no rounds are refused."""
    place = begun(0.25, 4)
    gradient, pace = np.zeros(place.start.shape, dtype=np.int64), refinement.NOISY_PACE
    for bad in ((gradient[1:], 1.0, 3), (gradient, 0.0, 3), (gradient, float("nan"), 3), (gradient, 1.0, 0)):
        with pytest.raises(BadInput):
            refinement.step(place.start, place.start, bad[0], bad[1], place, bad[2], pace)
    with pytest.raises(BadInput):
        refinement.step(place.start, place.start[1:], gradient, 1.0, place, 3, pace)
    assert np.abs(refinement.integer_weights(np.full((1, 1), 1e30))).max() == 2**36
