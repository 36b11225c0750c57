"""Every small change of a message, and what it means to be refused."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from secagg.errors import MalformedMessage, ProtocolViolation


def variants(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A message with one thing changed: a bit of a byte string, a number by one, an item gone, twice or moved."""
    if isinstance(value, bytes):
        yield f"{path} first bit", bytes([value[0] ^ 1]) + value[1:]
        yield f"{path} last bit", value[:-1] + bytes([value[-1] ^ 128])
    elif isinstance(value, int):
        yield f"{path} plus one", value + 1
        yield f"{path} minus one", value - 1
    elif isinstance(value, tuple):
        yield from _items(value, path)
    elif is_dataclass(value):
        for field in fields(value):
            for name, changed in variants(getattr(value, field.name), f"{path}.{field.name}"):
                yield name, replace(value, **{field.name: changed})


def _items(value: tuple[Any, ...], path: str) -> Iterator[tuple[str, Any]]:
    if value:
        yield f"{path} first gone", value[1:]
        yield f"{path} last twice", (*value, value[-1])
    if len(value) > 1:
        yield f"{path} first two moved", (value[1], value[0], *value[2:])
    for place, item in enumerate(value):
        for name, changed in variants(item, f"{path}[{place}]"):
            yield name, (*value[:place], changed, *value[place + 1 :])


def refused_as(culprit: int, problem: str, action: Callable[..., Any], *arguments: Any) -> None:
    """The action raises ProtocolViolation with this culprit and this problem."""
    with pytest.raises(ProtocolViolation, match=problem) as caught:
        action(*arguments)
    assert caught.value.culprit == culprit


def is_refused(culprit: int, action: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the action raises MalformedMessage, or ProtocolViolation with this culprit."""
    try:
        action(*arguments)
    except MalformedMessage:
        return True
    except ProtocolViolation as violation:
        return violation.culprit == culprit
    return False
