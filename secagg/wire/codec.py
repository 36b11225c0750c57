"""Strict, canonical conversion between frozen dataclasses and protobuf messages.

A class says `@message("SealedShare")`, has the fields of the protobuf message of that name, and bounds
each of them by `Annotated[type, Range | Length | Text | Items]`; nested messages and tuples of them are allowed.
Decoding refuses unknown fields, fields outside their bounds and every encoding but the canonical one.

Bounds of fields, declared in their annotations: of messages, where each has exactly one, and of settings.

    rounds: Annotated[int, Range(1, 10_000)]
    norm: Literal["own", "shared"]

The codec checks messages; a dataclass of settings calls `require_in_range(self)` in its `__post_init__`.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from secagg.errors import BadInput, MalformedMessage, OtherVersion
from secagg.system.printable import first_unprintable
from secagg.wire import generated

MAX_FRAME_BYTES = 64 << 20
"""The largest message that any party accepts, and the largest record of a transcript, in bytes."""


class Choice(StrEnum):
    """An enumeration of strings; its members are written as their strings in messages, settings and JSON."""

    def __repr__(self) -> str:
        return repr(self.value)

    @classmethod
    def read(cls, text: str, name: str) -> Self:
        """Return the member for the string `text`. Raises BadInput, naming the setting `name`, if there is none."""
        if text not in tuple(cls):
            raise BadInput(f"no such {name}: {text}", remedy=f"choose one of {', '.join(cls)}")
        return cls(text)


@dataclass(frozen=True)
class Range:
    """A bound on an integer or float: low ≤ value ≤ high, strict where `above` or `below` excludes that end; never NaN.

    In a message minus zero is outside every range.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and (
            value < self.high if self.below else value <= self.high
        )

    def __str__(self) -> str:
        """Return words for a remedy: "1 to 10", "a number above 0 and below 1", "a finite number of 0 or more"."""
        if not (self.above or self.below or math.isinf(self.high)):
            return f"{self.low} to {self.high}"
        low = f"above {self.low}" if self.above else f"of {self.low} or more"
        if math.isinf(self.high):
            return f"a {'finite ' if self.below else ''}number {low}"
        return f"a number {low} and {'below' if self.below else 'at most'} {self.high}"

    def problem(self, value: float) -> str | None:
        """Return the reason why `value` is refused; None if it is allowed."""
        if value == 0 and math.copysign(1.0, value) < 0:
            return "minus zero is not canonical"
        return None if value in self else f"{value} is outside {self.low}..{self.high}"


@dataclass(frozen=True)
class Length:
    """A bound on bytes or text: low ≤ len(value) ≤ high; `Length(n)` is exactly n."""

    low: int
    high: int | None = None

    def problem(self, value: bytes | str) -> str | None:
        """Return the reason why `value` is refused, without quoting it (it may be secret); None if it is allowed."""
        high = self.low if self.high is None else self.high
        return None if self.low <= len(value) <= high else f"length {len(value)} is outside {self.low}..{high}"


@dataclass(frozen=True)
class Text:
    """A bound on text that people read: low ≤ len(value) ≤ high, printable characters only (`is_printable`)."""

    low: int
    high: int

    def problem(self, value: str) -> str | None:
        """Return the reason why `value` is refused; None if it is allowed."""
        if odd := first_unprintable(value):
            return f"it holds the character {odd}, which cannot be shown"
        return Length(self.low, self.high).problem(value)


@dataclass(frozen=True)
class Items:
    """A bound on a tuple, of `low` to `high` items. `each` bounds items that are plain numbers or texts.

    With `ascending` the items (or their attribute of that name) must strictly increase.
    """

    low: int
    high: int
    each: Range | Length | Text | None = None
    ascending: bool | str = False

    def problem(self, values: tuple[object, ...]) -> str | None:
        """Return the reason why `values` is refused; None if it is allowed."""
        if not self.low <= len(values) <= self.high:
            return f"{len(values)} items are outside {self.low}..{self.high}"
        if self.each is not None:
            for value in values:
                if found := self.each.problem(value):  # type: ignore[arg-type]
                    return found
        if self.ascending:
            keys = [getattr(item, self.ascending) for item in values] if isinstance(self.ascending, str) else values
            if any(later <= earlier for earlier, later in pairwise(keys)):
                return "items are not in strictly ascending order"
        return None


