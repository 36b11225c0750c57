"""A first schema for people to correct, from a file that is public, as a TOML text that says what to look at."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.agreement.columns import Boolean, Categorical, Column, Dated, Hashed, Numeric, canonical, column_to_dict
from secagg.agreement.schema import GUIDE, Schema
from secagg.data.derivation import EVER, MISSING, categories, date_pattern, decimal_of
from secagg.data.encoding import parse_numbers
from secagg.data.table import THOUSANDS_REMEDY, Table
from secagg.errors import BadInput
from secagg.system.printable import escaped

ABSENT = (*MISSING, "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "-", "--", ".")
"""What stands for a missing value in many files; a draft declares those that its file has, and an empty cell."""
PAIRS = ("true false", "yes no", "y n", "t f", "ja nein", "j n", "oui non", "si no", "wahr falsch", "vrai faux")
LISTED = 30
"""A category of more values than these is hashed."""
BUCKETS = 64
SHOWN = 3
"""Values that are no numbers, among numbers, that a remark quotes."""
_THOUSANDS = re.compile(
    r"[+-]?\d{1,3}(?P<group>[., '’])\d{3}(?:(?P=group)\d{3})*(?:(?!(?P=group))(?P<decimal>[.,])\d+)?"
)
FEW_CODES = 8
"""So many different whole numbers may be codes."""


@dataclass(frozen=True)
class Draft:
    """A schema, and a remark on each of its columns, in order; `unused`: columns left out, and why."""

    schema: Schema
    remarks: tuple[str, ...]
    unused: tuple[tuple[str, str], ...]
    source: str

    def to_toml(self) -> str:
        """The schema as a file for people: what each column is taken for, and why."""
        schema = self.schema
        head = [
            f"# A draft, from the public file {escaped(self.source)}: read every line and correct it. Members agree",
            "# to what stands here; nothing of it may come from their records: ranges and values are what can occur.",
            f"# The format: {GUIDE}",
        ]
        keys = [("label", schema.label), ("classes", schema.classes), ("missing", schema.missing)]
        keys += [("missing_rule", schema.missing_rule), ("decimal", schema.decimal), ("delimiter", schema.delimiter)]
        lines = [*head, *(f"{key} = {_toml(value)}" for key, value in keys if value != "")]
        if len(schema.classes) == 2:
            line = f"positive = {_toml(schema.positive)} #" if schema.positive else '# positive = "" # FILL IN:'
            either = " or ".join(map(_toml, schema.classes))
            lines.insert(len(head) + 2, f"{line} {either}, the one to be recognised, whose sensitivity is stated")
        lines += [f"# not used: {_toml(name)}, {reason}" for name, reason in self.unused]
        lines += ["", "[label_values] # what stands in the file = the class that it means"]
        lines += [f"{_toml(raw)} = {_toml(name)}" for raw, name in schema.label_values]
        for column, remark in zip(schema.columns, self.remarks, strict=True):
            values = column_to_dict(column)
            lines += ["", f"[[columns]]{f' # {remark}' if remark else ''}"]
            order = ["name", "kind", *(field.name for field in fields(column) if field.name != "name")]
            lines += [f"{key} = {_toml(values[key])}" for key in order if key in values]
        return "\n".join(lines) + "\n"


def draft_schema(table: Table, label: str, positive: str = "") -> Draft:
    """Guess what the columns of a public table are, with ranges rounded outwards; `positive` is the user's word.

    Raises BadInput for no such label, and for a positive class that is none of two.
    """
    if label not in table.columns:
        remedy = f"name the label column with --label: {', '.join(table.columns)}"
        raise BadInput(f"no column of {table.source} is called {label!r}", remedy=remedy)
    distinct = {name: np.unique(cells) for name, cells in table.columns.items()}
    absent = (*ABSENT, *(mark for name, values in distinct.items() if name != label for mark in _marks(values)))
    present = {name: values[~np.isin(values, absent)] for name, values in distinct.items()}
    decimal = decimal_of([_numbers(values) for name, values in present.items() if name != label])
    columns, remarks, unused = [], [], []
    for name, values in present.items():
        if name == label:
            continue
        rule = "indicator" if np.isin(distinct[name], absent).any() else ""
        repeated = len(values) < len(table) - np.isin(table.columns[name], absent).sum()
        column, remark = _guess(name, values, decimal, rule, repeated=repeated)
        if isinstance(column, Numeric) and (marks := _marks(distinct[name])):
            remark += f"; taken for missing values: {', '.join(map(_toml, marks))}"
        if column is None:
            unused.append((name, remark))
        else:
            columns.append(column)
            remarks.append(remark)
    labels = categories(label, present[label])
    missing = tuple(dict.fromkeys(each for each in absent if not each or any(each in v for v in distinct.values())))
    schema = Schema(
        tuple(columns), label, tuple((value, value) for value in labels), labels, missing=missing, decimal=decimal,
        delimiter=";" if decimal == "," else "", positive=positive,
    )  # fmt: skip
    return Draft(schema, tuple(remarks), tuple(unused), Path(table.source).name)


def _guess(
    name: str, values: NDArray[np.str_], decimal: str, rule: str, *, repeated: bool
) -> tuple[Column | None, str]:
    """What a column of these distinct values is taken for, and what to look at; None: no column to learn from."""
    if not len(values):
        return None, "it has no values"
    if pair := _pair_of(values):
        return Boolean(name, *pair, missing_rule=rule), ""
    if pattern := date_pattern(values):
        days = [Dated(name, *EVER, pattern).read(str(value)) for value in values]
        first, last = (Dated(name, *EVER, pattern).shown(day)[:4] for day in (min(days), max(days)))
        remark = "days from 1 January of the first year to 31 December of the last one in the file: widen"
        return Dated(name, f"{first}-01-01", f"{last}-12-31", pattern, missing_rule=rule), remark
    numbers = parse_numbers(values, decimal)
    finite = np.isfinite(numbers)
    if finite.all():
        return _guess_range(name, numbers, rule)
    grouped = _thousands(values[~finite], decimal)
    if _are_few((~finite).sum(), values):
        column, remark = _guess_range(name, numbers[finite], rule)
        told = ", ".join(_toml(str(value)) for value in values[~finite][:SHOWN])
        mended = f" ({grouped})" if grouped else ""
        return column, f"{remark}; refused as no number until it is mended{mended}, or listed as missing: {told}"
    if grouped:
        return None, grouped
    if len(values) <= LISTED:
        listed = tuple(sorted({canonical(str(value), decimal) for value in values}))
        return Categorical(name, listed, missing_rule=rule), "every value that can occur"
    if not repeated:
        return None, "no value occurs twice: it looks like an identifier"
    return Hashed(name, BUCKETS, missing_rule=rule), f"{len(values)} different values, by a public hash"


def _thousands(values: NDArray[np.str_], decimal: str) -> str:
    """Advise on a column all of whose values that are no numbers have thousands' separators; "" for another."""
    found = [_THOUSANDS.fullmatch(str(value)) for value in values]
    if not found or not all(found):
        return ""
    mark = next((each["decimal"] for each in found if each and each["decimal"]), decimal)
    return f"its numbers have thousands' separators: {THOUSANDS_REMEDY[mark]}"


