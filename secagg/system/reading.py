"""Files that somebody else may have written: no more of them is read than a stated limit, and none is nested deeper.

A file of kilobytes must not take gigabytes or hours, whatever it holds: archives say what they hold before they are
opened (`refuse_larger`), and documents (JSON, TOML) are short and shallow.
"""

from __future__ import annotations

import io
import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from secagg.errors import BadInput, MalformedMessage

VARIABLE = "SECAGG_MAX_BYTES"
DATA_BYTES = 2 << 30
"""Most bytes of one source of data, as it lies in memory once opened; another number in SECAGG_MAX_BYTES."""
DOCUMENT_BYTES = 16 << 20
"""Most bytes of a plan, a roster, a policy, a schema, a key."""
DEEPEST = 32
_CHUNK = 1 << 20
_DEEP_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""", re.ASCII
)
"""A dotted key of more than DEEPEST parts, for which tomllib takes time and memory that grow with their square."""


def resembling(unknown: Iterable[str], known: Collection[str]) -> str:
    """The remedy for keys that a file should not have: "did you mean max_delta?"; "" where none is like a known one."""
    near = [match for name in unknown for match in get_close_matches(name, known, n=1)]
    return f"did you mean {', '.join(near)}?" if near else ""


def utf8_remedy(path: Path, what: str = "table", *, utf16: bool = False) -> str:
    """The remedy for a text file that is not UTF-8; `utf16`: it looks like UTF-16, else Windows' Western encoding."""
    said, known = ("it looks like UTF-16: ", "UTF-16") if utf16 else ("", "WINDOWS-1252")
    suffix = ".toml" if path.suffix == ".toml" else ".csv"
    return f"{said}save the {what} as UTF-8, or: iconv -f {known} -t UTF-8 {path} > utf8{suffix}"


@contextmanager
def naming(path: Path, what: str, kind: str, *, missing: str, damaged: str) -> Iterator[None]:
    """Raise BadInput naming the file for one that cannot be read, that is not of its `kind`, or that is refused."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path} ({error.strerror})", remedy=missing) from None
    except (ValueError, MalformedMessage) as error:
        raise BadInput(f"{path} is no {kind} ({error})", remedy=damaged) from None
    except BadInput as error:
        raise BadInput(f"{path}: {error.problem}", remedy=error.remedy) from None


def data_limit() -> int:
    """Most bytes that one source of data may take. Raises BadInput unless SECAGG_MAX_BYTES is a number."""
    text = os.environ.get(VARIABLE, str(DATA_BYTES))
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 60):
        raise BadInput(f"{VARIABLE} is {text!r}", remedy="give a number of bytes, or unset it")
    return int(text)


def refuse_larger(what: object, needed: int) -> None:
    """Raise BadInput for a source of data that would take more bytes than `data_limit`."""
    if needed > (most := data_limit()):
        remedy = f"set {VARIABLE} to what this machine can hold, if you trust the file"
        raise BadInput(f"{what} would take {needed} bytes, more than {most}", remedy=remedy)


def read_limited(path: Path, most: int | None = None) -> bytes:
    """A whole file, a pipe too. Raises OSError, and BadInput for more than `most` bytes (None: `data_limit`)."""
    with path.open("rb") as file:
        return read_stream(file.read, path, data_limit() if most is None else most)


def read_stream(read: Callable[[int], bytes], what: object, most: int) -> bytes:
    """All that `read` gives of a file that may expand while it is read. Raises BadInput for more than `most` bytes."""
    content = io.BytesIO()
    while part := read(min(_CHUNK, most + 1 - content.tell())):
        content.write(part)
    if content.tell() > most:
        remedy = f"is it the right file? {VARIABLE} allows larger data"
        raise BadInput(f"{what} holds more than {most} bytes", remedy=remedy)
    return content.getvalue()


def read_document(path: Path) -> str:
    """A text file. Raises OSError, UnicodeDecodeError, and BadInput for more than DOCUMENT_BYTES."""
    return read_limited(path, DOCUMENT_BYTES).decode("utf-8")


def parse_json(text: str | bytes, **options: Callable[..., Any]) -> Any:
    """The value of a JSON text; `options` are hooks of `json.loads`. Raises ValueError, also where it is too deep."""
    return _shallow(json.loads, text, **options)


def each_field_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a JSON text, as `object_pairs_hook`. Raises ValueError where two fields have one name."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a field stands twice")
    return dict(pairs)


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises ValueError, also where it is too deep."""
    if _DEEP_KEY.search(text):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    tables: dict[str, Any] = _shallow(tomllib.loads, text)
    return tables


def _shallow(parse: Callable[..., Any], text: str | bytes, **options: Callable[..., Any]) -> Any:
    """The result of `parse` for a text, where it is nested at most DEEPEST deep: who walks through it may recurse.

    Integers have at most 64 bits, as TOML has it, so that each is a float too.
    """
    try:
        value = parse(text, **options)
    except RecursionError:
        raise ValueError(f"nested more than {DEEPEST} deep") from None
    level = [value]
    for _ in range(DEEPEST + 1):
        if any(isinstance(each, int) and abs(each) >= 1 << 64 for each in level):
            raise ValueError("an integer has more than 64 bits")
        level = [
            inner
            for each in level
            for inner in (list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else [])
        ]
    if level:
        raise ValueError(f"nested more than {DEEPEST} deep")
    return value
