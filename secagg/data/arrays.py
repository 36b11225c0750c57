"""Data sets from arrays: an `.npz` file of `features` or `images` with `labels`, or arrays in memory.

The sizes that an `.npz` states are checked before any of it is expanded. Its keys, where X is `features` or `images`:
  X, labels                                       split 80/20 by the fixed public split
  train_X, train_labels, test_X, test_labels      as they stand; val_* is left aside
  NAME_X, NAME_labels for several NAMEs           domains, each split 80/20; column `domain` holds NAME
Beside them: `scale` ((d,) or scalar; feature = value × scale), `classes` (names, label by label), and further 1-D
arrays with one value per record (same prefix), which become columns. Labels are integers from 0, or the names of
`classes`; without `classes` labels that are text name them, sorted, but where a plan does.
"""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from secagg.data.partition import Split
from secagg.data.records import (
    BAD,
    DOMAIN,
    MAX_CELL,
    UNLABELLED,
    Dataset,
    Faults,
    Kind,
    Records,
    Tolerance,
    bounded,
    concatenate,
)
from secagg.data.table import LabelledFormat
from secagg.encoding.grid import Origin
from secagg.errors import BadInput, describe_error, require_type
from secagg.system.reading import refuse_larger

_SUFFIX = ".npy"
_KINDS = "biufcmMSU"
"""Kinds of numpy arrays that are read: no Python objects (which would be pickles), no structured or void arrays."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Compressions that numpy writes; for others, Python does not bound the memory of one read."""
_LONGEST_READ = 1 << 20
"""Most bytes of the archive's directory, of an array's header, and of one text in an array."""
GLOBAL = ("scale", "classes")
"""Names of arrays that belong to all records of the file, held-out ones included."""
OF_PLANS = ("features", "images", "labels", DOMAIN)
"""Endings of the names of the other arrays that a plan reads."""
_LONGEST_NUMBER = 128
"""Most bytes of a number of a column when it is written as text."""


class _File(io.BufferedReader):
    """A file that refuses to read more than `_LONGEST_READ` bytes at once, whatever the archive's directory says."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LONGEST_READ:
            raise zipfile.BadZipFile
        return super().read(size)


@dataclass(frozen=True)
class _Entry:
    """One array of the archive, of which only the header has been read."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return self.info.filename.removesuffix(_SUFFIX)

    @property
    def bytes_opened(self) -> int:
        """The most bytes that the array takes once it is read: images as they are, numbers as float64.

        The numbers of a list, one for each record, may become text. An empty side counts as one.
        """
        least = 1 if self.dtype == np.uint8 and len(self.shape) > 2 else 8
        if len(self.shape) < 2 and self.dtype.kind != "U":
            least = _LONGEST_NUMBER
        return max(least, self.dtype.itemsize) * math.prod(max(1, side) for side in self.shape)

    @property
    def records(self) -> int:
        """The number of the array's records."""
        return self.shape[0] if self.shape else 0

    @property
    def bytes_of_record(self) -> int:
        """The most bytes of one record once it is read; a text is at most MAX_CELL characters."""
        one = replace(self, shape=(1, *self.shape[1:]))
        return min(one.bytes_opened, 4 * MAX_CELL) if self.is_text else one.bytes_opened

    @property
    def is_text(self) -> bool:
        """Whether the array holds one text for each record."""
        return self.dtype.kind in "US" and len(self.shape) == 1


