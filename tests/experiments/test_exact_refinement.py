"""Rounds of refinement without noise give the heads that they gave before the rounds with noise had another recipe.

Both heads have been compared with that earlier program's on one machine: there they are the same to the bit.
"""

import numpy as np

import secagg
from secagg.data import open_dataset
from secagg.encoding.grid import inputs_of
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.heads import LinearHead
from secagg.system.threads import one_blas_thread

SYNTHETIC = "f559e12f8489eebc5afcdb4e79479692618c274be0002868b0687b1b93d775b9"
DIGITS = np.array(
    [
        [-31.7597, 2.5287, 11.8407, -18.1865, -33.6527, -29.3355, -21.3989, -24.8255, -0.8036, -16.2602],
        [-21.0765, -11.1823, -20.7667, -12.7395, -29.5038, -15.2151, -22.5133, -19.6025, -9.4500, -0.3662],
    ]
)
ROUNDING = 1e-4
"""Of the largest score: four times as far as the kernels of one LAPACK are apart, which differ by processor."""


def test_refined_head_of_records_that_fill_their_features() -> None:
    """Of well-conditioned records the head is the same to the bit: processors differ by 10⁻⁴ of float32's step."""
    labels = np.arange(240) % 3
    features = 2 * np.sin(0.37 * np.arange(240 * 6) ** 2).reshape(240, 6) + 1.5 * np.eye(6)[labels]
    held_out = {"test_features": features[180:], "test_labels": labels[180:]}
    run = secagg.simulate(features[:180], labels[:180], **held_out, refine=3, clients=3)
    assert run.to_json()["head_sha256"] == SYNTHETIC


def test_refined_head_of_digits() -> None:
    """Some pixels are always 0, which nothing regularises, so that scores of held-out digits stand for the head."""
    digits = open_dataset("digits")
    with one_blas_thread():
        run = simulate_dataset(digits, SimulationSettings(refine=3))
    assert isinstance(run.head, LinearHead)
    assert digits.test is not None
    assert run.federated is not None
    images = digits.test.inputs[: len(DIGITS)].reshape(len(DIGITS), -1).astype(np.float64)
    found = run.head.scores(inputs_of(images, run.federated.setup.plan.grid))
    np.testing.assert_allclose(found, DIGITS, rtol=0, atol=ROUNDING * float(np.abs(DIGITS).max()))
