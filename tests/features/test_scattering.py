"""Scattering: every record by itself to the bit, the definition's numbers, and what it refuses."""

import hashlib
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.encoding import Grid, Normalisation
from secagg.encoding.grid import quantise
from secagg.errors import BadInput
from secagg.features import backbone_digest, open_backbone
from secagg.features.opening import needs_files, planned_name, remark_on
from secagg.features.scattering import PARAMETERS, RULE, Scattering, margins_of, moduli_of, smoothing
from tests.architecture.source import ROOT
from tests.vectors import scattering as reference
from tests.vectors.files import load

VECTORS = load("scattering")
GRID = Grid(1.0, 1 << 16, normalisation=Normalisation.CENTRED_UNIT)
SHAPE = (16, 12)
PICTURES = np.random.default_rng(0).integers(0, 256, (130, *SHAPE), dtype=np.uint8)
THREADED = """
import hashlib, numpy as np
from secagg.features import open_backbone
pictures = np.random.default_rng(1).integers(0, 256, (5, 64, 64), dtype=np.uint8)
np.ones((600, 600)) @ np.ones((600, 600))
print(hashlib.sha256(open_backbone("scattering", (64, 64)).extract(pictures).tobytes()).hexdigest())
"""
FULL = (VECTORS["cases"][3], VECTORS["cases"][4])
"""Drawn shapes, which have something at every order."""


def picture_of(case) -> np.ndarray:
    """The bytes of a stored picture."""
    return np.frombuffer(bytes.fromhex(case["pixels"]), dtype=np.uint8).reshape(case["shape"])


def integers_of(case) -> np.ndarray:
    """The integers that are stored for it."""
    return np.array([int(word) for word in case["integers"].split()])


@pytest.mark.parametrize("size", [1, 7, 64])
def test_bits_do_not_depend_on_the_batch(size):
    """In batches of 1, 7 or 64, and in the reversed order, every record has the bits that it has among all."""
    backbone = open_backbone("scattering", SHAPE)
    together = backbone.extract(PICTURES)
    parts = [backbone.extract(PICTURES[start : start + size]) for start in range(0, len(PICTURES), size)]
    assert np.concatenate(parts).tobytes() == together.tobytes()
    assert np.ascontiguousarray(backbone.extract(PICTURES[::-1])[::-1]).tobytes() == together.tobytes()


def test_bits_do_not_depend_on_the_number_of_threads():
    """Processes that allow one and two computing threads print the same digest."""
    found = set()
    for threads in ("1", "2"):
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, threads), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", THREADED]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1
    assert len(bytes.fromhex(found.pop().strip())) == 32


def test_threads_at_once_do_not_disturb_each_other():
    """Two threads that extract at the same time get what one gets alone."""
    backbone = open_backbone("scattering", SHAPE)
    alone = backbone.extract(PICTURES)
    with ThreadPoolExecutor(2) as pool:
        for features in pool.map(backbone.extract, [PICTURES] * 4):
            assert features.tobytes() == alone.tobytes()


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_stored_vectors(case):
    """On the plan's grid no entry is more than one unit from the stored one, which other code computed in space."""
    picture = picture_of(case)
    (found,) = quantise(open_backbone("scattering", picture.shape).extract(picture[None]), GRID)
    assert VECTORS["levels"] == GRID.levels
    assert np.abs(found - integers_of(case)).max() <= 1