_DECLARED: dict[type, Mapping[str, Range | tuple[object, ...]]] = {}
"""Cache of `_declared`: for each class checked before, its fields' ranges and choices by field name."""


def require_in_range(settings: object) -> None:
    """Raise BadInput for a field of a dataclass that is outside the `Range` or the `Literal` of its annotation.

    None passes where the annotation is optional. Annotations are read at run time, those of base classes too: what they
    name must be imported, not only under TYPE_CHECKING.
    """
    for name, allowed in _declared(type(settings)).items():
        value = getattr(settings, name)
        if value is not None and value not in allowed:
            raise BadInput(f"{name} is {value!r}", remedy=f"give {_words(allowed)}")


def ranges_of(settings: type) -> dict[str, str]:
    """Return in words what `require_in_range` allows for each field of a dataclass that it checks, by field name."""
    return {name: _words(allowed) for name, allowed in _declared(settings).items()}


def _declared(cls: type) -> Mapping[str, Range | tuple[object, ...]]:
    if cls not in _DECLARED:
        found = {name: _allowed(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
        _DECLARED[cls] = {name: allowed for name, allowed in found.items() if allowed is not None}
    return _DECLARED[cls]


def _words(allowed: Range | tuple[object, ...]) -> str:
    return str(allowed) if isinstance(allowed, Range) else " or ".join(map(str, allowed))


def _allowed(hint: Any) -> Range | tuple[object, ...] | None:
    arguments = get_args(hint)
    if get_origin(hint) is Annotated:
        return next((each for each in arguments[1:] if isinstance(each, Range)), None) or _allowed(arguments[0])
    if get_origin(hint) is Literal:
        return arguments
    if get_origin(hint) in (Union, UnionType):
        return next((found for each in arguments if (found := _allowed(each)) is not None), None)
    return None


for _module in pkgutil.iter_modules(generated.__path__):  # each puts its messages into the pool
    if _module.name.endswith("_pb2"):
        importlib.import_module(f"{generated.__name__}.{_module.name}")
VERSION = "version"
"""The name of the field that holds the version of a message's format."""
_PLAIN = (bool, int, float, str, bytes)
T = TypeVar("T")


@dataclass(frozen=True)
class Field:
    """One field of a message class: how it is converted, and what it may hold."""

    name: str
    bound: Range | Length | Text | Items | None
    item: type | None  # the message class of a nested message, or of a tuple's items
    plural: bool
    plain: type | None  # the exact type of a plain field or of plain items
    choice: type[Choice] | None = None  # of a plain text that is a word of this enumeration


_FIELDS: dict[type, tuple[Field, ...]] = {}
_PROTOS: dict[type, type[Message]] = {}
_TAGS: dict[type, str] = {}


def message(tag: str) -> Callable[[type[T]], type[T]]:
    """Return a class decorator that ties a frozen dataclass to the protobuf message `secagg.v1.<tag>`.

    The tag stands for the class on the wire (`tag_of`), so that renaming a class changes no byte.
    Raises TypeError when no .proto has the message, a field has no bound, or the two do not have the same fields.
    """

    def register(cls: type[T]) -> type[T]:
        try:
            proto = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"secagg.v1.{tag}"))
        except KeyError:
            problem = f"no .proto in protos/secagg/v1 has the message {tag}: add it, then run make protos"
            raise TypeError(problem) from None
        declared = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if declared != [field.name for field in proto.DESCRIPTOR.fields]:
            raise TypeError(f"{cls.__name__} and secagg.v1.{tag} do not have the same fields")
        hints = get_type_hints(cls, include_extras=True)
        _FIELDS[cls] = tuple(_field(name, hints[name]) for name in declared)
        _PROTOS[cls] = proto
        _TAGS[cls] = tag
        return cls

    return register


def _field(name: str, hint: Any) -> Field:
    bound: Range | Length | Text | Items | None = None
    if get_origin(hint) is Annotated:
        hint, bound = get_args(hint)
    choice = next(
        (kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, Choice)), None
    )
    if choice is not None and isinstance(bound, Text):
        return Field(name, bound, None, False, str, choice)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        if not isinstance(bound, Items):
            raise TypeError(f"field {name} needs an Items bound")
        if item in _PLAIN:
            if bound.each is None:
                raise TypeError(f"the items of field {name} need a bound")
            return Field(name, bound, None, True, item)
        return Field(name, bound, item, True, None)
    if hint in _PLAIN:
        if bound is None:
            raise TypeError(f"field {name} needs a bound")
        return Field(name, bound, None, False, hint)
    return Field(name, None, hint, False, None)


