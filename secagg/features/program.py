"""Backbones as exported PyTorch programs (`.pt2`), identified by the SHA-256 of the file.

A program file is code: its digest is compared with the expected one before torch parses a byte.
Records run one at a time on one thread, so a feature vector cannot depend on its batch.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput, describe_error
from secagg.features.accelerator import BATCH, Accelerator, repeatable
from secagg.features.backbone import Features, Progress, row_by_row
from secagg.features.cache import FeatureCache, recall
from secagg.system.engines import Engine
from secagg.system.engines.interface import Arrays
from secagg.system.reading import read_limited, refuse_larger
from secagg.system.threads import one_thread

if TYPE_CHECKING:
    import torch

log = logging.getLogger("secagg.features")
AT_ONCE = 128
"""Most records of one task of a process that extracts features."""
TRAINING = ("train", "training")
"""Names of the argument of operators that switches between training and evaluation."""
EVALUATION = "call .eval() on the network before torch.export.export"
REMEDY = "make it with `secagg backbone export` or torch.export.save"


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A frozen network loaded from an exported program: float32 (1, …) in, (1, d) out.

    Images enter as float32 in [0, 1], channels first; grey ones are repeated when the program takes three
    channels. Any normalisation belongs inside the program. An `engine` extracts in its processes, which each open the
    file's `content`, or on a graphics card (`Accelerator`): then `digest` is not the file's.
    """

    name: str
    digest: str
    dimension: int
    module: Callable[..., Any]
    input_shape: tuple[int, ...]
    progress: Progress | None = None
    cache: FeatureCache | None = None
    notes: tuple[str, ...] = ()
    engine: Engine | Accelerator | None = None
    content: bytes = field(default=b"", repr=False)

    def extract(self, inputs: NDArray[Any]) -> Features:
        """Map inputs (n, …) to features (n, d) float64. Raises BadInput if the program fails on them."""
        return recall(self.cache, self.digest, inputs, self.dimension, lambda: self._run_all(inputs))

    def _run_all(self, inputs: NDArray[Any]) -> Features:
        """Extract features, those of many records in the engine's processes; they are the same in any process."""
        if isinstance(self.engine, Accelerator):
            return self.engine.extract(inputs, self.dimension, self._prepared, self._run, self.progress)
        if self.engine is None or len(inputs) <= AT_ONCE:
            return row_by_row(inputs, self.dimension, self._extract_one, self.progress)
        features, done = np.empty((len(inputs), self.dimension)), 0
        with self.engine.open() as shelf:
            shelf.put("program", np.frombuffer(self.content, dtype=np.uint8))
            shelf.put("inputs", inputs)
            context = self.name, self.digest, inputs.shape[1:]
            for start, rows in shelf.run(_extract_rows, context, range(0, len(inputs), AT_ONCE)):
                features[start : start + AT_ONCE] = rows
                done += len(rows)
                if self.progress is not None:
                    self.progress(done, len(inputs))
        return features

    def _extract_one(self, record: NDArray[Any]) -> Features:
        return self._run(self._prepared(record)[None]).reshape(-1)

    def _run(self, records: NDArray[np.float32]) -> Features:
        device = self.engine.device if isinstance(self.engine, Accelerator) else "cpu"
        return _run(self.module, records, self.name, device)

    def _prepared(self, record: NDArray[Any]) -> NDArray[np.float32]:
        """Return one record as the program takes it: float32, images in [0, 1] with channels first."""
        values = record.astype(np.float32) / np.float32(255 if record.dtype == np.uint8 else 1)
        if len(self.input_shape) == 3:
            channels_first = values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)
            values = np.array(np.broadcast_to(channels_first, self.input_shape), order="C")
        return values

    def bound(self, _input_bound: float | None, /) -> float | None:
        """Return None, as no public bound is known for a network's output."""
        return None


