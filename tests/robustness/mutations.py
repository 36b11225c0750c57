"""Damaged files: bytes and structures of every format, changed at random by one generator."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import sqlite3
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Literal

Mutation = Callable[[Random, bytes], bytes]

NUMBERS = (0, -1, 1, 2, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, -(2**63), 10**400)
TEXTS = (
    "", "\0", "\n", "\r\n", "a" * 300, "é" * 70_000, "\x1b[31m", "../../x", "/etc/passwd", "-rf", "\ud800",
    "\u202ex", "%s%n", "nan",
    "inf", "1e999", "-0", "0x10", "1_000", "١", "NaN", "null", "true", "[[", "{}",
    "'; DROP TABLE releases; --", "C" * 1001,
)  # fmt: skip
MAGIC = (
    b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"\x93NUMPY\x01\x00", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff",
    b"\x1f\x8b\x08",
    b"SQLite format 3\0", b"PAR1", b"\x80\x04\x95", b"-----BEGIN CERTIFICATE-----\n", b"\xef\xbb\xbf",
    b"\xff\xfe", b"[" * 3000,
    b"{" * 3000, b"(" * 3000, b"secagg/records/1", b"\0" * 64, b"\xff" * 64,
)  # fmt: skip


def mutated(rng: Random, name: str, whole: bytes) -> bytes:
    """A damaged copy of a file: by its structure where its kind is known, else, and every third time, by its bytes."""
    content = whole
    while content == whole:
        content = _changed(rng, name, whole, 1 if rng.random() < 0.7 else rng.randint(2, 4))
    return content


def _changed(rng: Random, name: str, content: bytes, changes: int) -> bytes:
    structured = _STRUCTURED.get(_kind(name))
    for _ in range(changes):
        if structured is not None and rng.random() < 0.65:
            try:
                content = structured(rng, content)
                continue
            except Exception:  # noqa: BLE001, S110 (what an earlier change made of it has no structure any more)
                pass
        content = _bytes(rng, content)
    return content


def _kind(name: str) -> str:
    suffixes = Path(name).suffixes
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else (suffixes or [Path(name).name])[-1]


def _bytes(rng: Random, content: bytes) -> bytes:
    """One change that knows nothing of the format."""
    data = bytearray(content)
    at = rng.randrange(len(data) + 1)
    length = min(rng.choice((1, 2, 4, 8, 16, 64, 1000)), len(data) - at)
    piece = bytes(data[at : at + length])
    other = rng.randrange(len(data) + 1)
    order: Literal["little", "big"] = rng.choice(("little", "big"))
    changes: tuple[Callable[[], object], ...] = (
        lambda: data.__setitem__(slice(at, at + 1), bytes([byte ^ (1 << rng.randrange(8)) for byte in piece[:1]])),
        lambda: data.__setitem__(slice(at, at + 1), bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))])),
        lambda: data.__delitem__(slice(at, None)),
        lambda: data.__delitem__(slice(at, at + length)),
        lambda: data.__setitem__(slice(other, other), piece),
        lambda: data.__setitem__(slice(other, other + length), piece),
        lambda: data.__setitem__(slice(at, at), rng.randbytes(rng.choice((1, 4, 32, 500)))),
        lambda: data.__setitem__(slice(at, at + length), rng.choice(MAGIC)),
        lambda: data.__setitem__(slice(at, at + length), rng.choice(TEXTS).encode("utf-8", "surrogatepass")),
        lambda: data.__setitem__(slice(at, at + 2), rng.choice((0, 255, 65_535)).to_bytes(2, order)),
        lambda: data.__setitem__(slice(at, at + 4), rng.choice((0, 2**31, 2**32 - 1)).to_bytes(4, order)),
        lambda: data.__setitem__(slice(at, at + 8), rng.choice((2**40, 2**63, 2**64 - 1)).to_bytes(8, order)),
        lambda: data.extend(rng.randbytes(rng.choice((1, 100)))),
        lambda: data.__setitem__(slice(0, None), b""),
    )  # fmt: skip
    rng.choice(changes)()
    return bytes(data)


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as container and key."""
    if isinstance(value, dict):
        places: list[tuple[Any, Any]] = [(value, key) for key in value]
    elif isinstance(value, list):
        places = [(value, index) for index in range(len(value))]
    else:
        return []
    return places + [inner for container, key in places for inner in _nodes(container[key])]


def _replacement(rng: Random, old: Any) -> Any:
    deep: Any = 1
    for _ in range(rng.choice((3, 40))):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    choices = [
        None,
        True,
        rng.choice(NUMBERS),
        rng.choice(TEXTS),
        -0.0,
        1e308,
        [],
        {},
        [old],
        {"a": old},
        deep,
        [old] * 300,
    ]
    if isinstance(old, int | float) and not isinstance(old, bool):
        choices += [old + 1, -old, old * 1000, float(old)] * 3
    if isinstance(old, str):
        choices += [old[:-1], old + old, old.upper(), old.replace("a", "b"), old[::-1], rng.choice(TEXTS) + old] * 3
    if isinstance(old, list):
        choices += [old[:-1], old + old, old[::-1]] * 3
    return rng.choice(choices)


