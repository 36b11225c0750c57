"""Read files that somebody else may have written, with limits on their size and on the depth of their nesting.

A file of kilobytes must not take gigabytes or hours, whatever it holds: archives say what they hold before they are
opened (`refuse_larger`), and documents (JSON, TOML) are short and shallow.
"""

from __future__ import annotations

import hashlib
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
"""Most bytes of memory that one opened source of data may take; SECAGG_MAX_BYTES sets another number."""
DOCUMENT_BYTES = 16 << 20
"""Most bytes of a document: a plan, a roster, a policy, a schema, a key."""
DEEPEST = 32
_CHUNK = 1 << 20
_DEEP_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""", re.ASCII
)
"""Matches a dotted key of more than DEEPEST parts, for which tomllib's time and memory grow with their square."""


def resembling(unknown: Iterable[str], known: Collection[str]) -> str:
    """Return advice on a file's unknown keys, "did you mean max_delta?"; "" where none resembles a known one."""
    near = [match for name in unknown for match in get_close_matches(name, known, n=1)]
    return f"did you mean {', '.join(near)}?" if near else ""


def instead_of(unknown: Collection[str], known: Collection[str]) -> str:
    """Return advice on a file's unknown keys: the nearest known key, or to leave them out, and which there are."""
    strange = [name for name in unknown if not resembling([name], known)]
    left_out = f"leave out {', '.join(strange)}: the keys are {', '.join(sorted(known))}" if strange else ""
    return " ".join(filter(None, (resembling(unknown, known), left_out)))


def utf8_remedy(path: Path, what: str = "table", *, utf16: bool = False) -> str:
    """Return advice on converting a file to UTF-8, from UTF-16 if `utf16`, else from Windows-1252."""
    said, known = ("it looks like UTF-16: ", "UTF-16") if utf16 else ("", "WINDOWS-1252")
    suffix = ".toml" if path.suffix == ".toml" else ".csv"
    return f"{said}save the {what} as UTF-8, or: iconv -f {known} -t UTF-8 {path} > utf8{suffix}"


GO_ON = "go on with the secagg that wrote it"
"""The remedy for a file of an older format that cannot be written anew."""


class NamesNoFormat(ValueError):
    """Raised for a JSON file without the field `format`, which older versions did not write."""


@contextmanager
def naming(path: Path, what: str, kind: str, *, missing: str, damaged: str) -> Iterator[None]:
    """Turn errors of reading and parsing a file, in this context, into BadInput that names the file."""
    try:
        yield
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path} ({error.strerror})", remedy=missing) from None
    except (ValueError, MalformedMessage) as error:
        remedy = GO_ON if isinstance(error, NamesNoFormat) else damaged
        raise BadInput(f"{path} is no {kind} ({error})", remedy=remedy) from None
    except BadInput as error:
        raise BadInput(f"{path}: {error.problem}", remedy=error.remedy) from None


def data_limit() -> int:
    """Return the byte limit for one source of data. Raises BadInput unless SECAGG_MAX_BYTES is a number."""
    text = os.environ.get(VARIABLE, str(DATA_BYTES))
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 60):
        raise BadInput(f"{VARIABLE} is {text!r}", remedy="give a number of bytes, or unset it")
    return int(text)


def refuse_larger(what: object, needed: int) -> None:
    """Raise BadInput if a source of data would take more bytes than `data_limit` allows."""
    if needed > (most := data_limit()):
        remedy = f"set {VARIABLE} to what this machine can hold, if you trust the file"
        raise BadInput(f"{what} would take {needed} bytes, more than {most}", remedy=remedy)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file, which may be larger than memory. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_limited(path: Path, most: int | None = None) -> bytes:
    """Read a whole file or pipe. Raises OSError, and BadInput for more than `most` bytes (None: `data_limit`)."""
    with path.open("rb") as file:
        return read_stream(file.read, path, data_limit() if most is None else most)


def read_stream(read: Callable[[int], bytes], what: object, most: int) -> bytes:
    """Read a stream, such as a compressed file, to its end. Raises BadInput for more than `most` bytes."""
    content = io.BytesIO()
    while part := read(min(_CHUNK, most + 1 - content.tell())):
        content.write(part)
    if content.tell() > most:
        remedy = f"is it the right file? {VARIABLE} allows larger data"
        raise BadInput(f"{what} holds more than {most} bytes", remedy=remedy)
    return content.getvalue()


def read_document(path: Path) -> str:
    """Read a text file. Raises OSError, UnicodeDecodeError, and BadInput for more than DOCUMENT_BYTES."""
    return read_limited(path, DOCUMENT_BYTES).decode("utf-8")


def parse_json(text: str | bytes, **options: Callable[..., Any]) -> Any:
    """Parse a JSON text; `options` are hooks of `json.loads`. Raises ValueError, also for too deep nesting."""
    return _shallow(json.loads, text, **options)


def each_field_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a dict (an `object_pairs_hook`). Raises ValueError for a repeated name."""
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a field stands twice")
    return dict(pairs)


def require_fields(content: Any, kind: str, version: int, names: Collection[str]) -> dict[str, Any]:
    """Return `content` if it is an object with the fields `names`, `version` and `format` (`kind`), and no others.

    Raises ValueError for any other: `NamesNoFormat` for an older file without `format`.
    """
    if not isinstance(content, dict) or set(content) - {"format"} != {*names, "version"}:
        raise ValueError("fields missing or unknown")
    if "format" not in content:
        raise NamesNoFormat(f"it does not name the format {kind}")
    if content["format"] != kind:
        raise ValueError(f"its format is not {kind}")
    if type(content["version"]) is not int or content["version"] != version:
        raise ValueError(f"it is not of version {version}")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text into its tables. Raises ValueError, also for too deep nesting."""
    if _DEEP_KEY.search(text):
        raise ValueError(f"a key has more than {DEEPEST} parts")
    tables: dict[str, Any] = _shallow(tomllib.loads, text)
    return tables


def _shallow(parse: Callable[..., Any], text: str | bytes, **options: Callable[..., Any]) -> Any:
    """Parse a text. Raises ValueError where the value is nested more than DEEPEST deep, so callers may recurse.

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
