"""Folders of images: `CLASS/*.png` (or .jpg, .jpeg), or `DOMAIN/CLASS/*` with a column `domain`."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
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
"""Most pixels of one image; an image with more is refused before it is decompressed."""
WHOLE_FILE = 0
"""Row number of a record that is a whole file."""
MODES = {"L": "L", "1": "L", "RGB": "RGB", "P": "RGB"}
"""The colour modes of image files and what each is read as; others (transparency, 16 bits, CMYK) have no clear RGB."""

Shape = tuple[int, ...]


class UnusableImage(Exception):
    """Error for an image that cannot be used; `problem` is the reason, `remedy` the advice to the user."""

    def __init__(self, problem: str, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(problem)


def is_image_folder(folder: Path) -> bool:
    """Return whether a folder has subfolders, as a folder of images does; hidden ones do not count."""
    return any(entry.is_dir() for entry in _entries(folder))


def open_images(
    folder: Path,
    cut: Split,
    *,
    size: Shape | None = None,
    classes: Sequence[str] | None = None,
    tolerance: Tolerance | None = None,
) -> Dataset:
    """Open a folder of images as a data set of uint8 (n, h, w, 3), or (n, h, w) when all images are grey.

    `size` is (side,), (h, w) for grey, or (h, w, channels): each image is scaled to cover it (bilinear) and cut to its
    middle; without it all must have the first one's size. `classes` fixes names and order of the classes (a plan
    does); otherwise they are the folders' names, sorted. Each domain is divided by `cut` on its own. A note in a
    photograph that it is to be turned is not followed. With `tolerance` and both in full there may be no image at all.
    Raises BadInput for a layout that is neither of the two, BadRecord, naming the file, for one that is no such image
    (`tolerance`: a bad record; no image has a say in another where `size` and `classes` are given in full).
    """
    if size is not None and (len(size) > 3 or size[2:] not in ((), (1,), (3,))):
        raise BadInput(f"a folder of images gives no records of shape {size}", remedy="images have 1 or 3 channels")
    tops = _folders(folder)
    folders = [("", top) for top in tops]
    if any(entry.is_dir() for top in tops for entry in _entries(top)):
        folders = [(top.name, inner) for top in tops for inner in _folders(top)]
    found: dict[str, list[tuple[Path, str]]] = {domain: [] for domain, _ in sorted(folders)}
    for domain, inner in folders:
        found[domain] += [(path, inner.name) for path in _files(inner)]
    whole = size if size is not None and len(size) > 1 else None
    if not any(found.values()) and (tolerance is None or whole is None or classes is None):
        raise BadInput(f"{folder} holds no image", remedy="it needs CLASS/*.png or DOMAIN/CLASS/*.png (or .jpg)")
    names = tuple(classes) if classes is not None else tuple(sorted({inner.name for _, inner in folders}))
    shape = whole or _shape((path for each in found.values() for path, _ in each), size)
    pairs = [cut(_records(each, domain, names, shape, size is not None, tolerance)) for domain, each in found.items()]
    train, test = (concatenate(part) for part in zip(*pairs, strict=True))
    bound = math.sqrt(math.prod(shape))
    return Dataset(folder.name, "images", train, test if len(test) else None, names, bound=bound)


def is_flat_folder(folder: Path) -> bool:
    """Return whether a folder contains images and no folders."""
    has_image = any(entry.suffix.lower() in IMAGE_SUFFIXES for entry in _entries(folder))
    return has_image and not is_image_folder(folder)


def open_flat(folder: Path, *, size: Shape, classes: Sequence[str]) -> Dataset:
    """Open a folder of unsorted images as records without labels, scaled to `size` as `open_images` does."""
    found = [(path, classes[0]) for path in _files(folder)]
    records = _records(found, "", tuple(classes), size, fit=True, tolerance=None)
    records = replace(records, labels=np.full(len(records), UNLABELLED, dtype=np.int64))
    bound = math.sqrt(math.prod(size))
    return Dataset(folder.name, "images", records, None, tuple(classes), bound=bound)


def _entries(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _folders(folder: Path) -> list[Path]:
    """Return the entries of a folder. Raises BadInput where one is not a folder."""
    for entry in _entries(folder):
        if entry.is_symlink() or not entry.is_dir():
            what = "a link" if entry.is_symlink() else "no folder"
            raise BadInput(f"{entry} is {what}", remedy="images lie as CLASS/* or, all of them, as DOMAIN/CLASS/*")
    return _entries(folder)


def _files(folder: Path) -> list[Path]:
    """Return the entries of a class's folder, each of which is one record. Raises BadInput for a folder among them."""
    entries = _entries(folder)
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            raise BadInput(f"{entry} is a folder inside a class", remedy="images lie as CLASS/* or DOMAIN/CLASS/*")
    return entries


def _shape(paths: Iterable[Path], side: Shape | None) -> Shape:
    """Return the images' common shape: square with this `side`, or the first readable image's; grey if all are grey."""
    modes, first = set(), None
    for path in paths:
        try:
            with open_image(path) as image:
                modes.add(MODES[image.mode])
                first = first or (image.height, image.width)
        except UnusableImage:
            continue
    height, width = (side[0], side[0]) if side else first or (1, 1)
    return (height, width) if modes == {"L"} else (height, width, 3)


def _records(
    found: Sequence[tuple[Path, str]],
    domain: str,
    classes: tuple[str, ...],
    shape: Shape,
    fit: bool,
    tolerance: Tolerance | None,
) -> Records:
    """Read the files of one domain (perhaps none), each given with the name of its class's folder."""
    n = len(found)
    origin = Origin(tuple(str(path) for path, _ in found), np.arange(n), np.full(n, WHOLE_FILE, dtype=np.int64))
    faults = Faults(origin, tolerant=tolerance is not None)
    labels = np.array([classes.index(name) if name in classes else BAD for _, name in found], dtype=np.int64)
    problem = f"its folder is none of the classes {list(classes)}"
    faults.add(labels == BAD, problem, "move the image, or rename the folder")
    (tolerance or Tolerance()).refuse_larger(f"images of {'×'.join(map(str, shape))}", n, math.prod(shape))
    inputs = np.zeros((n, *shape), dtype=np.uint8)
    for index, (path, _) in enumerate(found):
        try:
            inputs[index] = pixels_of(path, shape, fit)
        except UnusableImage as error:
            faults.add(np.arange(n) == index, error.problem, error.remedy)
    columns = {DOMAIN: np.full(n, domain)} if domain else {}
    return Records(inputs, labels, columns, origin).discard(faults.bad)


def pixels_of(path: Path | bytes, shape: Shape, fit: bool) -> NDArray[Any]:
    """Read an image (path or bytes) as a uint8 array of `shape`, scaled and cropped if `fit`. Raises UnusableImage."""
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
    """Open an image without reading its pixels yet. Raises UnusableImage."""
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
    problem = ""
    if image.width * image.height > MAX_PIXELS:
        problem = f"has {image.width} × {image.height} pixels, more than {MAX_PIXELS}"
    elif "transparency" in image.info:
        problem = "has transparent pixels, which is neither grey nor RGB"
    elif image.mode not in MODES:
        problem = f"has the mode {image.mode}, which is neither grey nor RGB"
    if problem:
        image.close()
        raise UnusableImage(problem, "save it as plain 8-bit grey or RGB")
    return image


def _is_link(path: Path) -> bool:
    """Return whether a path is a link; False for names that no file can have."""
    try:
        return path.is_symlink()
    except OSError:
        return False


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