def test_stored_vectors_are_their_generator_s():
    """The generator still gives the stored pictures, and the stored integers but for the last bit."""
    stored = {case["name"]: case for case in VECTORS["cases"]}
    for name, picture in reference.pictures().items():
        assert (picture_of(stored[name]) == picture).all()
    for name in ("noise 8x8", "noise 9x13", "bar 16x16"):
        again = reference.integers(reference.features(picture_of(stored[name])))
        assert np.abs(integers_of(stored[name]) - again).max() <= 1


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (9, 13), (64, 33)], ids=str)
def test_kymatio_has_the_same_coefficients(shape):
    """Before the means over places, all 81 channels are Kymatio's, up to its single precision.

    Kymatio computes filters in float32 and divides them by 3.1415 where we divide by π (once for each filter of a
    path). It takes the moduli of coarse wavelets at every second pixel and smooths these with a φ cut to half of the
    band; ours are smoothed at every pixel. The test does the first to our moduli; so 2·10⁻⁶ of a channel's peak is
    float32 alone. What the second changes is below a tenth of a channel's peak.
    """
    frontend = pytest.importorskip(
        "kymatio.scattering2d.frontend.numpy_frontend", reason="needs kymatio, which is no dependency"
    )
    theirs = frontend.ScatteringNumPy2D(J=2, shape=shape, L=8)
    picture = np.random.default_rng(2).integers(0, 256, shape) / 255.0
    expected = theirs.scattering(picture)
    maps, filters = np.concatenate(moduli_of(picture)), np.array([1] + [2] * 16 + [3] * 64)
    half = np.fft.ifft2(np.fft.fft2(maps[:, ::2, ::2]) * theirs.phi["levels"][1]).real[:, ::2, ::2]
    low = np.einsum("ij,cjk,lk->cil", smoothing(maps.shape[1]), maps, smoothing(maps.shape[2]), optimize=True)
    full = low[:, ::4, ::4] * (math.pi / 3.1415) ** filters[:, None, None]
    half *= (math.pi / 3.1415) ** (filters[:, None, None] - 1)  # their φ has their 3.1415 in it
    decimated = np.arange(81) >= 9
    same = np.where(decimated[:, None, None], half, full)[:, 1:-1, 1:-1]
    peaks = np.abs(expected).max(axis=(1, 2), keepdims=True)
    assert same.shape == expected.shape
    assert (np.abs(same - expected) <= 2e-6 * peaks).all()
    assert (np.abs(full[:, 1:-1, 1:-1] - expected) <= 0.1 * peaks).all()


@pytest.mark.parametrize("case", FULL, ids=lambda case: case["name"])
def test_features_are_means_over_three_by_three_places(case):
    """Smoothing in Fourier space and torch's adaptive means give the same features, each order centred, 1 long."""
    import torch

    picture = picture_of(case) / 255.0
    orders = []
    for maps in moduli_of(picture):
        kernel = np.outer(smoothing(maps.shape[1])[:, 0], smoothing(maps.shape[2])[:, 0])
        low = np.fft.ifft2(np.fft.fft2(maps) * np.fft.fft2(kernel)).real
        inside = low[:, *(slice(m[0], -m[1]) for m in map(margins_of, picture.shape))]
        order = torch.nn.functional.adaptive_avg_pool2d(torch.tensor(inside), 3).numpy().ravel()
        orders.append((order - order.mean()) / np.linalg.norm(order - order.mean()))
    (found,) = open_backbone("scattering", picture.shape).extract(picture[None])
    assert [len(order) for order in orders] == [9, 144, 576]
    assert np.abs(found - np.concatenate(orders)).max() < 1e-12
    assert open_backbone("scattering", picture.shape).bound(None) >= np.linalg.norm(found) > 1.73


