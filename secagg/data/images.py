"""Folders of images: `CLASS/*.png` (or .jpg, .jpeg), or `DOMAIN/CLASS/*` with a column `domain`."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.data.partition import Split
from secagg.data.records import BAD, DOMAIN, UNLABELLED, Dataset, Faults, Records, Tolerance, concatenate
from secagg.encoding.grid import Origin
from secagg.errors import BadInput

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_PIXELS = 1 << 26
"""Most pixels of one image; a larger one is refused before it is decompressed."""
WHOLE_FILE = 0
"""Row of a record that is a file of its own."""
MODES = {"L": "L", "1": "L", "RGB": "RGB", "P": "RGB"}
"""What the modes of image files become. Transparency, 16 bits and CMYK have no one meaning as RGB."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Found:
    """One file that should be an image, the class folder it lies in, and the domain's ("" without domains)."""

    path: Path
    label: str
    domain: str


class UnusableImage(Exception):
    """One image cannot be used: the problem, which is the message, and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(problem)


def is_image_folder(folder: Path) -> bool:
    """Whether a folder has folders in it, hidden ones apart."""
    return any(entry.is_dir() for entry in _entries(folder))


def open_images(
    folder: Path,
    cut: Split,
    *,
    size: Shape | None = None,
    classes: Sequence[str] | None = None,
    tolerance: Tolerance | None = None,
) -> Dataset:
    """Open a folder of images as uint8 (n, h, w, 3), or (n, h, w) when all are grey.

    `size` is (side,), (h, w) for grey, or (h, w, channels): each image is scaled to cover it (bilinear) and cut to its
    middle; without it all must have the first one's size. `classes` fixes names and order of the classes (a plan
    does); otherwise they are the folders' names, sorted. Each domain is divided by `cut` on its own. A note in a
    photograph that it is to be turned is not followed. With `tolerance` and both in full there may be no image at all.
    Raises BadInput for a layout that is neither of the two, BadRecord, naming the file, for one that is no such image
    (`tolerance`: a bad record; no image has a say in another where `size` and `classes` are given in full).
    """
    if size is not None and (len(size) > 3 or size[2:] not in ((), (1,), (3,))):
        raise BadInput(f"a folder of images gives no records of shape {size}", remedy="images have 1 or 3 channels")
    folders = _class_folders(folder)
    found = [_Found(path, inner.name, domain) for domain, inner in folders for path in _files(inner)]
    if not found and not (tolerance is not None and size is not None and len(size) > 1 and classes is not None):
        raise BadInput(f"{folder} holds no image", remedy="it needs CLASS/*.png or DOMAIN/CLASS/*.png (or .jpg)")
    names = tuple(classes) if classes is not None else tuple(sorted({inner.name for _, inner in folders}))
    shape = size if size is not None and len(size) > 1 else _shape(found, size)
    groups = [
        _records([each for each in found if each.domain == domain], domain, names, shape, size is not None, tolerance)
        for domain in sorted({domain for domain, _ in folders})
    ]
    pairs = [cut(group) for group in groups]
    test = concatenate([part for _, part in pairs])
    return Dataset(
        name=folder.name,
        kind="images",
        train=concatenate([part for part, _ in pairs]),
        test=test if len(test) else None,
        classes=names,
        schema=None,
        bound=math.sqrt(math.prod(shape)),
        parts=None,
    )


def is_flat_folder(folder: Path) -> bool:
    """Whether a folder holds images, and no folder."""
    entries = _entries(folder)
    return not any(entry.is_dir() for entry in entries) and any(
        entry.suffix.lower() in IMAGE_SUFFIXES for entry in entries
    )


def open_flat(folder: Path, *, size: Shape, classes: Sequence[str]) -> Dataset:
    """Open a folder of images that nobody has sorted by class, as `open_images` would with this size and no label."""
    found = [_Found(path, classes[0], "") for path in _files(folder)]
    records = _records(found, "", tuple(classes), size, fit=True, tolerance=None)
    records = replace(records, labels=np.full(len(records), UNLABELLED, dtype=np.int64))
    bound = math.sqrt(math.prod(size))
    return Dataset(folder.name, "images", records, None, tuple(classes), schema=None, bound=bound, parts=None)


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _class_folders(folder: Path) -> list[tuple[str, Path]]:
    """The domain ("" without domains) and the folder of every class. Raises BadInput for another layout."""
    tops = _folders(folder)
    if any(entry.is_dir() for top in tops for entry in _entries(top)):
        return [(top.name, inner) for top in tops for inner in _folders(top)]
    return [("", top) for top in tops]


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder that may hold nothing else."""
    for entry in _entries(folder):
        if entry.is_symlink() or not entry.is_dir():
            what = "a link" if entry.is_symlink() else "no folder"
            remedy = "images lie as CLASS/* or, all of them, as DOMAIN/CLASS/*"
            raise BadInput(f"{entry} is {what}", remedy=remedy)
    return _entries(folder)