def load_arrays(path: Path, tolerance: Tolerance | None = None) -> dict[str, NDArray[Any]]:
    """Load the arrays of an `.npz` archive into a dict by name, without ever loading a pickle.

    Other files in the archive are ignored. Where `tolerance` says how many records a plan allows, arrays that no plan
    reads are left aside too, and a text of more than MAX_CELL characters is empty.

    Raises BadInput for what is no such archive, for arrays that would take more bytes than `data_limit`, and for
    damaged ones.
    """
    try:
        with _File(io.FileIO(path)) as file:
            if not zipfile.is_zipfile(file):
                raise BadInput(f"{path} is no .npz archive", remedy="write it with numpy.savez")
            with zipfile.ZipFile(file) as archive, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of headers that Python 2 wrote
                limit = bounded(tolerance)
                entries = [info for info in archive.infolist() if info.filename.endswith(_SUFFIX)]
                names = ((info, info.filename.removesuffix(_SUFFIX)) for info in entries)
                read = [info for info, name in names if limit is None or name in GLOBAL or name.endswith(OF_PLANS)]
                found = [_entry(path, archive, info, limit) for info in read]
                if len({entry.name for entry in found}) < len(found):
                    raise BadInput(f"{path} holds two arrays of one name", remedy="write it with numpy.savez")
                for entry in found:
                    if limit is not None and entry.name not in GLOBAL:
                        limit.refuse_larger(f"{path} [{entry.name}]", entry.records, entry.bytes_of_record)
                whole = (entry for entry in found if limit is None or entry.name in GLOBAL)
                refuse_larger(path, sum(entry.bytes_opened for entry in whole))
                return {entry.name: _read(archive, entry, limit) for entry in found}
    except OSError as error:
        raise BadInput(f"cannot read {path} ({describe_error(error)})") from error
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy have no common ground in what they say of damage
        raise BadInput(f"{path} is a damaged archive", remedy="write it again with numpy.savez") from error


def _entry(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: Tolerance | None) -> _Entry:
    """Read an array's header and compare it with the size that the archive states. Raises BadInput."""
    if info.flag_bits & 1 or info.compress_type not in _COMPRESSIONS:
        problem = f"{path} is encrypted, or compressed as numpy does not"
        raise BadInput(problem, remedy="write it with numpy.savez or numpy.savez_compressed")
    with archive.open(info) as file:
        start = io.BytesIO(file.read(_LONGEST_READ))
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, _, dtype = readers[npy.read_magic(start)](start)
    entry = _Entry(info, shape, dtype)
    if dtype.kind not in _KINDS or (dtype.itemsize > _LONGEST_READ and not (limit is not None and entry.is_text)):
        problem = f"{path} holds arrays of Python objects, or of other things than numbers and text"
        raise BadInput(problem, remedy="save plain numbers and text only")
    if min(shape, default=0) < 0 or start.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
        raise BadInput(f"{path}: an array is not of the size that it says", remedy="write it again with numpy.savez")
    return entry


def _read(archive: zipfile.ZipFile, entry: _Entry, limit: Tolerance | None) -> NDArray[Any]:
    """Read an array; with `limit`, "" stands for texts over 4·MAX_CELL bytes, and only one such text is in memory."""
    texts = []
    with archive.open(entry.info) as file:
        if limit is None or not entry.is_text or entry.dtype.itemsize <= 4 * MAX_CELL:
            return np.asarray(npy.read_array(file, allow_pickle=False))
        file.seek(entry.info.file_size - entry.records * entry.dtype.itemsize)
        for _ in range(entry.records):
            text, rest = file.read(4 * MAX_CELL), entry.dtype.itemsize - 4 * MAX_CELL
            while rest and (part := file.read(min(rest, _LONGEST_READ))):
                text, rest = b"" if part.strip(b"\0") else text, rest - len(part)
            texts.append(text.ljust(4 * MAX_CELL, b"\0"))
    kind = f"{entry.dtype.str[:2]}{MAX_CELL if entry.dtype.kind == 'U' else 4 * MAX_CELL}"
    return np.frombuffer(b"".join(texts), dtype=kind)


