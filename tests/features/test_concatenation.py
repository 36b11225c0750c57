"""Several backbones side by side: order, digest, bound, and nothing parsed before the digest agrees."""

import hashlib
import math

import numpy as np
import pytest

from secagg.errors import BadInput
from secagg.features import backbone_digest, open_backbone
from secagg.features.backbone import digest_of
from secagg.features.opening import planned_name

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
SHAPE = (8, 8, 3)


def test_features_stand_side_by_side_in_order(program):
    """The features are the parts' own, in the order of the names; the dimension is their sum."""
    a, b = str(program("a.pt2")), str(program("b.pt2", features=4))
    parts = [open_backbone(spec, SHAPE).extract(IMAGES) for spec in (a, b, "pixels")]
    together = open_backbone(f"{a}+{b}+pixels", SHAPE)
    assert (together.extract(IMAGES) == np.hstack(parts)).all()
    assert (together.dimension, together.name) == (6 + 4 + 192, "a.pt2+b.pt2+pixels")


def test_row_depends_on_its_record_alone(program):
    """Alone or in a batch a record gives the same bits."""
    backbone = open_backbone(f"{program()}+random-features:64", SHAPE)
    together = backbone.extract(IMAGES)
    for index, record in enumerate(IMAGES):
        assert (backbone.extract(record[None])[0] == together[index]).all()


def test_digest_is_over_the_digests_in_order(program):
    """The digest names every part and their order; of one part it is that part's own."""
    a, b = program("a.pt2"), program("b.pt2", features=4)
    files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (a, b)]
    expected = digest_of(f"secagg concatenation v1: {files[0]} {files[1]}")
    assert backbone_digest(f"{a}+{b}") == open_backbone(f"{a}+{b}", SHAPE).digest == expected
    assert backbone_digest(str(a)) == files[0]
    specs = [f"{a}+{b}", f"{b}+{a}", f"{a}+{a}", f"{a}+{b}+pixels", f"{a}", f"{a}+pixels", f"{a}+random-features:192"]
    assert len({backbone_digest(spec, SHAPE) for spec in specs}) == len(specs)


def test_bound_needs_every_part(program):
    """The bound is the length of the parts' bounds, and there is none when one part has none."""
    expanded = open_backbone("random-features:9", (3, 4)).bound(1.0)
    assert open_backbone("pixels+random-features:9", (3, 4)).bound(1.0) == math.hypot(1.0, expanded)
    assert open_backbone("pixels+random-features:9", (3, 4)).bound(None) is None
    assert open_backbone(f"pixels+{program()}", SHAPE).bound(1.0) is None


def test_length_of_features_keeps_the_bound():
    """No concatenated record is longer than the public bound."""
    backbone = open_backbone("pixels+random-features:9", SHAPE)
    lengths = np.linalg.norm(backbone.extract(IMAGES), axis=1)
    assert lengths.max() <= backbone.bound(math.sqrt(192))


@pytest.mark.parametrize("wrong", ["order", "first", "second"])
def test_other_digest_is_refused_before_any_part_is_parsed(program, tmp_path, monkeypatch, wrong):
    """When one file or the order differs from what the plan pins, no file is parsed, the right one neither."""
    import torch

    a, b = program("a.pt2"), program("b.pt2", features=4)
    expected = backbone_digest(f"{a}+{b}")
    evil = tmp_path / "evil.pt2"
    evil.write_bytes(b"anything")
    spec = {"order": f"{b}+{a}", "first": f"{evil}+{b}", "second": f"{a}+{evil}"}[wrong]
    monkeypatch.setattr(torch.export, "load", lambda *_: pytest.fail("parsed"))
    with pytest.raises(BadInput, match="nothing in the file was run"):
        open_backbone(spec, SHAPE, expected_digest=expected)


def test_progress_counts_all_programs_once(program):
    """The bar goes from nothing to all over the programs together; cheap parts take no share."""
    seen = []
    spec = f"{program('a.pt2')}+pixels+{program('b.pt2')}"
    open_backbone(spec, SHAPE, progress=lambda *done: seen.append(done)).extract(IMAGES)
    assert seen == [(done, 8) for done in range(1, 9)]


def test_plan_names_files_without_folders():
    """A plan's name for a backbone holds no folder of the planner's machine."""
    assert planned_name("/home/a/x.pt2") == "x.pt2"
    assert planned_name("/home/a/x.pt2+pixels+../y.pt2") == "x.pt2+pixels+y.pt2"
    assert planned_name("random-features:64") == "random-features:64"


@pytest.mark.parametrize("spec", ["pixels+", "+pixels", "+", "pixels+resnet", "pixels+absent.pt2", "pixels+features"])
def test_part_that_is_none_is_refused(spec):
    """Every part must be a backbone that takes the records."""
    with pytest.raises(BadInput):
        open_backbone(spec, SHAPE)


@pytest.mark.parametrize("spec", ["pixels", "features", "random-features:4"])
def test_digest_without_shape_is_for_programs(spec):
    """What is no program has a digest for one shape of records only."""
    with pytest.raises(BadInput, match="depends on the shape"):
        backbone_digest(spec)
    assert len(backbone_digest(spec, (12,))) == 64
