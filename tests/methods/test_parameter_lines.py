"""The lines that explain parameters of methods and baselines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import pytest

from methods import METHODS, method_named
from methods.baselines import BASELINES, DpSgd
from methods.method import SHARED_LINES, lines_of
from secagg.wire import Range

KINDS: dict[str, type] = {
    **{name: type(method_named(name)) for name in METHODS},
    **BASELINES,
    "dp-sgd": DpSgd,
}
DEFAULTS = {
    **{name: method_named(name).parameters for name in METHODS},
    **{name: asdict(kind()) for name, kind in BASELINES.items()},
    "dp-sgd": asdict(DpSgd()),
}
OTHER_MEANINGS = {
    ("dp-sgd", "clip"),
    ("dp-sgd", "epochs"),
    ("fedbip", "clip"),
    ("fedbip", "width"),
    ("feddat", "ramp"),
    ("feddat", "temperature"),
    ("fedpcl", "cap"),
    ("fedproto", "cap"),
    ("fedtc", "epochs"),
    ("fraug", "model"),
    ("fraug", "steps"),
    ("mpft", "epochs"),
    ("mpft", "rounds"),
    ("mpft", "sampling"),
}
"""Parameters that mean something else than those of the same name elsewhere."""


def missing_lines(kind: type, defaults: dict[str, str | float]) -> set[str]:
    """The parameters whose line is not there, is empty, or is more than one line."""
    lines = lines_of(kind)
    return {name for name in defaults if not (line := lines.get(name, "").strip()) or "\n" in line}


def repeats_default(line: str, default: str | float) -> bool:
    """Whether a line says what the default is; 0, 1 and -1 may stand for their meaning, a word for its choice."""
    if "default" in line.lower():
        return True
    if isinstance(default, str):
        return any(map(str.isdigit, default)) and default in line
    return default not in (0, 1, -1) and default in map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", line))


def differing(kinds: dict[str, type]) -> Iterator[tuple[str, str]]:
    """The methods and parameters that have another line than those of the same name before."""
    first: dict[str, str] = {}
    for method, kind in kinds.items():
        lines = lines_of(kind)
        for name in DEFAULTS.get(method, lines):
            if (method, name) not in OTHER_MEANINGS and first.setdefault(name, lines[name]) != lines[name]:
                yield method, name


@dataclass(frozen=True)
class _Lacking:
    """A kind with each form of a line, and without one."""

    alone: int = 3
    ranged: Annotated[int, Range(1, 5)] = 3
    empty: Annotated[int, " "] = 3
    two: Annotated[int, "One line\nand another"] = 3
    rate: float = 0.5
    clip: Annotated[Annotated[float, "Line of an alias"], "Line of its own"] = 1.0


@pytest.mark.parametrize("name", KINDS)
def test_every_parameter_has_a_line(name: str) -> None:
    """Each parameter of each registered method and baseline is explained in one line that is not empty."""
    assert missing_lines(KINDS[name], DEFAULTS[name]) == set()


def test_a_parameter_without_a_line_is_found() -> None:
    """A field without a text, with an empty one or with two lines is refused, whatever its range."""
    assert missing_lines(_Lacking, asdict(_Lacking())) == {"alone", "ranged", "empty", "two"}


def test_a_text_in_the_declaration_goes_before_the_shared_line() -> None:
    """A field takes the line of its name, or the last text of its own annotation; nothing else has a line."""
    found = lines_of(_Lacking)
    assert found["rate"] == SHARED_LINES["rate"]
    assert found["clip"] == "Line of its own"
    assert found.keys() == {"empty", "two", "rate", "clip"}


@pytest.mark.parametrize("name", KINDS)
def test_no_line_repeats_its_default(name: str) -> None:
    """A default stands in the declaration alone, from which commands print it."""
    lines = lines_of(KINDS[name])
    assert [key for key, default in DEFAULTS[name].items() if repeats_default(lines[key], default)] == []


@pytest.mark.parametrize(
    ("line", "default"),
    [
        ("Secure sums, by default 20", 5),
        ("Secure sums, 20", 20),
        ("Rate, 0.1 or so", 0.1),
        ("Network as mlp:128", "mlp:128"),
    ],
)
def test_a_repeated_default_is_found(line: str, default: str | float) -> None:
    """The word, a number and a text with a number are each refused."""
    assert repeats_default(line, default)


def test_parameters_of_one_name_have_one_line() -> None:
    """Methods explain a parameter in the same words, but for those that mean something else by the name."""
    assert list(differing(KINDS)) == []


def test_another_line_for_the_same_name_is_found() -> None:
    """A method that explains `clip` in words of its own is refused."""
    assert list(differing({"fedavg": KINDS["fedavg"], "lacking": _Lacking})) == [("lacking", "clip")]


def test_no_other_meaning_is_listed_in_vain() -> None:
    """Each exception is a parameter of its method whose line is not the shared one."""
    for method, name in OTHER_MEANINGS:
        assert name in DEFAULTS[method]
        assert lines_of(KINDS[method])[name] != SHARED_LINES.get(name)


def test_every_shared_line_is_of_several_methods() -> None:
    """A line that one method alone uses stands beside that method's parameter."""
    users = {
        name: [each for each, kind in KINDS.items() if lines_of(kind).get(name) == line]
        for name, line in SHARED_LINES.items()
    }
    assert {name for name, found in users.items() if len(found) < 2} == set()