def _json_value(rng: Random, value: Any) -> None:
    container, key = rng.choice(_nodes(value))
    if rng.random() < 0.15:
        del container[key]
    elif rng.random() < 0.1 and isinstance(container, dict):
        container[rng.choice(TEXTS)] = container[key]
    else:
        container[key] = _replacement(rng, container[key])


def _json(rng: Random, content: bytes) -> bytes:
    if rng.random() < 0.15:
        text = content.decode()
        deep = rng.choice(
            ("[" * 5000, '{"a":' * 5000, "[" * 100 + "]" * 100, "1" * 5000, "NaN", "Infinity", "1e400", '"\\ud800"')
        )
        return re.sub(r":\s*[^,{\[\n]+", lambda _: ": " + deep, text, count=rng.randint(1, 3)).encode()
    value = json.loads(content)
    if rng.random() < 0.1:
        return (content.decode().rstrip()[:-1] + ", " + content.decode().strip()[1:]).encode()  # every field twice
    _json_value(rng, value)
    return json.dumps(value, indent=rng.choice((None, 2)), ensure_ascii=rng.random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )


TOML_VALUES = (
    '""', "1", "-1", "1.5", "nan", "-inf", "1e400", "true", "[]", "{}", "[1, 'a']", "1979-05-27",
    "0x7fffffffffffffff", "9" * 400,
    "9" * 5000, "[" * 3000, "{a=" * 3000, "[" * 100 + "]" * 100, '"\\u0000"', '"\\u001b[31m"', "'''x\ny'''",
    '"\\ud800"', "00:00:00",
    '["a", "a"]', "{a.b.c = 1}", '"' + "x" * 70_000 + '"', "[0, 1e308]", "'inf'",
)  # fmt: skip


def _toml(rng: Random, content: bytes) -> bytes:
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    key, equals, value = lines[at].partition("=")
    if equals and rng.random() < 0.6:
        lines[at] = f"{key}= {rng.choice(TOML_VALUES)}"
    else:
        odd = (
            "a." * 30_000 + "a = 1",
            "[a]",
            "[[a]]",
            '"" = 1',
            f"{key}=",
            "\0",
            '["\\u0000"]',
            value,
            "[[rule]]",
            "# x",
        )
        changes: tuple[Callable[[], object], ...] = (
            lambda: lines.pop(at),
            lambda: lines.insert(at, lines[rng.randrange(len(lines))]),
            lambda: lines.insert(at, rng.choice(odd)),
            lambda: lines.__setitem__(at, rng.choice(odd)),
        )
        rng.choice(changes)()
    return ("\n".join(lines) + "\n").encode()


def _csv(rng: Random, content: bytes) -> bytes:
    lines = content.decode().split("\n")
    at = rng.randrange(len(lines))
    cells = lines[at].split(",")
    place = rng.randrange(len(cells))
    changes: tuple[Callable[[], object], ...] = (
        lambda: cells.__setitem__(place, rng.choice((*TEXTS, *map(str, NUMBERS)))),
        lambda: cells.__setitem__(place, '"' + cells[place]),
        lambda: cells.__setitem__(place, cells[place].replace(".", ",")),
        lambda: cells.pop(place),
        lambda: cells.extend(cells),
        lambda: cells.__setitem__(0, "x" * 200_000),
    )
    rng.choice(changes)()
    lines[at] = rng.choice((",", ",", ",", ";", "\t")).join(cells)
    text = rng.choice(("\n", "\n", "\r", "\r\n")).join(lines)
    return text.encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16")), "surrogatepass")


