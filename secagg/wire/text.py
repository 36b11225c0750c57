"""The readable JSON form of a message, for files that people open: bytes as hex, infinity as "inf".

It carries the same value as the canonical bytes, which alone are hashed and signed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from secagg.errors import BadInput, MalformedMessage, OtherVersion
from secagg.system.reading import each_field_once, parse_json, read_document, resembling
from secagg.wire.codec import VERSION, Field, class_with, decode, encode, fields_of, refuse_other_version

T = TypeVar("T")


def to_json(value: Any) -> str:
    """Indented JSON with the fields in number order."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n"


def from_json(cls: type[T], text: str) -> T:
    """Read strictly: every field present, none unknown, types and bounds as in the binary form.

    Raises MalformedMessage, OtherVersion for what another version wrote.
    """
    try:
        content = parse_json(text, object_pairs_hook=each_field_once)
    except ValueError as error:
        raise MalformedMessage(cls.__name__, f"not JSON ({error})") from None
    if isinstance(content, dict):
        _refuse_other_kind(cls, content)
        refuse_other_version(cls, content.get(VERSION))
    return decode(cls, encode(_build(cls, content)))


def read_json(cls: type[T], path: Path, what: str, again: str) -> T:
    """Read a file of the JSON form; `again` says how an older one is made anew.

    Raises BadInput naming the file when it is missing, holds no such message, or one of another version.
    """
    try:
        return from_json(cls, read_document(path))
    except OSError as error:
        raise BadInput(f"cannot read the {what} {path} ({error.strerror})") from None
    except OtherVersion as error:
        raise BadInput(
            f"{path} is a {what} of version {error.version}, this program reads version {error.known}",
            remedy=again if error.version < error.known else "use the newer secagg that wrote it",
        ) from None
    except (MalformedMessage, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no {what}: {error}") from None


def _refuse_other_kind(cls: type, content: dict[str, Any]) -> None:
    """Tell a plan given as a roster from a roster of another version: its fields are those of a plan."""
    kind = class_with(set(content))
    if kind is not None and set(content) != {field.name for field in fields_of(cls)}:
        raise MalformedMessage(cls.__name__, f"a file of another kind: {kind.__name__}")


def _plain(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for field in fields_of(type(value)):
        content = getattr(value, field.name)
        if field.plural:
            result[field.name] = [_scalar(item) if field.item is None else _plain(item) for item in content]
        else:
            result[field.name] = _scalar(content) if field.item is None else _plain(content)
    return result


def _scalar(content: Any) -> Any:
    if isinstance(content, bytes):
        return content.hex()
    if isinstance(content, float) and math.isinf(content):
        return "inf"
    return content


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
