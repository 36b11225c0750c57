"""Cosines, matching, PSNR and SSIM."""

import numpy as np
import pytest

from secagg.errors import BadInput
from threat_models.attacks.reconstruction.similarity import cosines, match_cosines, match_rows, psnr, ssim


def test_cosines_by_hand():
    """Cosines of plain vectors, and 0 for one without a direction."""
    assert np.allclose(cosines(np.array([[1.0, 0], [0, 0]]), np.array([[1.0, 1], [0, 2]])), [[0.5**0.5, 0], [0, 0]])


def test_matching_undoes_a_permutation():
    """Features in another order and scale are matched to themselves with cosine 1; who is left over has 0."""
    true = np.random.default_rng(0).standard_normal((5, 8))
    order = np.array([3, 0, 4, 1, 2])
    assert np.allclose(match_cosines(2 * true[order], true), 1)
    assert np.array_equal(match_rows(true, true[order]), np.argsort(order))
    assert sorted(np.round(match_cosines(true[:3], true), 9))[:2] == [0, 0]


def test_psnr_by_hand():
    """A constant error of 0.1 is 20 dB; no error is infinite."""
    image = np.zeros((4, 4, 3))
    assert psnr(image, image + 0.1) == pytest.approx(20)
    assert psnr(image, image) == float("inf")


def test_ssim_of_constant_images():
    """Of constant images only the luminance is compared: (2ab + C₁)/(a² + b² + C₁), Wang et al. Eq. 6."""
    a, b = np.full((16, 16, 1), 0.2), np.full((16, 16, 1), 0.6)
    assert ssim(a, b) == pytest.approx((2 * 0.12 + 1e-4) / (0.04 + 0.36 + 1e-4))


def test_ssim_against_its_definition():
    """The sum over windows agrees with the formula written out window by window."""
    generator = np.random.default_rng(0)
    x, y = generator.random((2, 14, 13, 2))
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets**2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for channel in range(2):
        for row in range(4):
            for column in range(3):
                p, q = (each[row : row + 11, column : column + 11, channel] for each in (x, y))
                mp, mq = (window * p).sum(), (window * q).sum()
                vp, vq = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum()
                both = (window * (p - mp) * (q - mq)).sum()
                above = (2 * mp * mq + 1e-4) * (2 * both + 9e-4)
                values.append(above / ((mp**2 + mq**2 + 1e-4) * (vp + vq + 9e-4)))
    assert ssim(x, y) == pytest.approx(np.mean(values))
    assert ssim(x, x) == pytest.approx(1)


def test_images_that_cannot_be_compared():
    """Images of other shapes, or smaller than SSIM's window, are refused."""
    with pytest.raises(BadInput, match="shape"):
        psnr(np.zeros((4, 4, 1)), np.zeros((4, 5, 1)))
    with pytest.raises(BadInput, match="11×11"):
        ssim(np.zeros((8, 8, 1)), np.zeros((8, 8, 1)))