def _marks(values: NDArray[np.str_]) -> tuple[str, ...]:
    """What stands for a missing number among a column's distinct values: texts without a digit, few among numbers."""
    text = values[~np.isin(values, (*_numbers(values), *ABSENT))]
    return tuple(str(value) for value in text if not any(map(str.isdigit, value)))


def _numbers(values: NDArray[np.str_]) -> NDArray[np.str_]:
    """The numbers, with either decimal mark, among a column's distinct values if few are none; else all values."""
    text = np.isnan(parse_numbers(values, ".")) & np.isnan(parse_numbers(values, ",")) & ~np.isin(values, ABSENT)
    return values[~text] if _are_few(text.sum(), values) else values


def _are_few(count: int, values: NDArray[np.str_]) -> bool:
    """Whether so many of a column's distinct values are exceptions: fewer than one in ten."""
    return 10 * count < len(values)


def _guess_range(name: str, numbers: NDArray[np.float64], rule: str) -> tuple[Column, str]:
    """A number from the file's least to its greatest, each rounded outwards to a step of the range's size."""
    least, most = float(numbers.min()), float(numbers.max())
    span = most - least  # of the smallest numbers no power of ten is left, of the largest none is enough: refused below
    step = (10.0 ** math.floor(math.log10(span)) or span) if 0 < span < math.inf else max(1.0, abs(least))
    low, high = math.floor(least / step) * step, math.ceil(most / step) * step
    if low == high:
        low, high = low - step, high + step
    remark = "the file's range, rounded: widen it to what can occur"
    distinct = np.unique(numbers)
    if 2 < len(distinct) <= FEW_CODES and (distinct == np.round(distinct)).all():
        codes = ", ".join(f'"{int(number)}"' for number in distinct)
        remark += f'; if these are codes: kind = "categorical", values = [{codes}]'
    return Numeric(name, float(f"{low:.12g}"), float(f"{high:.12g}"), missing_rule=rule), remark


def _pair_of(values: NDArray[np.str_]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The spellings of true and of false, where the values are such a pair, or 1 and 0."""
    spelled = [str(value) for value in values]
    for pair in (*PAIRS, "1 0"):
        true, false = (tuple(each for each in spelled if each.casefold() == word) for word in pair.split())
        if true and false and len(true) + len(false) == len(spelled):
            return true, false
    return None


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)