@dataclass(frozen=True)
class ProgramFile:
    """The unparsed bytes of a `.pt2` file; `what` names it in error messages."""

    path: Path
    content: bytes = field(repr=False)
    what: str = "backbone"

    @classmethod
    def read(cls, path: Path, what: str = "backbone") -> ProgramFile:
        """Read the file once, so that the bytes parsed are those whose digest is checked. Raises BadInput."""
        try:
            return cls(path, read_limited(path), what)
        except OSError as error:
            raise BadInput(f"cannot read the {what} {path} ({describe_error(error)})") from error

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the file."""
        return hashlib.sha256(self.content).hexdigest()

    def parse(self) -> tuple[torch.export.ExportedProgram, torch.nn.Module, tuple[int | None, ...]]:
        """Parse the file with torch; return program, module, and input shape (batch, …) with None for any dynamic size.

        The caller trusts the digest. Raises BadInput for what is no exported program of one input, or says that it
        takes more bytes than `data_limit` once expanded.
        """
        import torch

        called = f"the {self.what} {self.path}"
        try:
            with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
                expanded = sum(entry.file_size for entry in archive.infolist())
        except Exception as error:
            problem = f"{called} is no exported program: it is no archive, or a damaged one"
            raise BadInput(problem, remedy=REMEDY) from error
        refuse_larger(called, expanded)
        with torch_unheard() as logged:
            try:
                program = torch.export.load(io.BytesIO(self.content))
                module, takes = program.module(), _input_of(program)
            except Exception as error:
                cause = first_line(logged[0] if logged else error)  # torch goes on behind the first, in an older format
                raise BadInput(f"{called} is no exported program: {cause}", remedy=REMEDY) from error
        if takes is None or takes[0] not in (1, None):
            problem = "more than one input" if takes is None else f"batches of {takes[0]} only"
            remedy = "export it with one input, a batch of 1 or a dynamic batch dimension"
            raise BadInput(f"{called} takes {problem}", remedy=remedy)
        return program, module, takes

    def open(
        self,
        input_shape: tuple[int, ...],
        cache: FeatureCache | None,
        progress: Progress | None = None,
        engine: Engine | Accelerator | None = None,
    ) -> FrozenNetwork:
        """Parse the program for records of shape (…) and return the backbone; the caller must have checked its digest.

        Raises BadInput when it is no exported program, takes another batch size or shape, does not put out one
        vector per record, or is one in training mode: a record's features would not be its own, or not always the same.
        """
        path, digest, device, count = self.path, self.digest, "cpu", 1
        program, module, takes = self.parse()
        if isinstance(engine, Accelerator):
            if takes[0] is not None:
                raise BadInput(f"the backbone {path} takes one record at a time", remedy="leave out --device")
            digest, device, count = engine.digest_of(digest), engine.device, BATCH
            with refusing_failures(f"cannot move the backbone {path} to {device}", remedy="leave out --device"):
                module = engine.module_of(program)
        for operator, arguments in operations(program):  # in training some draw at random, or look at other records
            for name, value in arguments.items():
                if (name in TRAINING and value is True) or (name == "dropout_p" and value):
                    problem = f"the backbone {path} was exported in training mode ({operator} has {name}={value})"
                    raise BadInput(problem, remedy=EVALUATION)
        shape = _matching_shape(path, input_shape, takes[1:])
        probe = np.linspace(0, 1, math.prod(shape), dtype=np.float32).reshape(shape)
        copies = np.repeat(probe[None], count, axis=0)
        beside = np.concatenate([copies[:1], 1 - copies[1:-1] / 2, 0 * copies[1:]])[:count]  # others, then zeros
        with one_thread():
            runs = [_run(module, copies, path.name, device), _run(module, beside, path.name, device)[:1]]
        once = runs[0][:1]
        if len({row.tobytes() for rows in runs for row in rows}) > 1:
            raise BadInput(f"the backbone {path} gives one record two different features", remedy=EVALUATION)
        places = "×".join(map(str, once.shape[1:]))
        note = f"the backbone {path.name} puts out a map of {places}, taken as {once.size} features; a mean over places"
        notes: tuple[str, ...] = () if once.ndim == 2 else (f"{note} has fewer",)
        if isinstance(engine, Accelerator):
            notes += (engine.note,)
        how = (progress, cache, notes, engine, self.content)
        return FrozenNetwork(path.name, digest, once.size, module, shape, *how)


_opened: dict[str, FrozenNetwork] = {}
"""Programs that this process has parsed, by digest."""


def _extract_rows(program: tuple[str, str, tuple[int, ...]], arrays: Arrays, start: int) -> Features:
    """Return the features of up to AT_ONCE records from `start`; `program` is name, digest and a record's shape."""
    name, digest, input_shape = program
    if digest not in _opened:
        _opened[digest] = ProgramFile(Path(name), arrays["program"].tobytes()).open(input_shape, None)
    return _opened[digest].extract(arrays["inputs"][start : start + AT_ONCE])


