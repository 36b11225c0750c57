"""Backbones without a network, feature maps, and the radius."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secagg.encoding.grid import round_up
from secagg.errors import BadInput
from secagg.features import Expansion, FeatureMap, open_backbone, radius_of
from secagg.features.feature_map import lengths_of

IMAGES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_pixels_are_flat_and_scaled():
    """uint8 pixels are divided by 255; floats in [0, 1] stay."""
    pixels = open_backbone("pixels", (3, 4))
    assert (pixels.extract(IMAGES) == IMAGES.reshape(2, 12) / 255.0).all()
    assert (pixels.extract(IMAGES / 255.0) == IMAGES.reshape(2, 12) / 255.0).all()
    assert pixels.dimension == 12


def test_features_stay():
    """Features pass unchanged, as float64, under both names."""
    features = np.array([[1.5, -2.0]], dtype=np.float32)
    for spec in ("features", "identity"):
        backbone = open_backbone(spec, (2,))
        assert backbone.extract(features).dtype == np.float64
        assert backbone.extract(features).tolist() == [[1.5, -2.0]]


def test_random_features_are_expanded_pixels():
    """`random-features:M` is the pixels' expansion, in values and in digest."""
    backbone = open_backbone("random-features:9", (3, 4))
    other = FeatureMap(open_backbone("pixels", (3, 4)), Expansion(9))
    assert (backbone.extract(IMAGES) == other.extract(IMAGES)).all()
    assert (backbone.digest, backbone.dimension) == (other.digest, 9)
    assert backbone.bound(1.0) == other.bound(1.0) == Expansion(9).bound(12, 1.0)


def test_digest_tells_maps_apart():
    """Different maps, shapes and expansions have different digests; a digest is 64 hex digits."""
    maps = [open_backbone("pixels", shape) for shape in [(3, 4), (4, 3), (34,), (12,)]]
    maps += [open_backbone("features", (12,)), open_backbone("random-features:9", (3, 4)), FeatureMap(maps[0])]
    digests = [each.digest for each in maps]
    assert len(set(digests)) == len(maps) - 1
    assert digests[-1] == digests[0]
    assert all(len(bytes.fromhex(digest)) == 32 for digest in digests)


def test_expected_digest_is_compared():
    """A backbone with another digest than the plan's is refused."""
    digest = open_backbone("pixels", (3, 4)).digest
    assert open_backbone("pixels", (3, 4), expected_digest=digest).digest == digest
    with pytest.raises(BadInput, match="expected"):
        open_backbone("pixels", (4, 3), expected_digest=digest)


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ("resnet", (3, 4)),
        ("features", (3, 4)),
        ("random-features", (3, 4)),
        ("random-features:", (3, 4)),
        ("random-features:0", (3, 4)),
        ("random-features:-1", (3, 4)),
        ("pixels:3", (3, 4)),
        ("absent.pt2", (3, 4)),
    ],
)
def test_unknown_backbone_is_refused(spec, shape):
    """A form that does not exist or does not fit the records is refused."""
    with pytest.raises(BadInput):
        open_backbone(spec, shape)


def test_other_shape_is_refused():
    """Inputs of another shape than the backbone was opened for are refused."""
    with pytest.raises(BadInput, match="takes inputs of shape"):
        open_backbone("pixels", (4, 3)).extract(IMAGES)


rows = arrays(np.float64, st.tuples(st.integers(1, 12), st.just(5)), elements=st.floats(-1e9, 1e9))


@given(rows.filter(lambda features: np.linalg.norm(features, axis=1).max() > 2.0**-100), st.integers(0, 2**32))
def test_radius_covers_every_record_in_any_order(features, seed):
    """The radius is no shorter than any record, hardly longer than the longest, and free of the order."""
    radius = radius_of(features)
    longest = max(math.hypot(*record) for record in features)
    assert longest <= radius <= longest * (1 + 2.0**-6)
    assert radius == radius_of(np.random.default_rng(seed).permutation(features))


def test_radius_is_about_the_centre():
    """The centre is subtracted from every coordinate; bad records do not count."""
    assert radius_of(np.array([[4.0, 5.0], [np.nan, 0.0], [np.inf, 0.0]]), centre=1.0) == round_up(5.0)


@pytest.mark.parametrize("features", [np.zeros((3, 2)), np.zeros((0, 2)), np.full((2, 2), np.nan)])
def test_radius_needs_a_record(features):
    """Without one finite, non-zero record there is no radius."""
    with pytest.raises(BadInput, match="zero"):
        radius_of(features)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e31, 1e200, 1e300, 1e-31, 1e-200])
def test_radius_that_a_head_cannot_undo(scale):
    """Features whose head has no float32 weights are refused, without a warning of overflow, with their length."""
    with pytest.raises(BadInput, match=re.escape(f"has the length {5 * scale:.3g}; scale the features")):
        radius_of(np.array([[3.0, 4.0], [0.0, 1.0]]) * scale)


@pytest.mark.filterwarnings("error")
@given(rows, st.integers(-900, 900))
def test_lengths_scale_exactly(features, exponent):
    """A power of two times the records has that power times the lengths, far beyond where squares overflow."""
    features = np.where(np.abs(features) < 1e-3, 0.0, features)
    assert (lengths_of(np.ldexp(features, exponent)) == np.ldexp(lengths_of(features), exponent)).all()
    assert (lengths_of(features) == np.linalg.norm(features, axis=1)).all()


@given(st.floats(1e-300, 1e300))
def test_round_up_keeps_eight_bits(bound):
    """Rounding up gives a larger number with at most eight significant bits."""
    rounded = round_up(bound)
    assert bound < rounded <= bound * (1 + 2.0**-6)
    assert math.frexp(rounded)[0] * 256 % 1 == 0