def _files(folder: Path) -> list[Path]:
    """The entries of a class folder; each is one record, whatever it is."""
    entries = _entries(folder)
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            raise BadInput(f"{entry} is a folder inside a class", remedy="images lie as CLASS/* or DOMAIN/CLASS/*")
    return entries


def _shape(found: Sequence[_Found], side: Shape | None) -> Shape:
    """The common shape: of the first image that can be read, with the given side; grey only if all are."""
    modes, first = set(), None
    for each in found:
        try:
            with open_image(each.path) as image:
                modes.add(MODES[image.mode])
                first = first or (image.height, image.width)
        except UnusableImage:
            continue
    height, width = (side[0], side[0]) if side else first or (1, 1)
    return (height, width) if modes == {"L"} else (height, width, 3)


def _records(
    found: Sequence[_Found],
    domain: str,
    classes: tuple[str, ...],
    shape: Shape,
    fit: bool,
    tolerance: Tolerance | None,
) -> Records:
    """Read the files of one domain, of which there may be none."""
    n = len(found)
    origin = Origin(tuple(str(each.path) for each in found), np.arange(n), np.full(n, WHOLE_FILE, dtype=np.int64))
    faults = Faults(origin, tolerant=tolerance is not None)
    labels = np.array([classes.index(each.label) if each.label in classes else BAD for each in found], dtype=np.int64)
    faults.add(
        labels == BAD, f"its folder is none of the classes {list(classes)}", "move the image, or rename the folder"
    )
    (tolerance or Tolerance()).refuse_larger(f"images of {'×'.join(map(str, shape))}", n, math.prod(shape))
    inputs = np.zeros((n, *shape), dtype=np.uint8)
    for index, each in enumerate(found):
        try:
            inputs[index] = pixels_of(each.path, shape, fit)
        except UnusableImage as error:
            faults.add(np.arange(n) == index, error.problem, error.remedy)
    columns = {DOMAIN: np.full(n, domain)} if domain else {}
    return Records(inputs, labels, columns, origin).discard(faults.bad)


def pixels_of(path: Path | bytes, shape: Shape, fit: bool) -> NDArray[Any]:
    """One image, of a path or of a file's bytes, as uint8 of the shape, scaled and cut where `fit`.

    Raises UnusableImage.
    """
    from PIL import Image, ImageOps

    wanted = (shape[1], shape[0])
    with open_image(path) as image:
        if image.size != wanted and not fit:
            problem = f"is {image.width} × {image.height} pixels, the first image is {wanted[0]} × {wanted[1]}"
            raise UnusableImage(problem, "give one size for all with --image-size")
        mode = MODES[image.mode]
        if mode == "RGB" and shape[2:] != (3,):
            raise UnusableImage("is in colour, and grey is asked for", "save it as grey, or ask for three channels")
        try:
            pixels = image.convert(mode)
        except Exception as error:
            raise UnusableImage(f"is broken ({_words(error)})", "mend or remove it") from error
    if pixels.size != wanted:
        pixels = ImageOps.fit(pixels, wanted, method=Image.Resampling.BILINEAR)
    values = np.asarray(pixels)
    return values if values.shape == shape else np.repeat(values[:, :, None], shape[2], axis=2)


def open_image(path: Path | bytes) -> Image.Image:
    """The image, its pixels not read yet. Raises UnusableImage."""
    from PIL import Image

    if isinstance(path, Path) and _is_link(path):
        raise UnusableImage("is a link", "put the image itself there")
    if isinstance(path, Path) and path.suffix.lower() not in IMAGE_SUFFIXES:
        raise UnusableImage("has no name of an image", f"remove it; images end in {' '.join(IMAGE_SUFFIXES)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path if isinstance(path, Path) else io.BytesIO(path), formats=("PNG", "JPEG"))
    except Exception as error:
        raise UnusableImage(f"is no PNG or JPEG image ({_words(error)})", "mend or remove it") from error
    problem = _problem(image)
    if problem:
        image.close()
        raise UnusableImage(problem, "save it as plain 8-bit grey or RGB")
    return image


def _is_link(path: Path) -> bool:
    """Whether a path is a link; a name that no file can have is not."""
    try:
        return path.is_symlink()
    except OSError:
        return False


def _problem(image: Image.Image) -> str:
    """Why the pixels of an image are not worth reading; empty when they are."""
    if image.width * image.height > MAX_PIXELS:
        return f"has {image.width} × {image.height} pixels, more than {MAX_PIXELS}"
    if image.mode not in MODES or "transparency" in image.info:
        kind = "transparent pixels" if "transparency" in image.info else f"the mode {image.mode}"
        return f"has {kind}, which is neither grey nor RGB"
    return ""


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
