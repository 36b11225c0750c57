"""Hypothesis strategies for every registered message class, drawn from the bounds that the class declares."""

import importlib
import json
import pkgutil
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

import secagg
from secagg.plan import Plan
from secagg.roster import Member, Roster
from secagg.wire import Items, Length, Range, codec

MOST_ITEMS = 3
MOST_BYTES = 40
_WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=MOST_BYTES)
_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


def _import_everything() -> None:
    for module in pkgutil.walk_packages(secagg.__path__, "secagg."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


_import_everything()
CLASSES: tuple[type, ...] = tuple(sorted(codec._FIELDS, key=lambda cls: cls.__name__))
FEWER = settings(max_examples=settings().max_examples // 5)  # for each of many classes, or for large values
by_name = {cls.__name__: cls for cls in CLASSES}


def _plain(kind: type | None, bound: Range | Length) -> st.SearchStrategy[Any]:
    if isinstance(bound, Range):
        if kind is float:
            return st.floats(bound.low, bound.high, allow_nan=False)
        return st.integers(int(bound.low), int(bound.high))
    high = bound.low if bound.high is None else bound.high
    high = max(bound.low, min(high, MOST_BYTES))
    if kind is bytes:
        return st.binary(min_size=bound.low, max_size=high)
    return _WORDS.map(lambda text: text[:high].ljust(bound.low, "x"))


def _field(field: codec.Field) -> st.SearchStrategy[Any]:
    if not field.plural:
        return values(field.item) if field.item else _plain(field.plain, field.bound)
    bound = field.bound
    assert isinstance(bound, Items)
    single = values(field.item) if field.item else _plain(field.plain, bound.each)
    key = (lambda item: getattr(item, bound.ascending)) if isinstance(bound.ascending, str) else (lambda item: item)
    size = {"min_size": bound.low, "max_size": max(bound.low, min(bound.high, MOST_ITEMS))}
    if not bound.ascending:
        return st.lists(single, **size).map(tuple)
    return st.lists(single, unique_by=key, **size).map(lambda items: tuple(sorted(items, key=key)))


def values(cls: type) -> st.SearchStrategy[Any]:
    """Any allowed value of a message class."""
    if cls is Plan:
        return plans()
    if cls is Member:
        return st.builds(Member, name=_NAMES, role=st.sampled_from(["server", "client"]), identity=_key())
    if cls is Roster:
        return rosters()
    return st.builds(cls, **{field.name: _field(field) for field in codec.fields_of(cls)})


def _key() -> st.SearchStrategy[bytes]:
    return st.binary(min_size=32, max_size=32)


@st.composite
def rosters(draw: st.DrawFn) -> Roster:
    """A roster with one server and some clients."""
    names = draw(st.lists(_NAMES, min_size=2, max_size=4, unique=True))
    keys = draw(st.lists(_key(), min_size=len(names), max_size=len(names), unique=True))
    members = [
        Member(name, "client" if place else "server", key)
        for place, (name, key) in enumerate(zip(names, keys, strict=True))
    ]
    return Roster.of(draw(_WORDS.filter(len)), members)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A plan whose words are among those allowed."""
    chosen = {field.name: draw(_field(field)) for field in codec.fields_of(Plan)}
    kind = draw(st.sampled_from(["features", "images", "table"]))
    chosen |= {
        "data_kind": kind,
        "schema": "{}" if kind == "table" else "",
        "adjacency": draw(st.sampled_from(["", "add-remove", "replace-one"])),
        "unit": draw(st.sampled_from(["record", "silo"])),
        "result": draw(st.sampled_from(["server", "members"])),
        "classes": tuple(draw(st.lists(_WORDS.filter(len), min_size=2, max_size=4, unique=True))),
        "parameters": json.dumps({draw(_WORDS): 1}, separators=(",", ":")),
    }
    return Plan(**chosen)


def any_value(*without: type) -> st.SearchStrategy[Any]:
    """A value of any class."""
    return st.sampled_from([cls for cls in CLASSES if cls not in without]).flatmap(values)


__all__ = ["CLASSES", "any_value", "by_name", "values"]
