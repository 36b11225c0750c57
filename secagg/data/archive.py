"""`.npz` archives of arrays: what they say they hold is checked before any of it is expanded."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from secagg.data.faults import MAX_CELL, Tolerance, bounded
from secagg.data.records import DOMAIN
from secagg.errors import BadInput, why
from secagg.system.reading import refuse_larger

_SUFFIX = ".npy"
_KINDS = "biufcmMSU"
"""Plain values: neither Python objects, which would be a pickle, nor records, nor bytes without a meaning."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What numpy writes; Python cannot bound what one read of another one takes."""
_LONGEST_READ = 1 << 20
"""Most bytes of the archive's directory, of an array's header and of one text in an array."""
GLOBAL = ("scale", "classes")
"""Arrays that are of all records."""
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

    @property
    def records(self) -> int:
        """The number of its records."""
        return self.shape[0] if self.shape else 0

    @property
    def bytes_of_record(self) -> int:
        """The same of one record, whose text is no longer than MAX_CELL."""
        one = replace(self, shape=(1, *self.shape[1:]))
        return min(one.bytes_opened, 4 * MAX_CELL) if self.is_text else one.bytes_opened

    @property
    def is_text(self) -> bool:
        """Whether it holds one text for each record."""
        return self.dtype.kind in "US" and len(self.shape) == 1


def load_arrays(path: Path, tolerance: Tolerance | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an `.npz`, by name; other files in it are left aside. No pickle is ever loaded.

    Where `tolerance` says how many records a plan allows, arrays that no plan reads are left aside too, and a text of
    more than MAX_CELL characters is empty.

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
                entries = [info for info in archive.infolist() if _is_array(info) and (limit is None or _is_read(info))]
                found = [_entry(path, archive, info, limit) for info in entries]
                if len({entry.name for entry in found}) < len(found):
                    raise BadInput(f"{path} holds two arrays of one name", remedy="write it with numpy.savez")
                _refuse_larger(path, found, limit)
                return {entry.name: _read(archive, entry, limit) for entry in found}
    except OSError as error:
        raise BadInput(f"cannot read {path} ({why(error)})") from error
    except (BadInput, MemoryError):
        raise
    except Exception as error:  # zipfile, zlib and numpy have no common ground in what they say of damage
        raise BadInput(f"{path} is a damaged archive", remedy="write it again with numpy.savez") from error


def _refuse_larger(path: Path, found: list[_Entry], limit: Tolerance | None) -> None:
    """Raise BadInput for arrays that would take too much: those of records one by one where a plan says how many."""
    of_records = [entry for entry in found if limit is not None and entry.name not in GLOBAL]
    for entry in of_records:
        if limit is not None:
            limit.refuse_larger(f"{path} [{entry.name}]", entry.records, entry.bytes_of_record)
    refuse_larger(path, sum(entry.bytes_opened for entry in found if entry not in of_records))


def _is_array(info: zipfile.ZipInfo) -> bool:
    return info.filename.endswith(_SUFFIX)


def _is_read(info: zipfile.ZipInfo) -> bool:
    """Whether a plan reads an array: records, labels, domains, and what is said of all of them."""
    name = info.filename.removesuffix(_SUFFIX)
    return name in GLOBAL or name.endswith(("features", "images", "labels", DOMAIN))


def _entry(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: Tolerance | None) -> _Entry:
    """What an array's header says, held against the size that the archive says. Raises BadInput."""
    if info.flag_bits & 1 or info.compress_type not in _COMPRESSIONS:
        problem = f"{path} is encrypted, or compressed as numpy does not"
        raise BadInput(problem, remedy="write it with numpy.savez or numpy.savez_compressed")
    with archive.open(info) as file:
        start = io.BytesIO(file.read(_LONGEST_READ))
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, _, dtype = readers[npy.read_magic(start)](start)
    cut = limit is not None and dtype.kind in "US" and len(shape) == 1
    if dtype.kind not in _KINDS or (dtype.itemsize > _LONGEST_READ and not cut):
        problem = f"{path} holds arrays of Python objects, or of other things than numbers and text"
        raise BadInput(problem, remedy="save plain numbers and text only")
    if min(shape, default=0) < 0 or start.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
        raise BadInput(f"{path}: an array is not of the size that it says", remedy="write it again with numpy.savez")
    return _Entry(info, shape, dtype)


def _read(archive: zipfile.ZipFile, entry: _Entry, limit: Tolerance | None) -> NDArray[Any]:
    with archive.open(entry.info) as file:
        if limit is not None and entry.is_text and entry.dtype.itemsize > 4 * MAX_CELL:
            return _read_short(file, entry)
        array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


def _read_short(file: IO[bytes], entry: _Entry) -> NDArray[Any]:
    """The texts of at most 4·MAX_CELL bytes of an array, "" for longer ones; no more than one is held at once."""
    file.seek(entry.info.file_size - entry.records * entry.dtype.itemsize)
    texts = []
    for _ in range(entry.records):
        text, rest = file.read(4 * MAX_CELL), entry.dtype.itemsize - 4 * MAX_CELL
        while rest and (part := file.read(min(rest, _LONGEST_READ))):
            text, rest = b"" if part.strip(b"\0") else text, rest - len(part)
        texts.append(text.ljust(4 * MAX_CELL, b"\0"))
    kind = f"{entry.dtype.str[:2]}{MAX_CELL if entry.dtype.kind == 'U' else 4 * MAX_CELL}"
    return np.frombuffer(b"".join(texts), dtype=kind)


def as_text(values: NDArray[Any]) -> NDArray[np.str_]:
    """The values of an array (n,) written out. What is no character becomes �: one value never spoils another."""
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8", "replace")
    text = values.astype(f"<U{max(1, values.dtype.itemsize // 4)}" if values.dtype.kind == "U" else np.str_)
    codes = text.view("<u4")  # numpy keeps whatever numbers stand in the file
    codes[(codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))] = ord("�")
    return text