def _npy(rng: Random, content: bytes) -> bytes:
    """An array file with another header, or with other values."""
    size = struct.unpack("<H", content[8:10])[0]
    header, body = content[10 : 10 + size].decode("latin-1"), content[10 + size :]
    if rng.random() < 0.25:
        return content[: 10 + size] + _bytes(rng, body)
    if rng.random() < 0.2:
        return (
            content[: 10 + size] + struct.pack("<d", rng.choice((float("nan"), float("inf"), 1e300, -1.0))) + body[8:]
        )
    shapes = ("()", "(0,)", "(1,)", "(-1,)", "(10000000000000,)", "(0, 10000000000000)", "(3, 3)", "(2, 2, 2)",
              "(True,)", "(1.5,)",
              "'a'", "(" * 3000, "(1" + ",1" * 40 + ")", "(4294967296, 4294967296)", "(60000, 60000)")  # fmt: skip
    types = ("'<f4'", "'>f8'", "'|O'", "'|V8'", "'<U3'", "'|S5'", "'<U500000000'", "'<M8[ns]'", "'<c16'",
              "'|b1'", "'<i8'", "'|u1'",
             "[('a', '<f8')]", "('<f8', (2,))", "'<f2'", "'nonsense'", "1", "[]", "'<m8'", "'<U0'")  # fmt: skip
    changes = (
        lambda: re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {rng.choice(shapes)}", header),
        lambda: re.sub(r"'descr': [^,]*,", lambda _: f"'descr': {rng.choice(types)},", header),
        lambda: header.replace("False", rng.choice(("True", "None", "1", "__import__('os')"))),
        lambda: header[: rng.randrange(len(header))],
        lambda: rng.choice(
            ("(" * 9000, "{" * 500, "", "{}", "[]", "'" * 50, "{'descr': 1L}", "\\" * 99, "{'a': " * 99)
        ),
        lambda: header + " " * rng.choice((1, 20_000)),
    )
    text = rng.choice(changes)().encode("latin-1")
    major = rng.choice((1, 1, 1, 1, 2, 3, 9))
    length = rng.choice((len(text), len(text), len(text), 0, 65_535, 2**32 - 1))
    size_bytes = struct.pack("<H", length & 0xFFFF) if major == 1 else struct.pack("<I", length)
    return b"\x93NUMPY" + bytes((major, 0)) + size_bytes + text + body


