"""Open a backbone by what the user wrote."""

from __future__ import annotations

from pathlib import Path

from secagg.errors import BadInput
from secagg.features.backbone import Backbone, Identity, Pixels
from secagg.features.expansion import Expansion
from secagg.features.feature_map import FeatureMap
from secagg.features.program import Progress, open_program

FORMS = "features, pixels, random-features:M or a PATH.pt2"


def open_backbone(
    spec: str, input_shape: tuple[int, ...], *, expected_digest: str | None = None, progress: Progress | None = None
) -> Backbone:
    """Open `features` (also `identity`), `pixels`, `random-features:M` or `PATH.pt2` for one record's shape.

    `expected_digest` is the SHA-256 (hex) that the plan pins; a program file is compared with it before it is
    parsed. `progress` is called by programs only. Raises BadInput for an unknown form, a shape the backbone
    does not take, or another digest.
    """
    backbone = _open(spec, input_shape, expected_digest, progress)
    if expected_digest is not None and backbone.digest != expected_digest:
        problem = f"the backbone {spec} on inputs of shape {input_shape} has digest {backbone.digest}"
        raise BadInput(problem, remedy=f"expected {expected_digest}")
    return backbone


def _open(spec: str, shape: tuple[int, ...], expected_digest: str | None, progress: Progress | None) -> Backbone:
    form, _, parameter = spec.partition(":")
    if spec in ("features", "identity"):
        if len(shape) != 1:
            raise BadInput(f"{spec} takes vectors, but a record has shape {shape}", remedy="use pixels for images")
        return Identity(shape[0])
    if spec == "pixels":
        return Pixels(shape)
    if form == "random-features":
        if not (parameter.isascii() and parameter.isdigit()):
            raise BadInput(f"{spec}: M is a number of features", remedy="for example random-features:512")
        return FeatureMap(Pixels(shape), Expansion(int(parameter)))
    if spec.endswith(".pt2"):
        return open_program(Path(spec), shape, expected_digest, progress)
    raise BadInput(f"unknown backbone {spec!r}", remedy=f"give {FORMS}")
