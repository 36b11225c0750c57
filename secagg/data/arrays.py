"""`.npz` files: `features` or `images` with `labels`, alone, as train/test pairs, or per domain.

Keys, where X is `features` or `images`:
  X, labels                                       split 80/20 by the fixed public split
  train_X, train_labels, test_X, test_labels      as they stand; val_* is left aside
  NAME_X, NAME_labels for several NAMEs           domains, each split 80/20; column `domain` holds NAME
Beside them: `scale` ((d,) or scalar; feature = value × scale), `classes` (names, label by label), and further 1-D
arrays with one value per record (same prefix), which become columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data.archive import GLOBAL, as_text, load_arrays
from secagg.data.faults import Faults, Tolerance
from secagg.data.format import LabelledFormat
from secagg.data.records import BAD, UNLABELLED, Dataset, Kind, Records, concatenate
from secagg.data.split import Split
from secagg.encoding.grid import Origin
from secagg.errors import BadInput

MAX_CLASSES = 65_536
Arrays = Mapping[str, NDArray[Any]]


def open_arrays(path: Path, cut: Split, tolerance: Tolerance | None = None) -> Dataset:
    """Open an `.npz` data set; `cut` divides records that the file itself does not divide.

    Raises BadInput for a layout this module does not describe, BadRecord for a record without `tolerance`.
    """
    arrays = load_arrays(path, tolerance)
    prefixes = [key.removesuffix("labels") for key in arrays if key.endswith("labels")]
    content = {name for name in ("features", "images") if any(prefix + name in arrays for prefix in prefixes)}
    if len(content) != 1:
        remedy = "it needs `features` or `images` beside `labels`, or train_/test_ pairs of them"
        raise BadInput(f"{path} holds {', '.join(sorted(arrays)) or 'no arrays'}", remedy=remedy)
    name = content.pop()
    groups = {prefix: _group(path, arrays, prefix, name, tolerant=tolerance is not None) for prefix in prefixes}
    shapes = {group.inputs.shape[1:] for group in groups.values()}
    if len(shapes) != 1:
        raise BadInput(f"{path}: records have different shapes {sorted(shapes)}")
    train, test = _train_and_test(path, groups, cut)
    return Dataset(
        name=path.name,
        kind="images" if name == "images" else "features",
        train=train,
        test=test if test is not None and len(test) else None,
        classes=_classes(path, arrays, list(groups.values())),
        schema=None,
        bound=math.sqrt(math.prod(shapes.pop())) if name == "images" else None,
        parts=None,
        is_named="classes" in arrays,
        notes=_set_aside(groups) if "train_" in groups else (),
    )


def _set_aside(groups: dict[str, Records]) -> tuple[str, ...]:
    """That there are validation records, which nothing here trains or is measured on."""
    if "val_" not in groups:
        return ()
    return (f"the file's {len(groups['val_'])} validation records (val_) are left aside",)


def open_without_labels(path: Path) -> Dataset | None:
    """Open `features` or `images` that stand alone; None where the file has labels. Raises as `open_arrays` does."""
    arrays = load_arrays(path)
    content = [name for name in ("features", "images") if name in arrays]
    if any(key.endswith("labels") for key in arrays) or len(content) != 1 or not arrays[content[0]].ndim:
        return None
    name = content[0]
    unsaid = {**arrays, "labels": np.zeros(len(arrays[name]), dtype=np.int64)}
    records = _group(path, unsaid, "", name, tolerant=False)
    records = replace(records, labels=np.full(len(records), UNLABELLED, dtype=np.int64))
    kind: Kind = "images" if name == "images" else "features"
    return Dataset(path.name, kind, records, None, (), schema=None, bound=None, parts=None, is_named=False)


def _train_and_test(path: Path, groups: dict[str, Records], cut: Split) -> tuple[Records, Records | None]:
    """Pair, split or pool the groups, by their prefixes."""
    if set(groups) == {""}:
        return cut(groups[""])
    if "train_" in groups:
        if not set(groups) <= {"train_", "val_", "test_"}:
            raise BadInput(f"{path} mixes train_ with the groups {sorted(groups)}")
        return groups["train_"], groups.get("test_")
    if "" in groups or "test_" in groups:
        raise BadInput(f"{path}: cannot tell the training records among the groups {sorted(groups)}")
    pairs = [cut(_with_domain(group, prefix.removesuffix("_"))) for prefix, group in groups.items()]
    return concatenate([train for train, _ in pairs]), concatenate([test for _, test in pairs])


def _with_domain(records: Records, domain: str) -> Records:
    columns = dict(records.columns, domain=np.full(len(records), domain))
    return Records(records.inputs, records.labels, columns, records.origin)


def _group(path: Path, arrays: Arrays, prefix: str, name: str, *, tolerant: bool) -> Records:
    """Check and convert the arrays that share one prefix. Rows count from 1 within their array."""
    if prefix + name not in arrays:
        raise BadInput(f"{path} has {prefix}labels but not {prefix}{name}")
    values = arrays[prefix + name]
    origin = Origin.of(
        f"{path} [{prefix}{name}]", np.arange(1, len(values) + 1) if values.ndim else np.zeros(0, np.int64)
    )
    faults = Faults(origin, tolerant=tolerant)
    labels = _labels(path, arrays[prefix + "labels"], prefix, faults)
    if len(labels) == 0 and not tolerant:
        raise BadInput(f"{path}: {prefix}{name} holds no records")
    inputs = _images(path, values, faults) if name == "images" else _features(path, values, arrays.get("scale"), faults)
    if "classes" in arrays:
        _refuse_unnamed(labels, arrays["classes"].size, faults)
    columns = {
        key.removeprefix(prefix): as_text(array)
        for key, array in arrays.items()
        if key.startswith(prefix) and key != prefix + "labels" and array.shape == (len(labels),) and key not in GLOBAL
    }
    return Records(inputs, labels, columns, origin).discard(faults.bad)


_QUIET = np.errstate(over="ignore", invalid="ignore")
"""A number too large for float64 becomes infinite, which is the record's fault and no warning."""


def _labels(path: Path, labels: NDArray[Any], prefix: str, faults: Faults) -> NDArray[np.int64]:
    """Return labels as (n,) int64; a negative, absent, fractional or huge one is a fault."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != faults.bad.shape or labels.dtype.kind not in "iuf":
        remedy = f"labels are {len(faults.bad)} integers from 0"
        raise BadInput(f"{path}: {prefix}labels are {labels.dtype} of shape {labels.shape}", remedy=remedy)
    good = (labels >= 0) & (labels < MAX_CLASSES) & (labels == np.floor(labels))
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
    """Return features as float64 (n, d), times `scale` where there is one."""
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


def _refuse_unnamed(labels: NDArray[np.int64], names: int, faults: Faults) -> None:
    """A label beyond the file's class names is a fault."""
    faults.add(labels >= names, f"the label is none of the {names} in `classes`", "mend the label or `classes`")


def _classes(path: Path, arrays: Arrays, groups: list[Records]) -> tuple[str, ...]:
    """Return the class names; without `classes` in the file the numbers up to the largest label of a good record."""
    if "classes" not in arrays:
        return tuple(str(label) for label in range(1 + max(int(group.labels.max(initial=-1)) for group in groups)))
    names = tuple(as_text(arrays["classes"].reshape(-1)).tolist())
    if len(set(names)) != len(names):
        raise BadInput(f"{path} names a class twice", remedy="give each class of `classes` a name of its own")
    return names


NPZ = LabelledFormat(suffixes=(".npz",), called="an .npz", open=open_arrays)