@given(st.integers(8, 64))
def test_margins_are_kymatio_s(side):
    """Every side is padded to the multiple of 4 that Kymatio pads to, by fewer pixels than it can be reflected."""
    before, after = margins_of(side)
    assert before + side + after == ((side + 4) // 4 + 1) * 4
    assert 2 <= before <= after <= before + 1
    assert after < side


def test_a_grey_channel_and_floats_change_nothing():
    """(h, w, 1) is (h, w); pixels in [0, 1] give what uint8 gives; the scale of the grey values does not matter."""
    plain, channel = open_backbone("scattering", SHAPE), open_backbone("scattering", (*SHAPE, 1))
    features = plain.extract(PICTURES[:3])
    assert channel.digest == plain.digest
    assert channel.extract(PICTURES[:3, :, :, None]).tobytes() == features.tobytes()
    assert plain.extract(PICTURES[:3] / 255.0).tobytes() == features.tobytes()
    assert np.abs(plain.extract(PICTURES[:3].astype(np.float32)) - features).max() < 1e-12


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_a_bad_pixel_spoils_its_own_record_alone(value):
    """A picture with a pixel that is no number becomes NaN, one that overflows has no direction; others keep theirs."""
    backbone, pictures = open_backbone("scattering", SHAPE), PICTURES[:3] / 255.0
    good = backbone.extract(pictures)
    pictures[1, 5, 5] = value
    found = backbone.extract(pictures)
    assert found[[0, 2]].tobytes() == good[[0, 2]].tobytes()
    assert (quantise(found, GRID)[1] == 0).all()
    assert math.isfinite(value) or np.isnan(found[1]).all()


@pytest.mark.parametrize("value", [0, 1, 77, 255])
def test_a_blank_picture_is_zeros(value):
    """A picture of one grey value has no features but zeros: rounding errors are not blown up to length 1."""
    backbone = open_backbone("scattering", (28, 28))
    assert (backbone.extract(np.full((1, 28, 28), value, dtype=np.uint8)) == 0).all()


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ((13,), "random-features:M"),
        ((2, 3, 4, 5), "random-features:M"),
        ((32, 32, 3), "convert them to grey"),
        ((28, 28, 2), "convert them to grey"),
        ((7, 28), "scale them"),
        ((28, 65), "scale them"),
        ((224, 224), "scale them"),
    ],
    ids=str,
)
def test_other_records_are_refused(shape, remedy):
    """Vectors, colour and other sizes are refused in a line that says what it takes and what to do."""
    with pytest.raises(BadInput, match="takes grey pictures of 8 to 64 pixels a side") as refused:
        open_backbone("scattering", shape)
    assert remedy in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_shapes_and_parameters_are_refused():
    """Pictures of another size than it was opened for, and parameters that it has not, are refused."""
    with pytest.raises(BadInput, match="takes inputs of shape"):
        open_backbone("scattering", (28, 28)).extract(PICTURES)
    with pytest.raises(BadInput, match="has the parameters J=2:L=8"):
        open_backbone("scattering:J=3", (28, 28))


def test_a_plan_names_parameters_and_a_digest_of_them():
    """The plan's name holds the parameters, opens the same map, and needs no file; the digest is that of the text."""
    planned = planned_name("scattering")
    text = f"secagg backbone v1: {planned}; {RULE}; 28x28"
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert planned == f"scattering:{PARAMETERS}" == planned_name(planned)
    assert backbone_digest("scattering", (28, 28)) == backbone_digest(planned, (28, 28)) == digest
    assert digest == "ec1d5b0fa6b8dc66ce573736524d9f9756b554d3437b803143ff4b898d67d64d"
    assert backbone_digest("scattering", (28, 27)) != digest
    assert open_backbone(planned, (28, 28), expected_digest=digest).dimension == 729
    assert not needs_files(planned)
    assert planned_name("pixels+scattering") == f"pixels+{planned}"
    assert "photographs" in remark_on(f"pixels+{planned}")
    assert remark_on("pixels+scattering16.pt2") == ""


def test_features_are_kept_by_the_digest(tmp_path, monkeypatch):
    """Opened again, it reads its kept features and computes none; under another rule it computes them again."""
    monkeypatch.setenv("SECAGG_CACHE", str(tmp_path / "kept"))
    seen = []
    for _ in range(2):
        backbone = open_backbone("scattering", SHAPE, progress=lambda *done: seen.append(done))
        assert (
            backbone.extract(PICTURES[:3]).tobytes()
            == replace(backbone, cache=None, progress=None).extract(PICTURES[:3]).tobytes()
        )
    assert seen == [(1, 3), (2, 3), (3, 3)]
    monkeypatch.setattr("secagg.features.scattering.RULE", "another")
    open_backbone("scattering", SHAPE, progress=lambda *done: seen.append(done)).extract(PICTURES[:3])
    assert len(seen) == 6


def test_side_by_side_with_others():
    """It is joined to other backbones, in order, and then expanded."""
    joined = open_backbone("scattering+pixels", SHAPE)
    features = joined.extract(PICTURES[:2])
    assert features.shape == (2, 729 + 192)
    assert features[:, :729].tobytes() == Scattering(SHAPE).extract(PICTURES[:2]).tobytes()
    assert joined.bound(1.0) == math.hypot(Scattering(SHAPE).bound(None), 1.0)
