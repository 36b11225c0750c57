"""Networks that users bring as files made by `torch.export`, and that are trained from the weights in the file.

A file is code. A plan names it by its SHA-256 alone, and this process parses none that nobody `admit`ted: whoever
starts a command gives the file itself, after the member's policy (`Policy.programs`) has been asked.

What is refused, by what the program says of itself before any record is seen: layers that look at other records (batch
norm) or draw at random (dropout), tensors of its own that it writes to, memory that nobody has written, numbers that
are no float32. So a record's loss is a function of
that record, of the parameters and of constants in the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features import backbone_digest, programs_in
from secagg.features.program import ProgramFile, first_line, operations, torch_unheard
from secagg.system import plugins
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch
    from torch import Tensor


SUFFIX, PREFIX = ".pt2", "pt2:"
_FILE = re.compile(rf"(?<==)[^\s;=]+{re.escape(SUFFIX)}(?=[\s;]|$)")
"""Pattern of a file in parameters as typed, "model=net.pt2 rounds=3", also inside of one: "fixed=model=net.pt2;clip=1".
"""
DIGEST = re.compile(r"[0-9a-f]{64}")
WHAT = "model"
UNWRITTEN = "empty", "resize"
"""Parts of the names of all operators whose tensors hold what was in memory before."""
CLOSE = 1e-4
"""The most that another record beside it may move a record's scores, relative to the largest: products are rounded."""

_admitted: dict[str, ProgramFile] = {}
_opened: dict[tuple[str, int, int], Exported] = {}


@dataclass(frozen=True, eq=False)
class Exported:
    """A network exported to a file, for records of d numbers and C classes; `weights` (size,) are those in the file.

    A record (d,) enters as the program's own `record_shape`: images with the channels first, though `pixels` has them
    last. It is √d times as long as it was, so that of `centred-unit` records each has mean 0 and variance 1. Parameters
    that the file has frozen (`requires_grad` False) stay as they are. With `one_by_one` it takes one record at a time.
    """

    scale = 1.0  # it has no parameter that would take another, and multiplies by itself
    digest: str
    dimension: int
    classes: int
    record_shape: tuple[int, ...]
    one_by_one: bool
    shapes: Mapping[str, tuple[int, ...]]
    weights: NDArray[np.float64] = field(repr=False)
    module: torch.nn.Module = field(repr=False)

    @property
    def name(self) -> str:
        """The prefix "pt2:" and the SHA-256 of the file."""
        return f"{PREFIX}{self.digest}"

    @property
    def size(self) -> int:
        """The number of entries of all parameters together."""
        return sum(map(math.prod, self.shapes.values()))

    def start(self, seed: bytes) -> NDArray[np.float64]:
        """Return the file's own weights (size,), whatever the seed."""
        return self.weights.copy()

    def logits(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Return the scores (n, C) of records (n, d)."""
        import torch

        records = x * math.sqrt(self.dimension)
        if len(self.record_shape) == 3:
            channels, *places = self.record_shape
            records = records.reshape(-1, *places, channels).permute(0, 3, 1, 2).contiguous()
        else:
            records = records.reshape(-1, *self.record_shape)
        size = 1 if self.one_by_one else len(records)
        some = (records[place : place + size] for place in range(0, len(records), size))
        return torch.cat([torch.func.functional_call(self.module, dict(parameters), (each,)) for each in some])

    def loss(self, parameters: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of the records."""
        from torch.nn import functional

        return functional.cross_entropy(self.logits(parameters, x), labels)


def admit(path: Path) -> str:
    """Register an exported network's file, so that plans may name it; return its name. Raises BadInput."""
    file = ProgramFile.read(path, WHAT)
    _admitted[file.digest] = file
    return f"{PREFIX}{file.digest}"


def planned_programs(parameters: str) -> str:
    """Register each .pt2 file named in a text of method parameters; return the text with digests in place of files.

    Raises BadInput for one that cannot be read.
    """
    return _FILE.sub(lambda found: admit(Path(found[0])), parameters)


def files_in(parameters: str) -> tuple[str, ...]:
    """Return the .pt2 files that a text of method parameters names."""
    return tuple(_FILE.findall(parameters))


def digest_in(name: str) -> str | None:
    """Return the SHA-256 (hex) in the name of an exported network; None for any other name."""
    digest = name.removeprefix(PREFIX)
    return digest if name != digest and DIGEST.fullmatch(digest) else None


def exported_named(name: str, dimension: int, classes: int) -> Exported:
    """Return the exported network of that name, parsed once. Raises BadInput for an unregistered or unusable file."""
    digest = digest_in(name)
    if digest is None:
        raise BadInput(f"there is no program {name!r}", remedy=f"{PREFIX} goes before the SHA-256 of a file")
    if digest not in _admitted:
        problem = f"the program of the SHA-256 {digest} is not at hand, and is code that nobody else sends"
        raise BadInput(problem, remedy="give its file with --model")
    key = digest, dimension, classes
    if key not in _opened:
        _opened[key] = _open(_admitted[digest], dimension, classes)
    return _opened[key]


def _open(file: ProgramFile, dimension: int, classes: int) -> Exported:
    program, module, takes = file.parse()
    called = f"the model {file.path}"
    _refuse_layers(called, program)
    trained = _trained(called, program, module)
    shape = tuple(size for size in takes[1:] if size is not None)
    if len(shape) < len(takes) - 1 or math.prod(shape) != dimension:
        wanted = "×".join("any" if size is None else str(size) for size in takes[1:])
        problem = f"{called} takes records of shape {wanted}, the plan's have {dimension} numbers"
        raise BadInput(problem, remedy="export it for records of this size, of which only the batch is dynamic")
    shapes = {name: tuple(each.shape) for name, each in trained.items()}
    weights = np.concatenate([each.detach().numpy().reshape(-1) for each in trained.values()]).astype(np.float64)
    if not np.isfinite(weights).all():
        raise BadInput(f"{called} has NaN or infinite weights")
    found = Exported(file.digest, dimension, classes, shape, takes[0] == 1, shapes, weights, module)
    _try(called, found, trained)
    return found


def _refuse_layers(called: str, program: torch.export.ExportedProgram) -> None:
    """Raise BadInput where a record's scores would depend on more than the record and the parameters."""
    import torch

    for operator, arguments in operations(program):
        if "batch_norm" in str(operator):
            problem = f"{called} has batch norm ({operator}), by which a record changes what others give"
            raise BadInput(problem, remedy="use group or layer norm")
        drawn = torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())
        if drawn and arguments.get("dropout_p", arguments.get("dropout", 1)):
            problem = f"{called} draws at random ({operator}), so that nobody can say what it gives"
            raise BadInput(problem, remedy="take dropout out of it before torch.export.export")
        if any(word in str(operator) for word in UNWRITTEN):
            problem = f"{called} reads memory that nobody has written ({operator}), where other records may be left"
            raise BadInput(problem, remedy="make it of zeros")
    try:
        with torch_unheard():
            plain = program.run_decompositions({})  # which makes writes visible
    except Exception as error:
        raise BadInput(f"{called} cannot be looked into: {first_line(error)}") from error
    kinds = torch.export.graph_signature.OutputKind
    changed = [each.target for each in plain.graph_signature.output_specs if each.kind is not kinds.USER_OUTPUT]
    if changed:
        named = ", ".join(sorted(str(each) for each in changed))
        raise BadInput(f"{called} changes {named} of its own, which would keep records", remedy="make them constants")


