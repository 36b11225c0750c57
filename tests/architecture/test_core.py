"""The fenced core: what one person reviews to trust a member's upload, its size, and what it never imports."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from tests.architecture.source import ROOT, Module, installed, within

ROOTS = (
    "secagg.federation",
    "methods.method",
    "methods.round",
    "methods.gate",
    "methods.declaration",
    "methods.closed_form.fedcgs",
)
"""A whole federation over the network, the seam of the methods, and the one method that lies inside."""
SEAM = "secagg.plan_facts.records"
"""Records become integers behind this module, which loads by name what does it."""
BEHIND_THE_SEAM = ("secagg.data", "secagg.features")
OUTSIDE = (
    *BEHIND_THE_SEAM,
    "secagg.networks",
    "secagg.generation",
    "secagg.scoring",
    "secagg.experiments",
    "secagg.cli",
    "secagg.system.engines",
    "secagg.unsafe_for_tests",
    "threat_models",
    "methods.slots",
    "methods.own_models",
    "methods.training",
    "methods.search",
    "methods.baselines",
)
"""Nothing of these is in the core."""
MOST_LINES = 24_640
PAGE = ROOT / "threat_models" / "TRUST.md"
DRIFT = 0.2
"""By how much of itself a room may have grown or shrunk since the page was written."""


def imported_at_run_time(module: Module) -> Iterator[str]:
    """The dotted names that a module imports anywhere, lazily too, but for the eyes of a type checker alone."""
    for_types = {
        inner
        for node in module.nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    kept = ast.Module(
        [node for node in module.nodes if isinstance(node, ast.Import | ast.ImportFrom) and node not in for_types], []
    )
    yield from Module(module.name, ast.unparse(kept)).imports()


def closure(modules: Iterable[Module], roots: Iterable[str]) -> dict[str, str]:
    """Every module that the roots reach, with the module that brought it in; importing a.b.c runs a and a.b too."""
    by_name = {module.name: module for module in modules}
    reached: dict[str, str] = {}
    ahead = [(name, "") for name in by_name for root in roots if within(name, root)]
    while ahead:
        name, source = ahead.pop()
        if name in reached:
            continue
        reached[name] = source
        for imported in imported_at_run_time(by_name[name]):
            parts = imported.split(".")
            prefixes = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
            ahead += [(prefix, name) for prefix in prefixes if prefix in by_name]
    return reached


def lines_of(names: Iterable[str]) -> int:
    """Lines of these modules, blank ones and docstrings included."""
    texts = {module.name: module.text for module in installed()}
    return sum(len(texts[name].splitlines()) for name in names)


def lines_by_room(names: Iterable[str]) -> Counter[str]:
    """Lines of the core in each room; modules beside the rooms are of `secagg`."""
    rooms: Counter[str] = Counter()
    for name in names:
        top, *rest = name.split(".")
        room = f"{top}/{rest[0]}" if top == "secagg" and (ROOT / top / "".join(rest[:1])).is_dir() and rest else top
        rooms[room] += lines_of([name])
    return rooms


def test_core_is_fenced():
    """The core imports neither data, features, training, experiments nor a method but fedcgs, not even lazily."""
    brought = closure(installed(), ROOTS)
    strangers = {name: source for name, source in brought.items() if any(within(name, each) for each in OUTSIDE)}
    assert strangers == {}
    assert SEAM in brought


def test_core_is_small_enough_to_review(capsys):
    """The core has at most 24,640 lines; with what the seam loads it has more, and that number is printed beside it."""
    core = lines_of(closure(installed(), ROOTS))
    whole = lines_of(closure(installed(), (*ROOTS, *BEHIND_THE_SEAM)))
    with capsys.disabled():
        print(f"\ncore: {core:,} lines; with data and features behind the seam: {whole:,}")
        print(", ".join(f"{room} {lines:,}" for room, lines in lines_by_room(closure(installed(), ROOTS)).items()))
    assert core <= MOST_LINES


def test_page_lists_the_rooms_of_the_core():
    """The page for reviewers has a row for every room of the core, and about as many lines in it as there are."""
    rows = re.findall(r"(?m)^\| `([\w/]+)` \| ([\d,]+) \|", PAGE.read_text(encoding="utf-8"))
    stated = {room: int(lines.replace(",", "")) for room, lines in rows}
    rooms = lines_by_room(closure(installed(), ROOTS))
    assert stated == pytest.approx(rooms, rel=DRIFT)


@pytest.mark.parametrize(
    ("text", "reached"),
    [
        ("import core.low", {"core", "core.low", "core.top"}),
        ("def late():\n    from core import low", {"core", "core.low", "core.top"}),
        ("if TYPE_CHECKING:\n    import core.low", {"core.top"}),
    ],
)
def test_closure_follows_what_runs(text, reached):
    """An import counts wherever it stands, but for one that a type checker alone reads."""
    modules = [Module("core", ""), Module("core.low", ""), Module("core.top", text)]
    assert set(closure(modules, ["core.top"])) == reached