def as_text(values: NDArray[Any]) -> NDArray[np.str_]:
    """Return an array's values (n,) as text, with � for each invalid code point."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    text = values.astype(f"<U{max(1, values.dtype.itemsize // 4)}" if values.dtype.kind == "U" else np.str_)
    codes = text.view("<u4")  # numpy keeps whatever numbers stand in the file
    codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))] = ord("�")
    return text


MAX_CLASSES = 65_536
Arrays = Mapping[str, NDArray[Any]]


def open_arrays(path: Path, cut: Split, tolerance: Tolerance | None = None) -> Dataset:
    """Open an `.npz` file as a data set; `cut` divides it into training and test if the file does not.

    Raises BadInput for a layout this module does not describe, BadRecord for a record without `tolerance`.
    """
    arrays = load_arrays(path, tolerance)
    prefixes = [key.removesuffix("labels") for key in arrays if key.endswith("labels")]
    content = {name for name in ("features", "images") if any(prefix + name in arrays for prefix in prefixes)}
    if len(content) != 1:
        remedy = "it needs `features` or `images` beside `labels`, or train_/test_ pairs of them"
        raise BadInput(f"{path} holds {', '.join(sorted(arrays)) or 'no arrays'}", remedy=remedy)
    name, arrays = content.pop(), _with_classes(path, arrays, prefixes, planned=bounded(tolerance) is not None)
    groups = {prefix: _group(path, arrays, prefix, name, tolerant=tolerance is not None) for prefix in prefixes}
    shapes = {group.inputs.shape[1:] for group in groups.values()}
    if len(shapes) != 1:
        raise BadInput(f"{path}: records have different shapes {sorted(shapes)}")
    train, test = _train_and_test(path, groups, cut)
    if "classes" in arrays:
        classes = tuple(as_text(arrays["classes"].reshape(-1)).tolist())
        if len(set(classes)) != len(classes):
            raise BadInput(f"{path} names a class twice", remedy="give each class of `classes` a name of its own")
    else:
        classes = _numbers_to(max(int(group.labels.max(initial=-1)) for group in groups.values()))
    notes: tuple[str, ...] = ()
    if {"train_", "val_"} <= set(groups):
        notes = (f"the file's {len(groups['val_'])} validation records (val_) are left aside",)
    kind: Kind = "images" if name == "images" else "features"
    bound = math.sqrt(math.prod(shapes.pop())) if name == "images" else None
    held_out = test if test is not None and len(test) else None
    is_named = "classes" in arrays
    return Dataset(path.name, kind, train, held_out, classes, bound=bound, is_named=is_named, notes=notes)


def _with_classes(
    path: Path, arrays: dict[str, NDArray[Any]], prefixes: Sequence[str], *, planned: bool
) -> dict[str, NDArray[Any]]:
    """Return the arrays, with the names of labels that are text as `classes`, sorted, where there are none.

    Raises BadInput where some labels are numbers, and under a plan: one record's label must not decide what is refused.
    """
    labels = [arrays[f"{prefix}labels"] for prefix in prefixes]
    texts = [as_text(each.reshape(-1)) for each in labels if each.dtype.kind in "US"]
    if not texts or "classes" in arrays:
        return arrays
    if planned or len(texts) < len(labels):
        problem = f"{path}: {'some ' if len(texts) < len(labels) else ''}labels are text, and the file has no `classes`"
        raise BadInput(problem, remedy="add `classes`, the names of all classes")
    names = np.unique(np.concatenate(texts))
    return {**arrays, "classes": names[names != ""]}


def open_without_labels(path: Path) -> Dataset | None:
    """Open unlabelled `features` or `images` of an `.npz`; None if it has labels. Raises as `open_arrays` does."""
    arrays = load_arrays(path)
    content = [name for name in ("features", "images") if name in arrays]
    if any(key.endswith("labels") for key in arrays) or len(content) != 1 or not arrays[content[0]].ndim:
        return None
    name = content[0]
    unsaid = {**arrays, "labels": np.zeros(len(arrays[name]), dtype=np.int64)}
    records = _group(path, unsaid, "", name, tolerant=False)
    records = replace(records, labels=np.full(len(records), UNLABELLED, dtype=np.int64))
    kind: Kind = "images" if name == "images" else "features"
    return Dataset(path.name, kind, records, None, (), is_named=False)


def _train_and_test(path: Path, groups: dict[str, Records], cut: Split) -> tuple[Records, Records | None]:
    if set(groups) == {""}:
        return cut(groups[""])
    if "train_" in groups:
        if not set(groups) <= {"train_", "val_", "test_"}:
            raise BadInput(f"{path} mixes train_ with the groups {sorted(groups)}")
        return groups["train_"], groups.get("test_")
    if "" in groups or "test_" in groups:
        raise BadInput(f"{path}: cannot tell the training records among the groups {sorted(groups)}")
    pairs = []
    for prefix, group in groups.items():
        domain = np.full(len(group), prefix.removesuffix("_"))
        pairs.append(cut(replace(group, columns={**group.columns, DOMAIN: domain})))
    return concatenate([train for train, _ in pairs]), concatenate([test for _, test in pairs])


def _group(path: Path, arrays: Arrays, prefix: str, name: str, *, tolerant: bool) -> Records:
    """Check and convert the arrays whose names share a prefix; rows count from 1 within each array."""
    if prefix + name not in arrays:
        raise BadInput(f"{path} has {prefix}labels but not {prefix}{name}")
    values = arrays[prefix + name]
    rows = np.arange(1, len(values) + 1) if values.ndim else np.zeros(0, np.int64)
    origin = Origin.of(f"{path} [{prefix}{name}]", rows)
    faults = Faults(origin, tolerant=tolerant)
    given = arrays[prefix + "labels"]
    if given.dtype.kind in "US" and "classes" in arrays:
        known = {each: place for place, each in enumerate(as_text(arrays["classes"].reshape(-1)).tolist())}
        found = [known.get(each, len(known)) for each in as_text(given.reshape(-1)).tolist()]
        given = np.array(found, dtype=np.int64).reshape(given.shape)
    labels = _labels(path, given, prefix, faults)
    if len(labels) == 0 and not tolerant:
        raise BadInput(f"{path}: {prefix}{name} holds no records")
    inputs = _images(path, values, faults) if name == "images" else _features(path, values, arrays.get("scale"), faults)
    if "classes" in arrays:
        names = arrays["classes"].size
        faults.add(labels >= names, f"the label is none of the {names} in `classes`", "mend the label or `classes`")
    columns = {
        key.removeprefix(prefix): as_text(array)
        for key, array in arrays.items()
        if key.startswith(prefix) and key != prefix + "labels" and array.shape == (len(labels),) and key not in GLOBAL
    }
    return Records(inputs, labels, columns, origin).discard(faults.bad)


_QUIET = np.errstate(over="ignore", invalid="ignore")
"""A context without numpy's warnings; a number too large for float64 becomes infinite, a fault of its record."""


