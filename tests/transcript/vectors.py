"""Writes tests/vectors/v1/transcript.json by hashlib and a little protobuf: `python -m tests.transcript.vectors`.

Nothing of the package is used: the format is taken from the comments of protos/secagg/v1/transcript.proto alone.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

TARGET = Path(__file__).parents[1] / "vectors" / "v1" / "transcript.json"
MAGIC = b"secagg/records/1"
Content = tuple[str, bytes]
CONTENTS: tuple[Content, ...] = (
    ("plan", b"a plan"),
    ("roster", b"a roster"),
    ("received", bytes(range(256))),
    ("closed", b"KeyAdvertisement"),
    ("sent", b"\x00" * 300),
    ("aborted", b"reason \xc3\xa9"),
)


def labelled_hash(label: str, *parts: bytes) -> bytes:
    """SHA-256 of label and parts, each after its length in 8 big-endian bytes."""
    hasher = hashlib.sha256()
    for part in (f"secagg/v1/{label}".encode(), *parts):
        hasher.update(len(part).to_bytes(8, "big") + part)
    return hasher.digest()


def heads(contents: tuple[Content, ...]) -> list[bytes]:
    """The head after each record."""
    head, found = bytes(32), []
    for kind, content in contents:
        head = labelled_hash("record", head, kind.encode(), content)
        found.append(head)
    return found


def record(index: int, previous: bytes, kind: str, content: bytes) -> bytes:
    """Protobuf of Record: fields in number order, defaults left out."""
    text = b"\x08" + varint(index) if index else b""
    for field, value in ((2, previous), (3, kind.encode()), (4, content)):
        if value:
            text += varint(field << 3 | 2) + varint(len(value)) + value
    return text


def varint(value: int) -> bytes:
    """Base-128 with the low digits first."""
    digits = b""
    while value > 127:
        digits, value = digits + bytes([value & 127 | 128]), value >> 7
    return digits + bytes([value])


def file_of(records: list[bytes]) -> bytes:
    """The whole file."""
    return MAGIC + b"".join(len(each).to_bytes(4, "big") + each for each in records)


def records_of(contents: tuple[Content, ...]) -> list[bytes]:
    """Every record, chained."""
    before = [bytes(32), *heads(contents)]
    return [record(index, before[index], *each) for index, each in enumerate(contents)]


def main() -> None:
    """Write the vectors."""
    good = records_of(CONTENTS)
    flipped = bytearray(good[2])
    flipped[-1] ^= 1
    unchained = [*good[:3], record(3, bytes(32), *CONTENTS[3]), *good[4:]]
    explicit = record(0, bytes(32), *CONTENTS[0])
    bad = [
        ("swapped_records", [good[0], good[2], good[1], *good[3:]], 1),
        ("removed_record", [*good[:2], *good[3:]], 2),
        ("duplicated_record", [*good[:2], good[1], *good[2:]], 2),
        ("flipped_content", [*good[:2], bytes(flipped), *good[3:]], 3),
        ("wrong_previous", unchained, 3),
        ("explicit_default", [b"\x08\x00" + explicit, *good[1:]], 0),
        ("unknown_field", [*good[:1], good[1] + b"\x28\x01", *good[2:]], 1),
        ("empty_kind", [*good[:5], record(5, heads(CONTENTS)[4], "", b"x")], 5),
    ]
    whole = file_of(good)
    vectors = {
        "source": "protos/secagg/v1/transcript.proto",
        "generator": "python -m tests.transcript.vectors (hashlib only)",
        "valid": {
            "records": [{"kind": kind, "content": content.hex()} for kind, content in CONTENTS],
            "heads": [head.hex() for head in heads(CONTENTS)],
            "file": whole.hex(),
        },
        "invalid": [
            *({"name": name, "file": file_of(records).hex(), "record": at} for name, records, at in bad),
            {"name": "torn_tail", "file": whole[:-3].hex(), "record": 5},
            {"name": "torn_length", "file": (whole + b"\x00\x00").hex(), "record": 6},
            {"name": "huge_length", "file": (whole + b"\xff\xff\xff\xff").hex(), "record": 6},
            {"name": "other_magic", "file": (b"secagg/records/2" + whole[16:]).hex(), "record": 0},
        ],
    }
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