def tag_of(cls: type) -> str:
    """Return the wire name of a registered message class, which is the name of its protobuf message."""
    return _TAGS[cls]


def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a registered message class, in the order of their protobuf numbers."""
    return _FIELDS[cls]


def class_with(names: set[str]) -> type | None:
    """Return the first registered message class with exactly these field names; None if there is none."""
    return next((cls for cls, fields in _FIELDS.items() if {field.name for field in fields} == names), None)


def read_choices(value: Any) -> None:
    """Turn the strings in a message's `Choice` fields into enumeration members; an empty string stays where allowed.

    The message is frozen; an empty string is allowed where the field's bound says so.
    To be called in `__post_init__`. Raises BadInput for a word that is none of them.
    """
    for field in _FIELDS[type(value)]:
        word, may_be_empty = getattr(value, field.name), isinstance(field.bound, Text) and field.bound.low == 0
        if field.choice is not None and (word or not may_be_empty):
            object.__setattr__(value, field.name, field.choice.read(word, field.name))


def encode(value: Any) -> bytes:
    """Return the canonical bytes of a message. Raises MalformedMessage when a field is out of its bound."""
    return _to_proto(value).SerializeToString(deterministic=True)


def decode(cls: type[T], data: bytes) -> T:
    """Parse a message of class `cls` from its canonical bytes, and refuse all other bytes.

    Raises MalformedMessage for bytes that do not parse, fields out of bounds, unknown fields, and bytes
    that differ from the canonical encoding of what they mean; OtherVersion where they say that they are of one.
    """
    proto = _PROTOS[cls]()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise MalformedMessage(cls.__name__, "the bytes do not parse") from None
    refuse_other_version(cls, getattr(proto, VERSION, None))
    proto.DiscardUnknownFields()
    if proto.SerializeToString(deterministic=True) != data:
        raise MalformedMessage(cls.__name__, "not the canonical encoding")
    return _from_proto(cls, proto)


def refuse_other_version(cls: type, found: object) -> None:
    """Raise OtherVersion if `found` is a positive version number other than the only one that `cls` allows.

    To be asked first: other versions have other fields, of which nothing else could be said.
    """
    bound = next((field.bound for field in _FIELDS[cls] if field.name == VERSION), None)
    if isinstance(bound, Range) and type(found) is int and 0 < found != bound.low:
        raise OtherVersion(cls.__name__, found, int(bound.low))


def _to_proto(value: Any) -> Message:
    cls = type(value)
    values: dict[str, Any] = {}
    for field in _FIELDS[cls]:
        content = getattr(value, field.name)
        content = content if field.choice is None else str(content)
        _check(cls, field, content)
        if field.item is None:
            values[field.name] = content
        elif field.plural:
            values[field.name] = [_to_proto(item) for item in content]
        else:
            values[field.name] = _to_proto(content)
    try:
        return _PROTOS[cls](**values)
    except ValueError:  # text that is no Unicode, numbers outside the protobuf type
        raise MalformedMessage(cls.__name__, "a field does not fit its protobuf type") from None


def _from_proto(cls: type[T], proto: Message) -> T:
    values: dict[str, Any] = {}
    for field in _FIELDS[cls]:
        content = getattr(proto, field.name)
        if field.plural:
            content = tuple(content) if field.item is None else tuple(_from_proto(field.item, each) for each in content)
        elif field.item is not None:
            content = _from_proto(field.item, content)
        _check(cls, field, content)
        values[field.name] = content
    return cls(**values)


def _check(cls: type, field: Field, content: Any) -> None:
    expected = field.plain if not field.plural else None
    if expected is not None and type(content) is not expected:
        raise MalformedMessage(cls.__name__, f"{field.name} is {type(content).__name__}, not {expected.__name__}")
    if field.bound is not None and (found := field.bound.problem(content)):
        raise MalformedMessage(cls.__name__, f"{field.name}: {found}")
