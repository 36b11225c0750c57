"""The table of the papers' eight systems in methods/README.md: made of plans that hold, and of figures in RESULTS.md.

`python -m tests.benchmarks.systems` writes it between its marks there. A promise stands in it where such a plan can be
made under every protection; an accuracy is read from the cell of methods/RESULTS.md that its row names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from secagg.agreement.plan import NoiseFrom
from secagg.encoding import Normalisation
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.privacy import Adjacency, Unit
from secagg.protection import PROTECTIONS
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.architecture.source import ROOT
from tests.benchmarks import leaving
from tests.worlds.rosters import make_roster

README, RESULTS = ROOT / "methods" / "README.md", ROOT / "methods" / "RESULTS.md"
BEGIN = "<!-- made by: python -m tests.benchmarks.systems -->\n"
PRIVATE: Mapping[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}
MEMBERS = 100
SECURE = [each for each in PROTECTIONS if each != "none"]


@dataclass(frozen=True)
class Cell:
    """A figure of RESULTS.md: under which heading, in which of the tables there, in which row and column."""

    heading: str
    row: str
    column: str
    table: int = 0

    @property
    def figure(self) -> str:
        """What stands there. Raises ValueError where there is no such cell."""
        tables = list(_tables_under(self.heading))
        if self.table >= len(tables):
            raise ValueError(f"{self.heading} has {len(tables)} tables")
        columns, *rows = tables[self.table]
        for row in rows:
            if self.row in row and self.column in columns:
                return row[columns.index(self.column)].replace("**", "")
        raise ValueError(f"{self.heading} has no {self.row} × {self.column}: {columns}")


def _tables_under(heading: str) -> Iterator[list[list[str]]]:
    """Yield the cells of each table under a heading, columns first."""
    text = RESULTS.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^\|.*\n)+", found[1] if found else "", re.MULTILINE):
        cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        yield [cells[0], *cells[2:]]


@dataclass(frozen=True)
class System:
    """A paper's system: our method, what it promises of a record and of a member, and what it reached."""

    name: str
    method: str
    figures: Mapping[str, Cell]
    of_record: Mapping[str, Any] | None = field(default_factory=dict)
    """Parameters with which a record is promised; None: with none."""
    of_member: Mapping[str, Any] | None = None
    noise: NoiseFrom = NoiseFrom.CLIENT
    """Where the noise of a record's promise comes from."""


def promises(system: System) -> str:
    """What a system promises, after the plans that say so were made under every protection."""
    found = []
    for unit, parameters in ((Unit.RECORD, system.of_record), (Unit.CLIENT, system.of_member)):
        if parameters is None:
            continue
        noise = system.noise if unit is Unit.RECORD else NoiseFrom.CLIENT
        for protection in SECURE:
            plan_of(system.method, protection, unit, noise, parameters)
        found.append("a record" if unit is Unit.RECORD else "a member")
    return ", ".join(["exact", *found])


def plan_of(method: str, protection: str, unit: Unit, noise: NoiseFrom, parameters: Mapping[str, Any]) -> RoundSetup:
    """A plan at ε = 8. Raises BadInput where there can be none."""
    roster, _ = make_roster(MEMBERS, protection)
    dimension = leaving.TOKEN if method == "feddat" else leaving.FEATURES
    data = PublicData("features", (dimension,), tuple(map(str, range(leaving.CLASSES))), None, None)
    given = tuple({**leaving.GIVEN.get(method, {}), **parameters}.items())
    normalisation = Normalisation.UNIT
    choices = PlanChoices(
        method=method,
        parameters=given,
        protection=protection,
        unit=unit,
        noise=noise,
        normalise=normalisation,
        **PRIVATE,
    )
    return RoundSetup.of(make_plan(data, roster, choices, OperatingSystem()), roster)