def _labels(path: Path, labels: NDArray[Any], prefix: str, faults: Faults) -> NDArray[np.int64]:
    """Return labels as (n,) int64; a negative, missing, fractional or huge label is a fault."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != faults.bad.shape or labels.dtype.kind not in "iuf":
        remedy = f"labels are {len(faults.bad)} integers from 0"
        raise BadInput(f"{path}: {prefix}labels are {labels.dtype} of shape {labels.shape}", remedy=remedy)
    good = _whole(labels)
    faults.add(~good, f"the label is no integer from 0 to {MAX_CLASSES - 1}", "mend or remove the record")
    whole = np.full(len(labels), BAD, dtype=np.int64)
    whole[good] = labels[good]
    return whole


@_QUIET
def _images(path: Path, images: NDArray[Any], faults: Faults) -> NDArray[Any]:
    """Return uint8 images as they are, others as float64 in [0, 1]."""
    if images.ndim < 2 or images.dtype.kind not in "uf" or (images.dtype.kind == "u" and images.dtype != np.uint8):
        remedy = "images are uint8 or float in [0, 1], of shape (n, height, width[, channels])"
        raise BadInput(f"{path}: images are {images.dtype} of shape {images.shape}", remedy=remedy)
    if images.dtype == np.uint8:
        return images
    pixels = images.astype(np.float64)
    good = np.all(((pixels >= 0) & (pixels <= 1)).reshape(len(pixels), -1), axis=1)
    remedy = "scale pixels to [0, 1] or store them as uint8"
    faults.add(~good, "a pixel is outside [0, 1], NaN or infinite", remedy)
    return pixels


@_QUIET
def _features(path: Path, values: NDArray[Any], scale: NDArray[Any] | None, faults: Faults) -> NDArray[np.float64]:
    """Return features (n, d) as float64, multiplied by `scale` if there is one."""
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        remedy = "features are numbers of shape (n, d)"
        raise BadInput(f"{path}: features are {values.dtype} of shape {values.shape}", remedy=remedy)
    features = values.astype(np.float64)
    if scale is not None:
        if scale.shape not in ((), (values.shape[1],)) or scale.dtype.kind not in "iuf":
            raise BadInput(f"{path}: scale is {scale.dtype} of shape {scale.shape}, not a number per feature")
        features *= scale.astype(np.float64)
    good = np.all(np.isfinite(features), axis=1)
    faults.add(~good, "a feature is NaN or infinite", "mend or remove the record")
    return features


NPZ = LabelledFormat(suffixes=(".npz",), called="an .npz", open=open_arrays)


KINDS = "integers from 0, or the classes' names"
REMEDY = "mend or remove the record"


def dataset_of(
    features: Any,
    labels: Any,
    test_features: Any = None,
    test_labels: Any = None,
    classes: Sequence[str] | None = None,
    *,
    tolerant: bool = False,
) -> Dataset:
    """Make a data set of features (n, d) with labels (n,), and of test features (m, d) with labels (m,) if given.

    Labels are integers in 0…C−1 (floats and booleans that are), or names. `classes` names the C classes in order;
    without it they are the training labels' names, sorted, or the numbers up to the largest. Raises BadInput for arrays
    of other shapes or types, and BadRecord, unless `tolerant`, for a feature that is NaN or infinite and for a label
    that is of no class; with it such a record is bad (see `Records`).
    """
    if (test_features is None) != (test_labels is None):
        raise BadInput("test_features and test_labels go together", remedy="give both, or none")
    given = _labels_of("labels", labels)
    if classes is not None:
        require_type("classes", classes, (Sequence, np.ndarray), "the classes' names, in order")
        names = tuple(map(str, classes))
    elif given.dtype.kind == "U":
        names = tuple(np.unique(given).tolist())
    else:
        names = _numbers_to(int(given[_whole(given)].max(initial=-1)))
    train = _records("features", features, given, names, tolerant)
    test = None
    if test_features is not None:
        held_out = _labels_of("test_labels", test_labels)
        test = _records("test_features", test_features, held_out, names, tolerant)
        if test.inputs.shape[1] != train.inputs.shape[1]:
            width = train.inputs.shape[1]
            raise BadInput(f"test_features has {test.inputs.shape[1]} features per record, features has {width}")
    return Dataset("arrays", "features", train, test, names)


def _labels_of(name: str, labels: Any) -> NDArray[Any]:
    """Return labels as floats or as text. Raises BadInput for other types, and for an empty or nested list."""
    given = np.asarray(labels)
    if given.dtype.kind == "O" and all(isinstance(each, str) for each in given.flat):
        given = given.astype(np.str_)
    if given.dtype.kind not in "biufU":
        raise BadInput(f"{name} are of type {given.dtype}", remedy=f"give {KINDS}")
    if given.ndim != 1 or not len(given):
        remedy = "give one label for each record, and one record or more"
        raise BadInput(f"{name} has shape {given.shape}", remedy=remedy)
    return given if given.dtype.kind == "U" else given.astype(np.float64)


def _numbers_to(label: int) -> tuple[str, ...]:
    """Return the names of numbered classes: 0 to `label`, as text."""
    return tuple(map(str, range(label + 1)))


def _whole(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the numeric labels that are integers from 0 to 65,535."""
    return np.asarray((labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels)))


