"""Schemas: strict forms and refused contradictions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.agreement.schema import GUIDE, Categorical, Numeric, Schema, canonical, load_schema
from secagg.errors import BadInput
from secagg.system.printable import is_printable
from tests.architecture.source import ROOT

HEART = load_schema("heart-disease")
texts = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")).filter(is_printable), max_size=8)
distinct = st.lists(texts, min_size=2, max_size=5, unique_by=canonical)


@st.composite
def schemas(draw):
    """Any valid schema."""
    names = draw(st.lists(texts, min_size=2, max_size=6, unique=True))
    low = draw(st.floats(-1e6, 1e6))
    columns = [
        Categorical(name, tuple(draw(distinct))) if draw(st.booleans()) else Numeric(name, low, low + 1.0)
        for name in names[1:]
    ]
    values = draw(distinct)
    classes = tuple(f"class {value}" for value in values)
    rule = draw(st.sampled_from(["refuse", "midpoint", "indicator"]))
    fields = draw(st.sampled_from([(), tuple(names)]))
    pairs = tuple(zip(values, classes, strict=True))
    return Schema(tuple(columns), names[0], pairs, classes, tuple(draw(st.lists(texts, max_size=2))), rule, fields)


@given(schemas())
def test_forms_are_inverse(schema):
    """A schema survives its dictionary and its JSON form exactly."""
    assert Schema.from_dict(schema.to_dict()) == schema
    assert Schema.from_json(schema.to_json()) == schema


def test_packaged_schema_by_name_and_by_path(tmp_path):
    """A packaged schema loads by name, another file by its path; both keep the declared meaning."""
    assert HEART.dimension == 6 + 2 + 4 + 2 + 3 + 2 + 3 + 3 + 13
    assert HEART.classes == ("absent", "present")
    path = tmp_path / "own.toml"
    path.write_text(
        'label = "y"\nclasses = ["a", "b"]\n[label_values]\nno = "a"\nyes = "b"\n'
        '[[columns]]\nname = "x"\nkind = "numeric"\nlow = 0\nhigh = 1\n'
    )
    assert load_schema(str(path)).columns == (Numeric("x", 0.0, 1.0),)


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"columns": []},
        {"columns": "age"},
        {"columns": [{"name": "x", "kind": "numeric", "low": 1.0, "high": 1.0}]},
        {"columns": [{"name": "x", "kind": "numeric", "low": 0.0, "high": float("inf")}]},
        {"columns": [{"name": "x", "kind": "numeric", "low": -1.7e308, "high": 1.7e308}]},
        {"columns": [{"name": "x", "kind": "numeric", "low": "0", "high": 1.0}]},
        {"columns": [{"name": "x", "kind": "numeric", "low": True, "high": 2.0}]},
        {"columns": [{"name": "x", "kind": "numeric", "low": 0.0, "high": 1.0, "mean": 0.5}]},
        {"columns": [{"name": "x", "kind": "categorical", "values": []}]},
        {"columns": [{"name": "x", "kind": "categorical", "values": ["1", "1.0"]}]},
        {"columns": [{"name": "x", "kind": "categorical", "values": [1]}]},
        {"columns": [{"name": "x", "kind": "text"}]},
        {"columns": [3]},
        {"label": 3},
        {"label": "age"},
        {"classes": ["absent"]},
        {"classes": ["absent", "present", "unknown"]},
        {"label_values": {"0": "absent", "1": "elsewhere"}},
        {"label_values": {"0": "absent", "0.0": "present"}},
        {"label_values": ["0"]},
        {"missing_rule": "mean"},
        {"fields": ["age"]},
        {"positive": "elsewhere"},
        {
            "positive": "absent",
            "classes": ["absent", "present", "c"],
            "label_values": {"0": "absent", "1": "present", "2": "c"},
        },
    ],
)
def test_contradiction_is_refused(change):
    """Unknown keys, other types, empty ranges and contradicting parts are refused."""
    with pytest.raises(BadInput):
        Schema.from_dict(HEART.to_dict() | change)


def test_keys_are_refused_with_the_guide():
    """Missing and unknown keys name the guide's section, which is there, and the key that was meant."""
    values = HEART.to_dict()
    values["clases"] = values.pop("classes")
    with pytest.raises(BadInput, match=r"missing keys: classes; unknown keys: clases; did you mean classes") as refused:
        Schema.from_dict(values)
    assert refused.value.remedy.endswith(f"see {GUIDE}")
    page, section = GUIDE.split(", ")
    assert f"## {section.strip(chr(34))}\n" in (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("key", ["label", "label_values", "classes", "columns"])
def test_missing_part_is_refused(key):
    """Every required key must be there."""
    values = HEART.to_dict()
    del values[key]
    with pytest.raises(BadInput, match=key):
        Schema.from_dict(values)


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", HEART.to_json() + " ", "[" * 100_000])
def test_other_json_is_refused(text):
    """Only the one canonical JSON text is read."""
    with pytest.raises(BadInput):
        Schema.from_json(text)


@pytest.mark.parametrize("content", [None, b"label = ", b"\xff", b'label = "x"'])
def test_unreadable_schema_file_is_named(tmp_path, content):
    """A schema file that is missing, no TOML, no text or incomplete gives one line with its name."""
    path = tmp_path / "own.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=r"own\.toml"):
        load_schema(str(path))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(" 1.0 ", "1"), ("01", "1"), ("-0.0", "0"), ("0.50", "0.5"), ("x ", "x"), ("nan", "nan"), ("", "")],
)
def test_canonical_spelling(raw, expected):
    """Values that read as the same number are spelled the same; text is only stripped."""
    assert canonical(raw) == expected


@pytest.mark.parametrize("odd", ["\x1b[8m", "\x9b", "\u202eevil", "hid\u200bden", "two\nlines"], ids=ascii)
@pytest.mark.parametrize("place", ["column", "label", "class", "field"])
def test_names_that_cannot_be_shown_are_refused(place, odd):
    """Columns and classes are read before a member agrees: none may hide or forge what stands beside it."""
    names = {"column": "a", "label": "b", "class": "yes", "field": "c"} | {place: odd}
    with pytest.raises(BadInput, match=r"holds U\+[0-9A-F]+, which cannot be shown"):
        Schema(
            (Numeric(names["column"], 0.0, 1.0),), names["label"], (("0", "no"), ("1", names["class"])),
            ("no", names["class"]), fields=(names["column"], names["label"], names["field"]),
        )  # fmt: skip
