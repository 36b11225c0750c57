"""`.npz` archives that say more than they hold, or hold what numpy never writes: refused before they are expanded."""

import gzip
import io
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from secagg.data import open_dataset
from secagg.data.arrays import as_text, load_arrays
from secagg.errors import BadInput

FEATURES = np.arange(12, dtype=np.float64).reshape(6, 2)
LABELS = np.arange(6) % 2


def member(array: np.ndarray) -> bytes:
    """An array as a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def with_header(text: bytes, version: bytes = b"\x01\x00", body: bytes = b"") -> bytes:
    """A .npy file with any header."""
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + size + text + body


def claiming(shape: str, descr: str = "'<f8'", body: bytes = b"") -> bytes:
    """A .npy file whose header claims a shape and a type."""
    return with_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode(), body=body)


def archive(path: Path, features: bytes, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """An .npz whose `features` are any bytes."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("features.npy", features)
        file.writestr("labels.npy", member(LABELS))
    return path


class Exploit:
    """Runs when it is unpickled."""

    def __reduce__(self):
        return exec, ("raise SystemExit(99)",)


HEADERS = {
    "open brackets": with_header(b"(" * 5000),
    "cut": with_header(b"{'descr': '<f8', 'fortran_order': Fal"),
    "empty": with_header(b""),
    "no header": b"\x93NUMPY\x01\x00",
    "no magic": b"features",
    "another version": with_header(b"{}", b"\x09\x00"),
    "long header": with_header(b" " * (1 << 21), b"\x02\x00"),
    "no dictionary": with_header(b"[1, 2]"),
    "huge shape": claiming("(10000000000000,)"),
    "huge empty shape": claiming("(10000000000000, 0)"),
    "negative shape": claiming("(-1, -6)", body=bytes(48)),
    "shape without numbers": claiming("(True, 'a')"),
    "more than there is": claiming("(7, 2)", body=bytes(96)),
    "less than there is": claiming("(5, 2)", body=bytes(96)),
    "huge text": claiming("(6,)", "'<U500000000'"),
    "void": claiming("(6,)", "'|V8'", bytes(48)),
    "fields": claiming("(6,)", "[('a', '<f8')]", bytes(48)),
    "objects": member(np.array([Exploit()] * 6, dtype=object)),
    "a pickle": pickle.dumps(Exploit()),
    "a library's warning": with_header(
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (6L, 2L), }", body=bytes(90)
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_header_that_lies_is_refused(tmp_path: Path, name: str) -> None:
    """A header that is none, or that the array behind it does not fit, is refused in one line with the file's name."""
    with pytest.raises(BadInput, match=r"d\.npz") as refusal:
        open_dataset(str(archive(tmp_path / "d.npz", HEADERS[name])))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("compression", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_refused(tmp_path: Path, compression: int) -> None:
    """Only what numpy writes is opened: of the others no read is bounded."""
    with pytest.raises(BadInput, match="compressed as numpy does not"):
        open_dataset(str(archive(tmp_path / "d.npz", member(FEATURES), compression)))


def changed(path: Path, at: int, content: bytes) -> Path:
    """The archive with some bytes of its first entry's two headers replaced; `at` counts in the directory's."""
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\x01\x02")
    data[start + at : start + at + len(content)] = content
    data[at - 2 : at - 2 + len(content)] = content
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("at", "content"),
    [
        (8, b"\x01\x00"),
        (8, b"\x41\x00"),
        (10, b"\x63\x00"),
        (10, b"\x0e\x00"),
        (6, b"\xff\x00"),
        (24, b"\xff\xff\xff\x7f"),
    ],
    ids=["encrypted", "strongly encrypted", "method 99", "damaged LZMA", "version", "declared size"],
)
def test_unusual_entries_are_refused(tmp_path: Path, at: int, content: bytes) -> None:
    """An encrypted entry, an unknown method or version, and another size than the array's are refused in one line."""
    path = changed(archive(tmp_path / "d.npz", member(FEATURES)), at, content)
    with pytest.raises(BadInput, match=r"d\.npz"):
        open_dataset(str(path))


def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    """Nobody knows which of two arrays of one name is meant."""
    path = archive(tmp_path / "d.npz", member(FEATURES))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as file:
        file.writestr("features.npy", member(FEATURES + 1))
    with pytest.raises(BadInput, match="two arrays of one name"):
        open_dataset(str(path))


def test_other_files_in_the_archive_are_left_aside(tmp_path: Path) -> None:
    """A pickle beside the arrays is not even looked at."""
    path = archive(tmp_path / "d.npz", member(FEATURES))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("model.pkl", pickle.dumps(Exploit()))
    assert sorted(load_arrays(path)) == ["features", "labels"]


def test_whatever_numpy_writes_is_read(tmp_path: Path) -> None:
    """Every plain type, order and shape comes back as numpy reads it, compressed or not."""
    arrays = {
        "fortran": np.asfortranarray(FEATURES), "big": FEATURES.astype(">f8"), "half": FEATURES.astype(np.float16),
        "scalar": np.float64(3), "empty": np.zeros((0, 3)), "flags": LABELS.astype(bool), "text": np.array(["a", "é"]),
        "bytes": np.array([b"a", b"\xff"]), "days": np.array(["2020-01-01"], dtype="M8[D]"), "no width": np.array([""]),
    }  # fmt: skip
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "d.npz", **arrays)
        found = load_arrays(tmp_path / "d.npz")
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: np.asarray(array).tobytes() for name, array in arrays.items()
        }
        assert found["fortran"].flags.f_contiguous


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([b"a", b"\xff"]), ["a", "�"]),
        (np.array([65, 0x110000, 0xD800], dtype="<u4").view("<U1"), ["A", "�", "�"]),
        (np.array([65, 0x110000], dtype=">u4").view(">U1"), ["A", "�"]),
        (np.array(["né"], dtype=">U2"), ["né"]),
        (np.ndarray(2, "<U0"), ["", ""]),
        (np.array([1.5, np.nan]), ["1.5", "nan"]),
        (np.array([True]), ["True"]),
    ],
)
def test_what_is_no_character_spoils_itself(values: np.ndarray, text: list[str]) -> None:
    """Bytes and numbers that are no characters become �, each alone, and other values are written out."""
    assert as_text(values).tolist() == text