def _zip_entries(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def _zip(rng: Random, content: bytes) -> bytes:
    """An archive with other entries, or with fields of its directory overwritten."""
    if rng.random() < 0.3:
        return _zip_fields(rng, content)
    entries = _zip_entries(content)
    at = rng.randrange(len(entries))
    name, inner = entries[at]
    compression = zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
    if rng.random() < 0.7:
        entries[at] = (name, _inner(rng, name, inner))
    else:
        big = bytes(rng.choice((1 << 20, 1 << 25)))
        changes: tuple[Callable[[], object], ...] = (
            lambda: entries.pop(at),
            lambda: entries.append(
                (rng.choice(("../x.npy", "/etc/x.npy", "x", "x/", "\x1b.npy", "é.npy", "labels.npy")), inner)
            ),
            lambda: entries.__setitem__(at, (entries[rng.randrange(len(entries))][0] + rng.choice(("", "x")), inner)),
            lambda: entries.__setitem__(at, (name, big)),
            lambda: entries.append(("big.npy", inner[:128] + big)),
            entries.reverse,
        )
        rng.choice(changes)()
        compression = rng.choice((0, 8, 8, 12, 14))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        written: set[str] = set()
        for each, data in entries:
            if each not in written or rng.random() < 0.1:
                written.add(each)
                archive.writestr(each, data)
        if rng.random() < 0.1:
            archive.comment = rng.randbytes(100)
    return file.getvalue()


def _inner(rng: Random, name: str, content: bytes) -> bytes:
    structured = _STRUCTURED.get(_kind(name))
    return structured(rng, content) if structured is not None and rng.random() < 0.8 else _bytes(rng, content)


def _zip_fields(rng: Random, content: bytes) -> bytes:
    """Sizes, flags, methods, versions and offsets of an archive's headers."""
    data = bytearray(content)
    marks = {b"PK\x01\x02": (4, 6, 8, 10, 16, 20, 24, 28, 30, 32, 42), b"PK\x03\x04": (4, 6, 8, 14, 18, 22, 26, 28),
             b"PK\x05\x06": (4, 6, 8, 10, 12, 16, 20)}  # fmt: skip
    mark = rng.choice(list(marks))
    places = [found.start() for found in re.finditer(re.escape(mark), data)]
    at = rng.choice(places) + rng.choice(marks[mark])
    value = rng.choice((0, 1, 8, 9, 12, 14, 93, 95, 97, 98, 99, 0x41, 255, 65_535, 2**31, 2**32 - 1, 2**32 - 20))
    size = rng.choice((1, 2, 4))
    data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _safetensors(rng: Random, content: bytes) -> bytes:
    size = int.from_bytes(content[:8], "little")
    header, body = content[8 : 8 + size], content[8 + size :]
    if rng.random() < 0.15:
        return rng.choice((0, 1, size - 1, size + 8, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little") + header + body
    value = json.loads(header)
    if rng.random() < 0.5 and "__metadata__" in value:
        metadata = value["__metadata__"]
        key = rng.choice(sorted(metadata))
        metadata[key] = (
            _json(rng, metadata[key].encode()).decode() if metadata[key][:1] in ("{", "[") else rng.choice(TEXTS)
        )
    else:
        _json_value(rng, value)
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + (body if rng.random() < 0.8 else _bytes(rng, body))


def _records(rng: Random, content: bytes) -> bytes:
    """A transcript whose records are left out, twice there, in another order, of another length, or changed."""
    magic, rest = content[:16], content[16:]
    records = []
    while rest:
        length = int.from_bytes(rest[:4], "big")
        records.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    at, other = rng.randrange(len(records)), rng.randrange(len(records))
    lengths = {}
    changes: tuple[Callable[[], object], ...] = (
        lambda: records.pop(at),
        lambda: records.insert(other, records[at]),
        lambda: records.__setitem__(slice(at, None), []),
        lambda: records.__setitem__(at, records[other]),
        lambda: records.__setitem__(at, _bytes(rng, records[at])),
        lambda: lengths.__setitem__(at, rng.choice((0, 1, 2**26, 2**31, 2**32 - 1))),
    )
    rng.choice(changes)()
    sized = ((lengths.get(place, len(record)), record) for place, record in enumerate(records))
    return magic + b"".join(length.to_bytes(4, "big") + record for length, record in sized)


STATEMENTS = (
    "UPDATE {table} SET {column} = NULL", "UPDATE {table} SET {column} = {value}", "DELETE FROM {table}",
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME TO other", "ALTER TABLE {table} RENAME COLUMN {column} TO other",
    "PRAGMA user_version = {number}",
    "UPDATE {table} SET {column} = zeroblob(10000000)", "UPDATE {table} SET {column} = x'00ff'",
    "CREATE TABLE more (x)",
    "CREATE VIEW v AS SELECT * FROM {table}", "INSERT INTO {table} SELECT * FROM {table}",
    "PRAGMA application_id = 7",
    "UPDATE {table} SET {column} = '\x1b[31m'", "PRAGMA journal_mode = WAL", "PRAGMA encoding = 'UTF-16'",
)  # fmt: skip


def _sqlite(rng: Random, content: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.sqlite"
        path.write_bytes(content)
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {trigger}")
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            table = rng.choice([name for name in tables if not name.startswith("sqlite_")])
            column = rng.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
            value = rng.choice(("-1", "'inf'", "'nan'", "''", "1e999", "9223372036854775807", "'" + "x" * 999 + "'"))
            statement = rng.choice(STATEMENTS)
            connection.execute(
                statement.format(table=table, column=column, value=value, number=rng.choice((0, 1, 99, -1)))
            )
        finally:
            connection.close()
        return path.read_bytes()


def _pem(rng: Random, content: bytes) -> bytes:
    """The DER inside changed, under the same label."""
    found = re.search(rb"(-----BEGIN [A-Z ]+-----\n)(.*?)(-----END [A-Z ]+-----)", content, re.DOTALL)
    assert found is not None
    inner = base64.encodebytes(_bytes(rng, base64.b64decode(found[2])))
    return found[1] + inner + found[3] + rng.choice((b"\n", b"", content))


def _png(rng: Random, content: bytes) -> bytes:
    """A chunk changed, moved or added, its checksum right."""
    chunks, rest = [], content[8:]
    while rest:
        length = struct.unpack(">I", rest[:4])[0]
        chunks.append((rest[4:8], rest[8 : 8 + length]))
        rest = rest[12 + length :]
    at = rng.randrange(len(chunks))
    kind, data = chunks[at]
    header = struct.pack(">IIBBBBB", rng.choice((0, 1, 60_000, 2**31)), rng.choice((1, 60_000)), rng.choice((1,
    8, 16)),
                         rng.choice((0, 2, 3, 6, 7)), 0, 0, rng.choice((0, 1)))  # fmt: skip
    text = b"a\0\0" + zlib.compress(bytes(1 << 24))
    changes: tuple[Callable[[], object], ...] = (
        lambda: chunks.__setitem__(0, (b"IHDR", header)),
        lambda: chunks.insert(
            1, (rng.choice((b"zTXt", b"iCCP", b"tRNS", b"eXIf", b"acTL", b"PLTE")), rng.choice((text, b"", b"x")))
        ),
        lambda: chunks.pop(at),
        lambda: chunks.__setitem__(at, (kind, _bytes(rng, data))),
        lambda: chunks.append((b"IDAT", zlib.compress(bytes(1 << 22)))),
        chunks.reverse,
    )
    rng.choice(changes)()
    return content[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


_STRUCTURED: dict[str, Mutation] = {
    ".json": _json,
    ".toml": _toml,
    ".csv": _csv,
    ".csv.gz": lambda rng, content: gzip.compress(_csv(rng, gzip.decompress(content))),
    ".npy": _npy,
    ".npz": _zip,
    ".pt2": _zip,
    ".safetensors": _safetensors,
    ".log": _records,
    ".sqlite": _sqlite,
    ".pem": _pem,
    ".key": _pem,
    ".png": _png,
}
