"""One exported PyTorch program from a record to its probabilities: backbone, expansion, normalisation and head.

It runs wherever torch does, without this package. Records enter as float32 in the shape that the plan says: images in
[0, 1], tables as the schema encodes them. All but a backbone's own layers computes in float64.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secagg.encoding import Grid, Normalisation
from secagg.encoding.grid import FLAT
from secagg.errors import BadInput, why
from secagg.features import Expansion, FeatureMap
from secagg.features.backbone import Backbone, Concatenation, Identity, Pixels
from secagg.features.expansion import ENTRY_BITS, MANTISSA_BITS, projection_of
from secagg.features.program import Program, first_line, torch_unheard
from secagg.heads import LinearHead
from secagg.heads.linear import SHORTEST, HeadAdapter, Recentring
from secagg.networks import SlotMeans, TrainedModel
from secagg.scoring.predictor import Predictor, probabilities_of
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Step = Callable[..., Any]
"""A tensor of records to another, (n, …) to (n, …)."""
CLOSE = 1e-4
"""How far the program's probabilities may be from this package's own."""
PROBED = 4
"""Random records on which both are compared."""
TEXT = "secagg.json"
"""The file inside a program that says what it is."""


def export_program(predictor: Predictor, path: Path, temperature: float = 1.0) -> None:
    """Write a .pt2 from records (n, …) to probabilities (n, C); behind a backbone's program n is 1, else any.

    The program is compared with the predictor on random records first. Raises BadInput for a backbone or a model that
    has no such form, and where nothing can be written.
    """
    import torch

    steps = [*_steps_of(predictor.feature_map), *_steps_behind(predictor)]
    programs = _programs(predictor.feature_map)
    alone = bool(programs)
    probe = np.random.default_rng(0).uniform(size=(1 if alone else PROBED, *predictor.pipeline.input_shape))
    probe = probe.astype(np.float32)
    shapes = None if alone else ({0: torch.export.Dim.AUTO},)
    try:
        with torch_unheard(), one_thread(), torch.no_grad():
            given = torch.from_numpy(probe)
            whole = _whole(steps, programs, temperature)
            program = torch.export.export(whole, (given,), dynamic_shapes=shapes)
            found = program.module()(given).numpy()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"the head cannot be exported: {first_line(error)}") from error
    if not np.allclose(probabilities_of(predictor.scores(probe), temperature), found, atol=CLOSE):
        raise BadInput("the exported program does not say what the head says", remedy="report this as a fault of ours")
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={TEXT: json.dumps(_text(predictor, alone, temperature))})
    try:
        path.write_bytes(content.getvalue())
    except OSError as error:
        raise BadInput(f"cannot write {path} ({why(error)})") from error


def _text(predictor: Predictor, alone: bool, temperature: float) -> Mapping[str, Any]:
    schema = predictor.pipeline.schema
    return {
        "takes": ["float32", 1 if alone else "any number of records", *predictor.pipeline.input_shape],
        "gives": "probabilities in the order of the classes",
        "classes": predictor.pipeline.classes,
        "temperature": temperature,
        "head_sha256": predictor.model.digest,
        "plan_sha256": predictor.metadata.get("plan"),
        "schema": schema.to_dict() if schema is not None else None,
    }


def _whole(steps: list[Step], programs: list[Any], temperature: float) -> torch.nn.Module:
    """All steps as one module, which owns the backbones' programs so that their weights go along."""
    import torch

    class Whole(torch.nn.Module):
        """Records to probabilities."""

        def __init__(self) -> None:
            super().__init__()
            self.programs = torch.nn.ModuleList(programs)

        def forward(self, records: Tensor) -> Tensor:
            """One step after the other, then the softmax."""
            found = records
            for step in steps:
                found = step(found)
            return torch.softmax(found.double() / temperature, dim=1)

    return Whole().requires_grad_(requires_grad=False)


def _programs(backbone: Backbone) -> list[Any]:
    """The modules of the exported programs in a backbone."""
    if isinstance(backbone, FeatureMap):
        return _programs(backbone.backbone)
    if isinstance(backbone, Concatenation):
        return [module for part in backbone.parts for module in _programs(part)]
    return [backbone.module] if isinstance(backbone, Program) else []


