"""Hypothesis strategies for every registered message class, drawn from the bounds that the class declares."""

import importlib
import json
import math
import pkgutil
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

import secagg
from secagg.agreement.plan import Plan, PlannedNoise
from secagg.agreement.roster import Member, Roster
from secagg.system.printable import is_printable
from secagg.wire import Items, Length, Range, Text, codec

MOST_ITEMS = 3
MOST_BYTES = 40
_WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=MOST_BYTES)
_SHOWN = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")).filter(is_printable), max_size=MOST_BYTES)
_NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


def _import_everything() -> None:
    for module in pkgutil.walk_packages(secagg.__path__, "secagg."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


_import_everything()
CLASSES: tuple[type, ...] = tuple(sorted(codec._FIELDS, key=lambda cls: cls.__name__))
FEWER = settings(max_examples=settings().max_examples // 5)  # for each of many classes, or for large values
by_name = {cls.__name__: cls for cls in CLASSES}


def _plain(kind: type | None, bound: Range | Length | Text) -> st.SearchStrategy[Any]:
    if isinstance(bound, Range):
        if kind is float:
            return st.floats(bound.low, bound.high, allow_nan=False).map(lambda value: value + 0.0)  # no minus zero
        return st.integers(int(bound.low), int(bound.high))
    high = bound.low if bound.high is None else bound.high
    high = max(bound.low, min(high, MOST_BYTES))
    if kind is bytes:
        return st.binary(min_size=bound.low, max_size=high)
    words = _SHOWN if isinstance(bound, Text) else _WORDS
    return words.map(lambda text: text[:high].ljust(bound.low, "x"))


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
        return exact_plans() | noisy_plans()
    if cls is Member:
        roles = st.sampled_from(["server", "client"])
        return st.builds(Member, name=_NAMES, role=roles, identity=_key(), tls_spki_sha256=_key())
    if cls is Roster:
        return rosters()
    return st.builds(cls, **{field.name: _field(field) for field in codec.fields_of(cls)})


def _key() -> st.SearchStrategy[bytes]:
    return st.binary(min_size=32, max_size=32)


@st.composite
def rosters(draw: st.DrawFn) -> Roster:
    """A roster with one server and some clients."""
    names = draw(st.lists(_NAMES, min_size=2, max_size=4, unique=True))
    keys = draw(st.lists(_key(), min_size=2 * len(names), max_size=2 * len(names), unique=True))
    members = [
        Member(name, "client" if place else "server", *pair)
        for place, (name, *pair) in enumerate(zip(names, keys[::2], keys[1::2], strict=True))
    ]
    return Roster.of(draw(_SHOWN.filter(len)), members)


def _plans(promise: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Plan]:
    """Plans whose words are among those allowed, with a promise that is in itself complete."""

    @st.composite
    def draw_plan(draw: st.DrawFn) -> Plan:
        chosen = {field.name: draw(_field(field)) for field in codec.fields_of(Plan)}
        kind = draw(st.sampled_from(["features", "images", "table"]))
        chosen |= {
            "data_kind": kind,
            "schema": "{}" if kind == "table" else "",
            "unit": draw(st.sampled_from(["record", "client"])),
            "result": draw(st.sampled_from(["server", "members"])),
            "security": draw(st.sampled_from([128, 192, 256])),
            "at_least": draw(st.integers(0, 2**40)),
            "classes": tuple(draw(st.lists(_SHOWN.filter(len), min_size=2, max_size=4, unique=True))),
            "parameters": json.dumps({draw(_SHOWN): 1}, separators=(",", ":")),
        }
        chosen |= draw(promise)
        levels = sorted(draw(st.sets(st.integers(0, 4095), max_size=2))) if chosen["noise"] == "client" else ()
        return Plan(**chosen | {"noise_levels": tuple(levels)})

    return draw_plan()


def exact_plans() -> st.SearchStrategy[Plan]:
    """Plans without noise."""
    exact = {"epsilon": math.inf, "delta": 0.0, "adjacency": "", "noise": "", "noises": (), "normalisation": "none"}
    return _plans(st.just(exact) | st.just({**exact, "normalisation": "unit", "radius": 1.0}))


def noisy_plans() -> st.SearchStrategy[Plan]:
    """Plans with a finite epsilon."""
    return _plans(
        st.fixed_dictionaries(
            {
                "epsilon": st.floats(1e-6, 1e300),
                "delta": st.floats(0.0, 0.5, exclude_min=True),
                "adjacency": st.sampled_from(["add-remove", "replace-one"]),
                "noise": st.sampled_from(["client", "aggregator"]),
                "noises": st.lists(values(PlannedNoise), min_size=1, max_size=MOST_ITEMS).map(tuple),
                "radius": st.just(1.0),
                "normalisation": st.just("unit"),
            }
        )
    )


def any_value(*without: type) -> st.SearchStrategy[Any]:
    """A value of any class."""
    return st.sampled_from([cls for cls in CLASSES if cls not in without]).flatmap(values)


__all__ = ["CLASSES", "any_value", "by_name", "exact_plans", "values"]
