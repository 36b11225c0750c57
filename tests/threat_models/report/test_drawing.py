"""Axes, plots and pictures."""

import io
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from secagg.errors import BadInput
from tests.threat_models.report import sample
from threat_models.findings import Curve, Series
from threat_models.report.html import png
from threat_models.report.svg import Axis, curve_svg, interval_svg

fromstring = ElementTree.fromstring  # of what the code under test wrote
FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 2, 1), (7, 3, 3)])
def test_picture_comes_back_from_its_png(shape):
    """Another reader finds the very pixels."""
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with Image.open(io.BytesIO(png(image))) as found:
        assert np.array_equal(np.asarray(found), image.reshape(shape[:2]) if shape[-1] == 1 else image)


@pytest.mark.parametrize(
    "image", [np.zeros((2, 2)), np.zeros((2, 2, 2), np.uint8), np.zeros(3, np.uint8), np.zeros((0, 3, 3), np.uint8)]
)
def test_what_is_no_picture_is_refused(image):
    """Other types, numbers of channels and empty images are named."""
    with pytest.raises(BadInput, match="is no 8-bit image"):
        png(image)


@given(st.lists(FLOATS, max_size=5), st.booleans())
def test_axis_shows_its_values_and_few_ticks(values, logarithmic):
    """Every value that can be shown lies inside, in order, and there are two to eight ticks, all inside."""
    axis = Axis.over(values, logarithmic, 10, 100)
    shown = sorted(value for value in values if value > 0 or not logarithmic)
    places = [axis.place(value) for value in shown]
    assert places == sorted(places)
    assert all(axis.low * (1 - 1e-9) <= value or axis.low <= value <= axis.high for value in shown)
    assert 2 <= len(axis.ticks()) <= 8
    assert all(10 <= axis.place(tick) <= 110 for tick in axis.ticks())


def test_axis_of_shares_goes_from_zero_to_one():
    """Rates are drawn on the whole scale, so that nothing looks larger than it is."""
    axis = Axis.over([0.4, 0.6], False, 0, 100)
    assert (axis.low, axis.high, axis.ticks()) == (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_logarithmic_axis_has_decades():
    """From 0.002 to 0.9: 0.001 to 1, equally far apart."""
    axis = Axis.over([0.002, 0.9, 0.0], True, 0, 90)
    assert [axis.place(tick) for tick in axis.ticks()] == pytest.approx([0, 30, 60, 90])
    assert axis.place(0.0) is None
    assert axis.place(math.nan) is None


def points(svg, kind):
    """The coordinates of each line or area."""
    return [
        [tuple(map(float, pair.split(","))) for pair in one.get("points").split()] for one in fromstring(svg).iter(kind)
    ]


def test_curve_is_drawn_where_its_points_are():
    """(0, 0) lies at the lower left of the frame, (1, 1) at the upper right."""
    curve = Curve("t", "x", "y", (Series("s", (0.0, 1.0), (0.0, 1.0)),))
    assert points(curve_svg(curve), "polyline") == [[(64.0, 254.0), (544.0, 12.0)]]


def test_curve_on_logarithmic_axes_leaves_zero_out():
    """What has no logarithm is not drawn, and its lower limit is the bottom."""
    curve = Curve(
        "t", "x", "y", (Series("s", (0.0, 0.1, 1.0), (0.0, 0.1, 1.0), (0.0, 0.0, 0.5), (0.1, 0.5, 1.0)),), True
    )
    svg = curve_svg(curve)
    assert len(points(svg, "polyline")[0]) == 2
    assert len(points(svg, "polygon")[0]) == 4


def test_plot_names_all_its_lines():
    """Title, axes and the legend are text; the ceiling is black and dashed."""
    svg = fromstring(curve_svg(sample.roc()))
    text = {element.text for element in svg.iter() if element.text}
    curve = sample.roc()
    assert {curve.title, curve.x_label, curve.y_label, *(line.name for line in curve.series)} <= text
    ceiling = list(svg.iter("polyline"))[2]
    assert (ceiling.get("stroke"), ceiling.get("stroke-dasharray")) == ("#222222", "7 4")


@pytest.mark.parametrize("values", [(), (math.nan,), (math.inf,), (0.0,), (5.0,)])
@pytest.mark.parametrize("logarithmic", [True, False])
def test_odd_curves_are_drawn_without_complaint(values, logarithmic):
    """No point, one point, or numbers that cannot be shown."""
    fromstring(curve_svg(Curve("t", "x", "y", (Series("s", values, values),), logarithmic)))


def test_interval_has_its_references():
    """Bar, value, baseline and ceiling are drawn; what is no share is not."""
    whole = fromstring(interval_svg(sample.measure("m", 0.5, 0.4, 0.6, baseline=0.1, ceiling=0.9)))
    assert len(list(whole.iter("line"))) == 4
    assert len(list(whole.iter("circle"))) == 1
    assert interval_svg(sample.measure("m", 9.0, 8.0, 10.0)) == ""
    assert interval_svg(sample.measure("m", math.nan, math.nan, math.nan)) == ""