def _steps_of(backbone: Backbone) -> list[Step]:
    """A backbone as steps. Raises BadInput for one that is neither arithmetic nor an exported program."""
    if isinstance(backbone, FeatureMap):
        more = [_expand(backbone.expansion, backbone.backbone.dimension)] if backbone.expansion is not None else []
        return [*_steps_of(backbone.backbone), *more]
    if isinstance(backbone, Concatenation):
        return [partial(_side_by_side, [_steps_of(part) for part in backbone.parts])]
    if isinstance(backbone, Identity | Pixels):
        return [lambda records: records.flatten(1).double()]
    if isinstance(backbone, Program):
        return [partial(_run, backbone.module, backbone.input_shape)]
    problem = f"the backbone {backbone.name} is a library's model, which no exported program holds"
    raise BadInput(problem, remedy="use the head with transformers itself: see methods/TUNING.md")


def _side_by_side(parts: list[list[Step]], records: Tensor) -> Tensor:
    import torch

    found = []
    for steps in parts:
        own = records
        for step in steps:
            own = step(own)
        found.append(own)
    return torch.cat(found, dim=1)


def _run(module: Callable[..., Any], shape: tuple[int, ...], records: Tensor) -> Any:
    """Run a program on one record, images with their channels first and as many as it takes."""
    if len(shape) == 3:
        records = records[:, None] if records.ndim == 3 else records.permute(0, 3, 1, 2)
        records = records.expand(-1, *shape)
    return module(records.contiguous()).flatten(1).double()


def _expand(expansion: Expansion, dimension: int) -> Step:
    """The exact random expansion: every number in it is an integer below 2⁵³, or one times a power of two."""
    import torch

    projection = torch.tensor(projection_of(dimension, expansion.size))

    def expand(features: Tensor) -> Tensor:
        exponent = torch.frexp(features.abs().amax(dim=1, keepdim=True))[1].double()
        integers = torch.round(features * torch.exp2(MANTISSA_BITS - exponent))
        return torch.relu(integers @ projection) * torch.exp2(exponent - MANTISSA_BITS - ENTRY_BITS)

    return expand


def _steps_behind(predictor: Predictor) -> Iterator[Step]:
    """Normalisation, then the head or the model, up to scores."""
    import torch

    model, grid = predictor.model, predictor.pipeline.grid
    if grid.is_normalised:
        yield _normalise(grid, predictor.feature_map.dimension)
    if isinstance(model, TrainedModel):
        if model.reads_inputs:
            problem = "a model inside a library's encoder is exported by that library"
            raise BadInput(problem, remedy="see methods/TUNING.md")
        parameters = {name: torch.tensor(array) for name, array in model.tensors.items()}
        yield lambda features: model.program.logits(parameters, features.float())
    elif isinstance(model, SlotMeans):
        problem = "means of slots are what pictures are made of, and no network"
        raise BadInput(problem, remedy="secagg generate trains a classifier on them, which can be exported")
    else:
        yield from _linear(model)


def _linear(head: LinearHead) -> Iterator[Step]:
    import torch

    if isinstance(head.before, Recentring):
        matrix, centre = (torch.tensor(each).double() for each in head.before.arrays)
        scale = math.sqrt(len(centre) / (len(centre) + 1))
        yield lambda features: torch.nn.functional.normalize(features @ matrix - centre, dim=1, eps=1e-300) * scale
    elif head.before is not None:
        yield _adapter(head.before)
    weight, bias = torch.tensor(head.weight).double(), torch.tensor(head.bias).double()
    yield lambda features: features @ weight.T + bias


def _adapter(adapter: HeadAdapter) -> Step:
    import torch

    layers = [(torch.tensor(weight).double(), torch.tensor(bias).double()) for weight, bias in adapter.layers]
    shorten = partial(torch.nn.functional.normalize, dim=1, eps=SHORTEST)

    def adapt(features: Tensor) -> Tensor:
        found = features
        for weight, bias in layers:
            found = torch.relu(found @ weight.T + bias)
            found = shorten(found) if adapter.kind == "stacked" else found
        return found if adapter.kind == "stacked" else shorten(features + found)

    return adapt


def _normalise(grid: Grid, dimension: int) -> Step:
    """A record's direction on the grid, as `secagg.encoding.inputs_of` gives it; zero for one without any."""
    import torch

    unit, own_mean = grid.unit(dimension), grid.normalisation is Normalisation.CENTRED_UNIT

    def normalise(features: Tensor) -> Tensor:
        scale = features.abs().amax(dim=1, keepdim=True).clamp(min=abs(grid.centre))
        rows = features / scale
        rows = rows - (rows.mean(dim=1, keepdim=True) if own_mean else grid.centre / scale)
        lengths = rows.square().sum(dim=1, keepdim=True).sqrt()
        scaled = torch.round(rows * (unit / lengths))
        good = (lengths > FLAT) & torch.isfinite(scaled).all(dim=1, keepdim=True)
        return torch.where(good, scaled, torch.zeros_like(scaled)) / unit

    return normalise