def operations(program: torch.export.ExportedProgram) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield each operator that a program calls, branches included, with its arguments by name (if torch knows them)."""
    import torch

    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            found = node.normalized_arguments(module, normalize_to_only_use_kwargs=True)
            if node.op == "call_function":
                yield node.target, found.kwargs if found is not None else {}


@contextmanager
def torch_unheard() -> Iterator[list[BaseException]]:
    """Silence torch's own tracebacks and warnings, unless debug logging is on; yield a list of logged exceptions."""
    if log.isEnabledFor(logging.DEBUG):
        yield []
        return
    logged: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        logged.extend(filter(None, (record.exc_info or ())[1:2]))
        return False

    loggers = [each for name, each in logging.root.manager.loggerDict.items() if name.partition(".")[0] == "torch"]
    handlers = [handler for each in loggers if isinstance(each, logging.Logger) for handler in each.handlers]
    for handler in handlers:
        handler.addFilter(keep)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield logged
    finally:
        for handler in handlers:
            handler.removeFilter(keep)


def _input_of(program: torch.export.ExportedProgram) -> tuple[int | None, ...] | None:
    """Return the input's shape with None for a dynamic size; None unless there is exactly one tensor."""
    names = program.graph_signature.user_inputs
    nodes = [node for node in program.graph.nodes if node.name in names and node.op == "placeholder"]
    if len(nodes) != 1 or len(names) != 1 or not hasattr(nodes[0].meta["val"], "shape"):
        return None
    shape = tuple(size if isinstance(size, int) else None for size in nodes[0].meta["val"].shape)
    return shape or None


def _matching_shape(path: Path, shape: tuple[int, ...], takes: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the shape of one record as the program takes it. Raises BadInput when no shape fits."""
    offers = [shape]
    if len(takes) == 3 and len(shape) == 2:
        offers = [(1, *shape), (3, *shape)]
    elif len(takes) == 3 and len(shape) == 3:
        offers = [(shape[2], *shape[:2])] if shape[2] != 1 else [(1, *shape[:2]), (3, *shape[:2])]
    for offer in offers:
        if len(offer) == len(takes) and all(want in (None, have) for have, want in zip(offer, takes, strict=True)):
            return offer
    wanted = tuple("any" if size is None else size for size in takes)
    remedy = "resize the images or export the program for this size"
    raise BadInput(f"the backbone {path} takes records of shape {wanted}, the data set has {shape}", remedy=remedy)


def _run(module: Callable[..., Any], records: NDArray[np.float32], name: str, device: str) -> Features:
    """Run the program on records (n, …), one or a batch, and return its output (n, …). Raises BadInput."""
    import torch

    count = len(records)
    try:
        with torch.inference_mode(), repeatable(device):
            output = module(torch.from_numpy(records).to(device))
        vectors = np.asarray(output.detach().cpu().numpy(), dtype=np.float64)
    except Exception as error:
        remedy = "leave out --device" if count > 1 else "export it for a batch of 1 or a dynamic batch dimension"
        problem = f"the backbone {name} refuses a batch of {count}: {first_line(error)}"
        raise BadInput(problem, remedy=remedy) from error
    if vectors.ndim < 2 or vectors.shape[0] != count:
        raise BadInput(f"the backbone {name} puts out {vectors.shape} for a batch of {count} instead of ({count}, d)")
    return vectors


@contextmanager
def refusing_failures(problem: str, remedy: str = "") -> Iterator[None]:
    """Turn every exception of a library into BadInput with this problem and remedy; BadInput itself passes."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{problem}: {first_line(error)}", remedy=remedy) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its class's name if it is empty."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
