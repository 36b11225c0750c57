"""The table of what leaves a member in methods/README.md, of every method, from the plans alone.

`python -m tests.benchmarks.leaving` writes it between its marks there; that transcripts hold the same is tested in
`tests/federation/test_what_leaves.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from methods import METHODS
from methods.training.feddat import FedDAT
from secagg.encoding import Block, Kind
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.architecture.source import ROOT
from tests.worlds.rosters import make_roster

README = ROOT / "methods" / "README.md"
BEGIN, END = "<!-- made by: python -m tests.benchmarks.leaving -->\n", "<!-- end -->\n"
FEATURES, TOKEN, CLASSES, MEMBERS = 64, 768, 10, 8
"""Of every row; TOKEN in place of FEATURES where a method reads inputs."""
GIVEN: Mapping[str, Mapping[str, Any]] = {"fedpop": {"space": "rate=log:0.01:1"}}
"""Parameters without which a method is none."""


@dataclass(frozen=True)
class Leaving:
    """What a member sends in one kind of sum: what it is, how often, how many numbers, how many bytes."""

    kind: str
    times: int
    numbers: int
    bytes: int


def leaving(setup: RoundSetup) -> tuple[Leaving, ...]:
    """One for each kind of sum of a plan, in order."""
    return tuple(
        Leaving(
            ", ".join(dict.fromkeys(map(_kind, kind.spec.blocks))),
            kind.spec.times,
            sum(block.size for block in kind.spec.blocks),
            kind.upload_bytes,
        )
        for kind in setup.facts.kinds
    )


def _kind(block: Block) -> str:
    return block.kind.value if block.kind is not Kind.OTHER else block.name.replace("_", " ")


def plan_of(name: str) -> RoundSetup:
    """A method's plan as it is when nothing is chosen: masked, without noise."""
    dimension = TOKEN if name == FedDAT.name else FEATURES
    roster, _ = make_roster(MEMBERS, "masked")
    data = PublicData("features", (dimension,), tuple(map(str, range(CLASSES))), None, None)
    choices = PlanChoices(method=name, parameters=tuple(GIVEN.get(name, {}).items()), epsilon=math.inf, radius=1.0)
    return RoundSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster)


def table() -> str:
    """All rows, in Markdown."""
    lines = [
        "| method | what it is | sums | numbers in each | bytes in each | bytes in all |",
        "|---|---|" + 4 * "---:|",
    ]
    for name in sorted(METHODS):
        for each in leaving(plan_of(name)):
            sizes = each.times, each.numbers, each.bytes, each.times * each.bytes
            lines.append(" | ".join((f"| `{name}`", each.kind, *(f"{size:,}" for size in sizes))) + " |")
    return "\n".join(lines) + "\n"


def placed(text: str, made: str, begin: str = BEGIN) -> str:
    """The text with what is made between its marks. Raises ValueError where there are none."""
    before, mark, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no {begin.strip()} … {END.strip()}")
    return before + begin + made + END + after


def main(readme: Path = README) -> None:
    """Write it."""
    readme.write_text(placed(readme.read_text(encoding="utf-8"), table()), encoding="utf-8")


if __name__ == "__main__":
    main()
