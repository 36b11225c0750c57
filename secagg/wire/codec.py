"""Strict, canonical conversion between frozen dataclasses and protobuf messages.

A class says `@message("SealedShare")`, has the fields of the protobuf message of that name, and bounds
each of them by `Annotated[type, Range | Length | Text | Items]`; nested messages and tuples of them are allowed.
Decoding refuses unknown fields, fields outside their bounds and every encoding but the canonical one.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from secagg.errors import MalformedMessage, OtherVersion
from secagg.wire import generated
from secagg.wire.bounds import Choice, Items, Length, Range, Text

for _module in pkgutil.iter_modules(generated.__path__):  # each puts its messages into the pool
    if _module.name.endswith("_pb2"):
        importlib.import_module(f"{generated.__name__}.{_module.name}")
VERSION = "version"
"""Name of the field that tells the versions of a format apart."""
_PLAIN = (bool, int, float, str, bytes)
T = TypeVar("T")


@dataclass(frozen=True)
class Field:
    """Conversion and checks of one field of a message class."""

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
    """Class decorator: tie a frozen dataclass to the protobuf message `secagg.v1.<tag>`.

    The tag stands for the class on the wire (`tag_of`), so that renaming a class changes no byte.
    Raises TypeError when no .proto has the message, a field has no bound, or the two do not have the same fields.
    """

    def register(cls: type[T]) -> type[T]:
        proto = _proto_named(tag)
        declared = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if declared != [field.name for field in proto.DESCRIPTOR.fields]:
            raise TypeError(f"{cls.__name__} and secagg.v1.{tag} do not have the same fields")
        hints = get_type_hints(cls, include_extras=True)
        _FIELDS[cls] = tuple(_field(name, hints[name]) for name in declared)
        _PROTOS[cls] = proto
        _TAGS[cls] = tag
        return cls

    return register


def _proto_named(name: str) -> type[Message]:
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(f"secagg.v1.{name}")
    except KeyError:
        raise TypeError(f"no .proto in protos/secagg/v1 has the message {name}: add it, then run make protos") from None
    return message_factory.GetMessageClass(descriptor)


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
    """The name of a registered message class on the wire: that of its protobuf message."""
    return _TAGS[cls]


def fields_of(cls: type) -> tuple[Field, ...]:
    """The fields of a registered message class, in number order."""
    return _FIELDS[cls]


def class_with(names: set[str]) -> type | None:
    """The first registered message class with exactly these fields, None where there is none."""
    return next((cls for cls, fields in _FIELDS.items() if {field.name for field in fields} == names), None)


def read_choices(value: Any) -> None:
    """Replace the words of a frozen message's choices by the choices; an empty one stays where its bound allows it.

    To be called in `__post_init__`. Raises BadInput for a word that is none of them.
    """
    for field in _FIELDS[type(value)]:
        word, may_be_empty = getattr(value, field.name), isinstance(field.bound, Text) and field.bound.low == 0
        if field.choice is not None and (word or not may_be_empty):
            object.__setattr__(value, field.name, field.choice.read(word, field.name))


def encode(value: Any) -> bytes:
    """The canonical bytes of a message value. Raises MalformedMessage when a field breaks its bound."""
    return _to_proto(value).SerializeToString(deterministic=True)


def decode(cls: type[T], data: bytes) -> T:
    """Read a message strictly.

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
    """Raise OtherVersion where messages of the class have one version, and `found` is another positive number.

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
