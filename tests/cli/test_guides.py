"""README and the guides: what they show works, the lists that they hold are whole, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import typer

from secagg.agreement.schema import Column, Numeric, load_schema
from secagg.cli.main import app
from tests.architecture.source import ROOT
from tests.cli.guides import Command, blocks_in, complaints, environment_of

FOLDERS = ("secagg", "methods", "threat_models", "tests", "protos")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
GUIDES = [page for page in PAGES if "```console" in page.read_text(encoding="utf-8")]
CODE = re.compile(r"`((?:secagg|methods|threat_models|tests)/[\w/]+\.py): ([\w., ]+)`")
HOSPITALS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
"""How many records each has in the published data."""


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def drawn_value(column: Column, generator: np.random.Generator) -> str:
    """A value of a column, or in one of ten cases none."""
    if generator.random() < 0.1:
        return "?"
    if isinstance(column, Numeric):
        return f"{generator.uniform(column.low, column.high):.1f}"
    return str(generator.choice(column.values))


def write_hospitals(folder: Path) -> None:
    """Stand-ins for the four files that the guide downloads: the same columns, values at random, some missing."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    columns = load_schema("heart-disease").columns
    for name, count in HOSPITALS.items():
        rows = []
        for _ in range(count):
            values = [drawn_value(column, generator) for column in columns]
            rows.append(",".join([*values, str(generator.integers(0, 5))]))
        (folder / f"processed.{name}.data").write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def environment(commands: Path) -> dict[str, str]:
    """What every guide's commands see; `secagg` is there at once."""
    return environment_of(commands)


@pytest.fixture
def stand(tmp_path: Path) -> Path:
    """A folder whose `work` holds what the guides do not make."""
    (tmp_path / "work").mkdir()
    write_hospitals(tmp_path / "work" / "heart")
    return tmp_path


def run(page: Path, remarks: set[str], stand: Path, environment: dict[str, str]) -> list[str]:
    """What is not as a guide says, of the blocks with these remarks."""
    blocks = blocks_in(page.read_text(encoding="utf-8"))
    commands = [command for block in blocks if block.remark in remarks for command in block.commands]
    return complaints(commands, stand, environment)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_blocks_do_what_the_guide_says(page: Path, stand: Path, environment: dict[str, str]) -> None:
    """Every block without a remark runs, one after the other, and ends and prints as shown."""
    assert run(page, {""}, stand, environment) == []


@pytest.mark.long
@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_long_blocks_do_what_the_guide_says(page: Path, stand: Path, environment: dict[str, str]) -> None:
    """The same with those that take minutes."""
    assert run(page, {"", "long"}, stand, environment) == []


def test_a_guide_that_is_wrong_is_found(stand: Path, environment: dict[str, str]) -> None:
    """A wrong exit code and a line that is not printed are named, and nothing runs after a wrong exit code."""
    guide = "```console\n$ echo one; echo 2.50 s\none\n2.… s\n$ false\n$ touch never\n```\n"
    (block,) = blocks_in(guide)
    assert block.commands[0] == Command("echo one; echo 2.50 s", (0,), ("one", "2.… s"))
    (found,) = complaints(block.commands, stand, environment)
    assert found.startswith("false\n  ends with 1, not 0")
    assert not (stand / "work" / "never").exists()
    assert Command("x", (0, 4), ("b", "a")).complaint(0, "a\nb\n") == "does not print 'a'"
    assert Command("x", (0, 4), ("a  b",)).complaint(4, "say  a b c") == ""


def test_blocks_share_folder_variables_and_background(stand: Path, environment: dict[str, str]) -> None:
    """One bash runs all blocks of a guide, and what a block marked as the reader's own says is not run."""
    guide = """
```console
$ mkdir part; cd part
$ name=value; sleep 600 &
$ for word in a b; do
>     echo $word
> done
a
b
```

<!-- yours: nobody else has it -->
```console
$ exit 3
```

```console
$ kill $!; echo $name > file; secagg nothing    # exit code 1 or 2
```
"""
    commands = [each for block in blocks_in(guide) if not block.remark for each in block.commands]
    assert complaints(commands, stand, environment) == []
    assert (stand / "work" / "part" / "file").read_text() == "value\n"


@pytest.mark.parametrize("remark", ["<!-- lang -->", "<!-- yours -->", "<!-- long: very -->"])
def test_remarks_that_say_nothing_known_are_refused(remark: str) -> None:
    """A block is left out for a reason that stands there, never by a slip of the pen."""
    with pytest.raises(ValueError, match="neither long nor yours"):
        blocks_in(f"{remark}\n```console\n$ true\n```\n")


def test_readme_is_short_and_maps_every_package() -> None:
    """README has at most 150 lines, and its map one line for each package there is."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    packages = {f"secagg/{init.parent.name}" for init in (ROOT / "secagg").glob("*/__init__.py")}
    mapped = re.findall(r"^\| `([^`]+)` \|", text[text.index("## Map of the house") :], re.MULTILINE)
    assert len(mapped) == len(set(mapped))
    assert set(mapped) == packages | {f"{folder}/" for folder in FOLDERS if folder != "secagg"}


def test_the_sum_in_the_picture_is_one() -> None:
    """README's masked numbers add up to the counts, modulo 2³²."""
    rows = re.findall(
        r"^\w+ +(\d+) +(\d+) +\+ masks ─► +(\d+) +(\d+)", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    counts, masked = np.array(rows, dtype=np.uint64).reshape(-1, 2, 2).sum(axis=0)
    assert len(rows) == 4
    assert (counts == masked % 2**32).all()


def test_the_guide_lists_every_command() -> None:
    """The table in the guide to the command line has each command once."""
    text = (ROOT / "secagg" / "cli" / "README.md").read_text(encoding="utf-8")
    table = text[: text.index("Exit codes:")]
    listed = [name for row in re.findall(r"(?m)^\| (`[^|]+) \|", table) for name in re.findall("`(.+?)`", row)]
    assert sorted(listed) == sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def names_in(path: Path) -> set[str]:
    """The functions, classes, methods and values that a module defines, as `name` or `Class.name`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{getattr(each, 'name', '')}" for each in node.body}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(target) for target in targets}
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if CODE.search(page.read_text("utf-8"))], ids=name_of)
def test_code_that_guides_name_is_there(page: Path) -> None:
    """Every `file.py: name` of a guide, from the root of the repository, is in that file."""
    for file, names in CODE.findall(page.read_text(encoding="utf-8")):
        known = names_in(ROOT / file)
        assert [name for name in names.split(", ") if name not in known] == [], file


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a page of the repository leads to a file, and its fragment to a heading."""
    for target, fragment in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        there = page.parent / target if target else page
        assert there.exists(), target
        if fragment:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
            assert fragment in [re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings]
