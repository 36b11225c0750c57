"""`.npz` archives of arrays: what they say they hold is checked before any of it is expanded."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from secagg.errors import BadInput, why
from secagg.reading import refuse_larger

_SUFFIX = ".npy"
_KINDS = "biufcmMSU"
"""Plain values: neither Python objects, which would be a pickle, nor records, nor bytes without a meaning."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What numpy writes; Python cannot bound what one read of another one takes."""
_LONGEST_READ = 1 << 20
"""Most bytes of the archive's directory, of an array's header and of one text in an array."""
_LONGEST_NUMBER = 128
"""Bytes of a number written out, which it takes in a column."""


class _File(io.BufferedReader):
    """A file of which nothing long is read at once, whatever its directory says."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _LONGEST_READ:
            raise zipfile.BadZipFile
        return super().read(size)


@dataclass(frozen=True)
class _Entry:
    """One array, not read yet."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return self.info.filename.removesuffix(_SUFFIX)

    @property
    def bytes_opened(self) -> int:
        """At most what the array takes in the form in which records are used: images as they are, numbers as float64.

        The numbers of a list, one for each record, may become text. An empty side counts as one.
        """
        least = 1 if self.dtype == np.uint8 and len(self.shape) > 2 else 8
        if len(self.shape) < 2 and self.dtype.kind != "U":
            least = _LONGEST_NUMBER
        return max(least, self.dtype.itemsize) * math.prod(max(1, side) for side in self.shape)


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz`, by name; other files in it are left aside. No pickle is ever loaded.

    Raises BadInput for what is no such archive, for arrays that would take more bytes than `data_limit`, and for
    damaged ones.
    """
    try:
        with _File(io.FileIO(path)) as file:
            if not zipfile.is_zipfile(file):
                raise BadInput(f"{path} is no .npz archive", remedy="write it with numpy.savez")
            with zipfile.ZipFile(file) as archive, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of headers that Python 2 wrote
                found = [_entry(path, archive, info) for info in archive.infolist() if _is_array(info)]
                if len({entry.name for entry in found}) < len(found):
                    raise BadInput(f"{path} holds two arrays of one name", remedy="write it with numpy.savez")
                refuse_larger(path, sum(entry.bytes_opened for entry in found))
                return {entry.name: _read(archive, entry.info) for entry in found}
    except OSError as error:
        raise BadInput(f"cannot read {path} ({why(error)})") from error
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy have no common ground in what they say of damage
        raise BadInput(f"{path} is a damaged archive", remedy="write it again with numpy.savez") from error


def _is_array(info: zipfile.ZipInfo) -> bool:
    return info.filename.endswith(_SUFFIX)


def _entry(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Entry:
    """What an array's header says, held against the size that the archive says. Raises BadInput."""
    if info.flag_bits & 1 or info.compress_type not in _COMPRESSIONS:
        problem = f"{path} is encrypted, or compressed as numpy does not"
        raise BadInput(problem, remedy="write it with numpy.savez or numpy.savez_compressed")
    with archive.open(info) as file:
        start = io.BytesIO(file.read(_LONGEST_READ))
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, _, dtype = readers[npy.read_magic(start)](start)
    if dtype.kind not in _KINDS or dtype.itemsize > _LONGEST_READ:
        problem = f"{path} holds arrays of Python objects, or of other things than numbers and text"
        raise BadInput(problem, remedy="save plain numbers and text only")
    if min(shape, default=0) < 0 or start.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
        raise BadInput(f"{path}: an array is not of the size that it says", remedy="write it again with numpy.savez")
    return _Entry(info, shape, dtype)


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as file:
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


def as_text(values: NDArray[Any]) -> NDArray[np.str_]:
    """The values of an array (n,) written out. What is no character becomes �: one value never spoils another."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    text = values.astype(f"<U{max(1, values.dtype.itemsize // 4)}" if values.dtype.kind == "U" else np.str_)
    codes = text.view("<u4")  # numpy keeps whatever numbers stand in the file
    codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))] = ord("�")
    return text