SYSTEMS = (
    System(
        "FedTC",
        "fedtc",
        {
            "Fashion-MNIST, two classes a client": Cell("FedTC", "FedTC, 200 slots", "accuracy (− one-shot FedAvg)"),
            "one-shot FedAvg": Cell("FedTC", "one-shot FedAvg", "accuracy (− one-shot FedAvg)"),
        },
        of_member={},
    ),
    System(
        "FedCGS",
        "fedcgs",
        {
            "PACS, a domain left out": Cell("FedCGS", "FedCGS", "mean (− FedPFT)"),
            "FedPFT there": Cell("FedCGS", "FedPFT", "mean (− FedPFT)"),
            "CIFAR-10, α = 0.5": Cell("FedCGS", "fedcgs", "0.5", table=1),
            "the ensemble there": Cell("FedCGS", "ensemble", "0.5", table=1),
        },
        of_member={},
    ),
    System(
        "MPFT",
        "mpft",
        {
            "PACS, ood acc": Cell("MPFT", "MPFT, class means", "ood acc (− FedAvg)"),
            "FedAvg": Cell("MPFT", "FedAvg, softmax", "ood acc (− FedAvg)"),
            "clients' own heads": Cell("MPFT", "local", "ood acc (− FedAvg)"),
            "leave one domain out": Cell("MPFT", "mpft, 32 slots", "mean", table=1),
        },
        of_member={},
    ),
    System(
        "FedPCL",
        "fedpcl",
        {
            "digits, label shift": Cell("FedPCL", "FedPCL, shared prototypes", "label shift"),
            "alone": Cell("FedPCL", "local only", "label shift"),
            "by SGD at ε = 8": Cell("FedPCL", "FedPCL, shared prototypes", "label shift", table=1),
        },
        of_record={"sampling": 0.1},
        of_member={"cap": 50},
    ),
    System(
        "FRAug",
        "fraug",
        {
            "PACS": Cell("FRAug", "FRAug", "mean"),
            "FedBN": Cell("FRAug", "FedBN", "mean"),
            "alone": Cell("FRAug", "each member alone", "mean"),
        },
        of_record={"sampling": 0.05, "generator_distance": "l2", "transfer_distance": "l2", "momentum": 0.0},
        of_member={"rounds": 20},
        noise=NoiseFrom.MEMBER,
    ),
    System(
        "FedDAT",
        "feddat",
        {
            "sentiment, shared": Cell("FedDAT", "FedDAT", "shared"),
            "personal": Cell("FedDAT", "FedDAT", "personal"),
            "adapters averaged": Cell("FedDAT", "adapters averaged", "shared"),
            "local adapters": Cell("FedDAT", "local adapters, one schedule", "personal"),
        },
        of_record={"sampling": 0.05},
        of_member={},
        noise=NoiseFrom.MEMBER,
    ),
    System(
        "FedPop",
        "fedpop",
        {
            "MNIST, within halving": Cell("FedPop", "FedPop within halving", "accuracy (95 % interval over ten seeds)"),
            "halving": Cell("FedPop", "halving", "accuracy (95 % interval over ten seeds)"),
        },
        of_record={"fixed": "gradients=1;clip=4", "space": "rate=log:0.3:3"},
        of_member={"fixed": "clip=4", "space": "rate=log:0.3:3"},
    ),
    System(
        "FedBiP",
        "fedbip",
        {
            "Fashion-MNIST, nearest opened mean": Cell("FedBiP", "sums, the nearest slot mean", "accuracy"),
            "CNN on generated pictures": Cell("FedBiP", "sums, classifier on generated pictures", "accuracy"),
            "FedAvg of 125 rounds": Cell("FedBiP", "FedAvg of 125 rounds, CNN on pictures", "accuracy"),
        },
        of_record={},
        of_member={},
    ),
)


def row_of(system: System) -> str:
    """A row, in Markdown."""
    figures = "; ".join(f"{name}: {cell.figure}" for name, cell in system.figures.items())
    kinds = leaving.leaving(leaving.plan_of(system.method))
    leaves = "; ".join(f"{each.kind}: {each.times} × {each.numbers:,} numbers" for each in kinds)
    cells = f"{system.name} (`{system.method}`)", promises(system), leaves, figures
    return "| " + " | ".join(cells) + " |"


def table() -> str:
    """All rows, in Markdown."""
    heads = "system", "promises", "what leaves a member", "accuracy here, %"
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *map(row_of, SYSTEMS)]) + "\n"


def main() -> None:
    """Write it."""
    made = leaving.placed(README.read_text(encoding="utf-8"), table(), BEGIN)
    README.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