def _records(name: str, inputs: Any, labels: NDArray[Any], names: tuple[str, ...], tolerant: bool) -> Records:
    try:
        features = np.asarray(inputs, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"{name} are no numbers", remedy="give an array (n, d) of numbers") from None
    if features.ndim != 2:
        raise BadInput(f"{name} has shape {features.shape}", remedy="give a row of d numbers for each of n records")
    if len(features) != len(labels):
        called = name.replace("features", "labels")
        raise BadInput(f"{name} holds {len(features)} records, {called} {len(labels)} labels")
    faults = Faults(Origin.of(name, np.arange(1, len(features) + 1)), tolerant=tolerant)
    finite: NDArray[np.bool_] = np.all(np.isfinite(features), axis=1)
    faults.add(~finite, "a feature is NaN or infinite", REMEDY)
    classes = np.full(len(labels), BAD, dtype=np.int64)
    if labels.dtype.kind == "U":
        places = {each: place for place, each in enumerate(names)}
        classes[:] = [places.get(label, BAD) for label in labels.tolist()]
    else:
        whole = _whole(labels)
        faults.add(~whole, f"the label is no integer from 0 to {MAX_CLASSES - 1}", f"labels count from 0; {REMEDY}")
        classes[whole] = np.where(labels[whole] < len(names), labels[whole], BAD)
    unknown = f"the label is none of the {len(names)} classes"
    faults.add(classes == BAD, unknown, f"name every class in `classes`, or {REMEDY}")
    return Records(features, classes, {}, faults.origin).discard(faults.bad)