def _trained(
    called: str, program: torch.export.ExportedProgram, module: torch.nn.Module
) -> dict[str, torch.nn.Parameter]:
    """Return the parameters that training moves. Raises BadInput for none, not float32, or one in two places."""
    held: dict[str, Any] = {**program.state_dict, **program.constants}
    tensors = {name: each for name, each in held.items() if hasattr(each, "dtype")}
    for name, each in tensors.items():
        if (each.is_floating_point() or each.is_complex()) and str(each.dtype) != "torch.float32":
            raise BadInput(f"{called} has {name} as {each.dtype}", remedy="export it in float32")
    trained = {name: each for name, each in module.named_parameters() if each.requires_grad and each.numel()}
    if not trained:
        raise BadInput(f"{called} has no parameter to train", remedy="all are frozen: call .requires_grad_() before")
    places = [each.data_ptr() for each in tensors.values()]
    for name, each in trained.items():
        if places.count(each.data_ptr()) > 1:
            raise BadInput(f"{called} has {name} in two places", remedy="untie the weights before the export")
    return trained


def _try(called: str, program: Exported, trained: Mapping[str, Tensor]) -> None:
    """Raise BadInput unless the program scores every record of a batch by itself, with parameters that can move."""
    import torch

    records = torch.linspace(-1, 1, 2 * program.dimension).reshape(2, -1) / math.sqrt(program.dimension)
    try:
        with one_thread():
            alone, beside = (program.logits(trained, rows) for rows in (records[:1], records))
            shapes = tuple(alone.shape), tuple(beside.shape)
    except Exception as error:
        raise BadInput(f"{called} cannot be run on 1 record and on 2: {first_line(error)}") from error
    if shapes != ((1, program.classes), (2, program.classes)) or alone.dtype != torch.float32:
        problem = f"{called} puts out {shapes[0]} of {alone.dtype} for one record"
        raise BadInput(problem, remedy=f"one float32 score for each of {program.classes} classes is wanted")
    if not alone.requires_grad:
        raise BadInput(f"{called} gives scores that no parameter moves", remedy="export it outside of torch.no_grad")
    if not torch.allclose(alone[0], beside[0], rtol=0, atol=CLOSE * float(1 + alone.detach().abs().max())):
        raise BadInput(f"{called} gives a record other scores with another one beside it", remedy="use no batch's mean")


def code_warnings(
    backbones: Iterable[str | None], parameters: Iterable[str] = (), methods: Iterable[str] = ()
) -> Iterator[str]:
    """Yield a warning with the digest of each code file that users give themselves, before any is parsed.

    Raises BadInput for a file that cannot be read.
    """
    for path in dict.fromkeys(path for path in map(plugins.file_in, methods) if path is not None):
        yield plugins.warning_of(path, plugins.admit(path))
    given = [*(file for text in parameters for file in files_in(text)), *backbones]
    for program in dict.fromkeys(part for spec in given for part in programs_in(spec or "")):
        yield plugins.warning_of(program, backbone_digest(program))