BOMBS = """
import resource, sys
from secagg.data import open_dataset
from secagg.errors import BadInput
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
room = int(status["VmSize"].split()[0]) * 1024 + (60 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for path in sys.argv[1:]:
    try:
        open_dataset(path, label="y" if ".csv" in path else None)
    except BadInput as error:
        print(error)
"""


def test_bombs_stay_small(tmp_path: Path) -> None:
    """Files of kilobytes that would take more than is allowed are refused, and never take it."""
    most = 64 << 20
    archive(tmp_path / "zeros.npz", claiming(f"({most // 8 + 1},)", body=bytes(most + 8)))
    archive(tmp_path / "shape.npz", HEADERS["huge shape"])
    archive(tmp_path / "header.npz", with_header(bytes(most), b"\x02\x00"))
    archive(tmp_path / "lzma.npz", bytes(1 << 20), zipfile.ZIP_LZMA)
    with zipfile.ZipFile(tmp_path / "directory.npz", "w") as file:
        for number in range(6000):
            file.writestr(f"{number:0>200}.npy", b"")
    (tmp_path / "lines.csv.gz").write_bytes(gzip.compress(b"\n" * most, 1))
    paths = sorted(tmp_path.iterdir())
    assert max(path.stat().st_size for path in paths) < 4 << 20
    limits = {"SECAGG_MAX_BYTES": str(most), "OPENBLAS_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, "-c", BOMBS, *paths], capture_output=True, text=True, check=False, env=limits
    )
    assert (told.returncode, told.stderr) == (0, "")
    for path, line in zip(paths, told.stdout.splitlines(), strict=True):
        assert path.name in line
