"""Conversion of values to JSON (`plain`), and the readable JSON form of a message, for files that people open.

The latter carries the same value as the canonical bytes, which alone are hashed and signed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from secagg.errors import BadInput, MalformedMessage, OtherVersion
from secagg.system.reading import each_field_once, parse_json, read_document, resembling
from secagg.wire.codec import VERSION, Field, class_with, decode, encode, fields_of, refuse_other_version

T = TypeVar("T")


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: dataclasses become objects of their fields, tuples lists, bytes hex.

    Infinities become "inf" and "-inf", NaN null, an enumeration's member its value. A dataclass that has a `to_json`
    is what that returns.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if is_dataclass(value):
        return value.to_json() if hasattr(value, "to_json") else plain_fields(value)
    return value


def plain_fields(value: Any, /, *properties: str, without: Collection[str] = (), **renamed: str) -> dict[str, Any]:
    """Convert a dataclass to a JSON object of its fields, except those in `without`, plus the named `properties`.

    `renamed` has the attribute for each key that is called otherwise: plain_fields(report, round="number").
    """
    keys = {name: key for key, name in renamed.items()}
    names = [each.name for each in fields(value) if each.name not in without]
    return {keys.get(name, name): plain(getattr(value, name)) for name in (*names, *properties)}


def to_json(message: Any) -> str:
    """Return the indented JSON of a message, with the fields in the order of their protobuf numbers."""
    return json.dumps(plain_fields(message), indent=2, ensure_ascii=False) + "\n"


def from_json(cls: type[T], text: str) -> T:
    """Parse a message from JSON, with the bounds of the binary form. Raises MalformedMessage, or OtherVersion."""
    try:
        content = parse_json(text, object_pairs_hook=each_field_once)
    except ValueError as error:
        raise MalformedMessage(cls.__name__, f"not JSON ({error})") from None
    if isinstance(content, dict):
        kind = class_with(set(content))  # a plan given as a roster is told from a roster of another version
        if kind is not None and set(content) != {field.name for field in fields_of(cls)}:
            raise MalformedMessage(cls.__name__, f"a file of another kind: {kind.__name__}")
        refuse_other_version(cls, content.get(VERSION))
    return decode(cls, encode(_build(cls, content)))


def read_json(cls: type[T], path: Path, what: str, again: str) -> T:
    """Read a message's JSON file. Raises BadInput naming the file; `again` tells how to remake an outdated file."""
    try:
        return from_json(cls, read_document(path))
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path} ({error.strerror})") from None
    except OtherVersion as error:
        problem = f"{path} is a {what} of version {error.version}, this program reads version {error.known}"
        remedy = again if error.version < error.known else "use the newer secagg that wrote it"
        raise BadInput(problem, remedy=remedy) from None
    except (MalformedMessage, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no {what}: {error}") from None


def _build(cls: type, content: Any) -> Any:
    if not isinstance(content, dict):
        raise MalformedMessage(cls.__name__, "not a JSON object")
    fields = fields_of(cls)
    names = {field.name for field in fields}
    if set(content) != names:
        differing = ", ".join(sorted(set(content) ^ names))
        near = resembling(sorted(set(content) - names), names)
        raise MalformedMessage(cls.__name__, f"fields missing or unknown: {differing}{near and f'; {near}'}")
    return cls(**{field.name: _value(cls, field, content[field.name]) for field in fields})


def _value(cls: type, field: Field, content: Any) -> Any:
    if field.plural:
        if not isinstance(content, list):
            raise MalformedMessage(cls.__name__, f"{field.name} is not a list")
        return tuple(_build(field.item, item) if field.item else _parse(cls, field, item) for item in content)
    return _build(field.item, content) if field.item else _parse(cls, field, content)


def _parse(cls: type, field: Field, content: Any) -> Any:
    if field.plain is bytes:
        try:
            return bytes.fromhex(content)
        except (TypeError, ValueError):
            raise MalformedMessage(cls.__name__, f"{field.name} is not hexadecimal") from None
    if field.plain is float and (content == "inf" or type(content) is int):
        try:
            return float(content)
        except OverflowError:
            raise MalformedMessage(cls.__name__, f"{field.name} is too large") from None
    if type(content) is not field.plain:
        raise MalformedMessage(cls.__name__, f"{field.name} has the wrong type")
    return content
