"""Export a predictor as one PyTorch program from records to probabilities: backbone, expansion, normalisation, head.

It runs wherever torch does, without this package. Records enter as float32 in the shape that the plan says: images in
[0, 1], tables as the schema encodes them. All but a backbone's own layers computes in float64.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secagg.encoding import Grid, Normalisation
from secagg.encoding.grid import FLAT
from secagg.errors import BadInput, describe_error
from secagg.features import Expansion, FeatureMap
from secagg.features.backbone import Backbone, Concatenation, PlainInputs
from secagg.features.expansion import ENTRY_BITS, MANTISSA_BITS, projection_of
from secagg.features.program import FrozenNetwork, first_line, torch_unheard
from secagg.heads.linear import SHORTEST, HeadAdapter, Recentring
from secagg.networks import SlotMeans, TrainedModel
from secagg.scoring.predictor import Predictor, probabilities_of
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Step = Callable[..., Any]
"""A function from a tensor of n records (n, …) to another tensor of n rows (n, …)."""
CLOSE = 1e-4
"""Largest allowed difference between the program's probabilities and the predictor's."""
PROBED = 4
"""Number of random records on which the program and the predictor are compared."""
TEXT = "secagg.json"
"""Name of the file inside an exported program that describes the program."""


def export_program(predictor: Predictor, path: Path, temperature: float = 1.0) -> None:
    """Export a predictor to a .pt2 file, a PyTorch program from records (n, …) to probabilities (n, C).

    n is 1 with a backbone's program, else any. The program is compared with the predictor on random records first.
    Raises BadInput for a backbone or a model that has no such form, and where nothing can be written.
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
    schema = predictor.pipeline.schema
    text = {
        "takes": ["float32", 1 if alone else "any number of records", *predictor.pipeline.input_shape],
        "gives": "probabilities in the order of the classes",
        "classes": predictor.pipeline.classes,
        "temperature": temperature,
        "head_sha256": predictor.model.digest,
        "plan_sha256": predictor.metadata.get("plan"),
        "schema": schema.to_dict() if schema is not None else None,
    }
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={TEXT: json.dumps(text)})
    try:
        path.write_bytes(content.getvalue())
    except OSError as error:
        raise BadInput(f"cannot write {path} ({describe_error(error)})") from error


def _whole(steps: list[Step], programs: list[Any], temperature: float) -> torch.nn.Module:
    """Return one module of all steps and a softmax; it owns the backbones' programs, to export their weights too."""
    import torch

    class Whole(torch.nn.Module):
        def forward(self, records: Tensor) -> Tensor:
            return torch.softmax(_through(steps, records).double() / temperature, dim=1)

    whole = Whole()
    whole.programs = torch.nn.ModuleList(programs)
    return whole.requires_grad_(requires_grad=False)


def _programs(backbone: Backbone) -> list[Any]:
    """Return the modules of the exported programs that a backbone consists of."""
    if isinstance(backbone, FeatureMap):
        return _programs(backbone.backbone)
    if isinstance(backbone, Concatenation):
        return [module for part in backbone.parts for module in _programs(part)]
    return [backbone.module] if isinstance(backbone, FrozenNetwork) else []


def _through(steps: list[Step], records: Tensor) -> Any:
    return reduce(lambda found, step: step(found), steps, records)


def _steps_of(backbone: Backbone) -> list[Step]:
    """Return a backbone as steps. Raises BadInput unless it consists of arithmetic and exported programs."""
    import torch

    if isinstance(backbone, FeatureMap):
        more = [_expand(backbone.expansion, backbone.backbone.dimension)] if backbone.expansion is not None else []
        return [*_steps_of(backbone.backbone), *more]
    if isinstance(backbone, Concatenation):
        parts = [_steps_of(part) for part in backbone.parts]
        return [lambda records: torch.cat([_through(steps, records) for steps in parts], dim=1)]
    if isinstance(backbone, PlainInputs):
        return [lambda records: records.flatten(1).double()]
    if isinstance(backbone, FrozenNetwork):
        return [partial(_run, backbone.module, backbone.input_shape)]
    problem = f"the backbone {backbone.name} is a library's model, which no exported program holds"
    raise BadInput(problem, remedy="use the head with transformers itself: see methods/TUNING.md")


def _run(module: Callable[..., Any], shape: tuple[int, ...], records: Tensor) -> Any:
    """Run a backbone's program on one record; an image's channels come first, repeated to the number that it takes."""
    if len(shape) == 3:
        records = records[:, None] if records.ndim == 3 else records.permute(0, 3, 1, 2)
        records = records.expand(-1, *shape)
    return module(records.contiguous()).flatten(1).double()


def _expand(expansion: Expansion, dimension: int) -> Step:
    """Return the step of the random expansion; it is exact, as its numbers are integers < 2⁵³ times powers of two."""
    import torch

    projection = torch.tensor(projection_of(dimension, expansion.size))

    def expand(features: Tensor) -> Tensor:
        exponent = torch.frexp(features.abs().amax(dim=1, keepdim=True))[1].double()
        integers = torch.round(features * torch.exp2(MANTISSA_BITS - exponent))
        return torch.relu(integers @ projection) * torch.exp2(exponent - MANTISSA_BITS - ENTRY_BITS)

    return expand


def _steps_behind(predictor: Predictor) -> Iterator[Step]:
    """Yield the steps behind the backbone: normalisation, then the head or the model, up to the scores."""
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
        if isinstance(model.before, Recentring):
            matrix, centre = (torch.tensor(each).double() for each in model.before.arrays)
            scale = math.sqrt(len(centre) / (len(centre) + 1))
            yield lambda features: torch.nn.functional.normalize(features @ matrix - centre, dim=1, eps=1e-300) * scale
        elif model.before is not None:
            yield _adapter(model.before)
        weight, bias = torch.tensor(model.weight).double(), torch.tensor(model.bias).double()
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
    """Return the step that normalises features as `secagg.encoding.inputs_of` does; a zero vector stays zero."""
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
