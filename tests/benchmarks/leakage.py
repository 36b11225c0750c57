"""The tables of threat_models/GUIDE.md about rounds: how many records hide one another, how many sums tell members.

`python -m tests.benchmarks.leakage [--only inversion,cohorts]`, a few minutes on digits.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from secagg.data import open_dataset
from secagg.experiments.settings import SimulationSettings
from tests.threat_models.attacks.rounds import drawn_anew, in_cohorts
from threat_models.adversary import adversary_named
from threat_models.attacks.disclosure.changing_cohorts import CHANGING_COHORTS
from threat_models.attacks.reconstruction.gradient_inversion import recovered_of
from threat_models.attacks.updates import rounds_in
from threat_models.evidence.simulation import Rehearsal, rehearse
from threat_models.findings import Finding, covers
from threat_models.session import join_records
from threat_models.views import view_of

PROGRAMS = ("softmax", "mlp:32", "mlp:128")
MEMBERS, SIZE = 10, 5
LENGTHS = (2, 3, 5, 8, 10, 12, 15, 20)
EXACT = {
    "fedpcl": ("fedpcl", {"parameters": "rounds=20"}),
    "fedpcl, skewed": ("fedpcl", {"parameters": "rounds=20", "partition": "dirichlet:0.5"}),
    "fedproto": ("fedproto", {"parameters": "rounds=20"}),
    "fedavg, gradients": ("fedavg", {"parameters": "rounds=20 gradients=1 rate=0.1"}),
    "fedavg, an epoch": ("fedavg", {"parameters": "rounds=20 rate=0.1"}),
}
PRIVATE = {"epsilon": 8.0, "delta": 1e-5, "adjacency": "add-remove", "unit": "client", "parameters": "rounds=20 cap=10"}


def played(method: str, **more: Any) -> Rehearsal:
    """A simulated plan over digits."""
    settings = SimulationSettings(**{"clients": MEMBERS, "method": method, **more})
    return rehearse(open_dataset("digits"), settings)


def table_of_inversion() -> Iterator[str]:
    """Records recovered from exact sums of gradients at the public start, by how many are in one."""
    for number, program in enumerate(PROGRAMS):
        rehearsal = played("fedavg", parameters=f"rounds=1 model={program}")
        view = view_of(rehearsal.sessions[0], adversary_named("curious_server"))
        knowledge = rehearsal.knowledge
        pool = (
            knowledge.candidates if knowledge.public is None else join_records(knowledge.candidates, knowledge.public)
        )
        line = recovered_of(rounds_in(view)[0], pool, view.plan.grid)
        if not number:
            yield f"| records in the sum | {' | '.join(map(str, line))} |"
            yield f"|---|{'---|' * len(line)}"
        yield f"| {program} | {' | '.join(f'{100 * each.value:.0f} %' for each in line.values())} |"


def table_of_cohorts() -> Iterator[str]:
    """Cosine of members' own parts with what least squares makes of so many sums, and in brackets with others'."""
    yield f"| sums | {' | '.join(map(str, LENGTHS))} |"
    yield f"|---|{'---|' * len(LENGTHS)}"
    rehearsals = {name: played(method, **more) for name, (method, more) in EXACT.items()}
    rehearsals["fedpcl, ε = 8 for a member"] = played("fedpcl", **PRIVATE)
    for name, rehearsal in rehearsals.items():
        yield f"| {name} | {' | '.join(_cells(rehearsal, lambda session, n: drawn_anew(session, SIZE, n)))} |"
    fixed = rehearsals["fedpcl"]
    yield f"| fedpcl, two groups that stay | {' | '.join(_cells(fixed, _in_groups))} |"


def _in_groups(session: Any, rounds: int) -> list[tuple[str, ...]]:
    halves = session.members[:SIZE], session.members[SIZE:]
    return [halves[turn % 2] for turn in range(rounds)]


def _cells(rehearsal: Rehearsal, cohorts: Callable[[Any, int], list[tuple[str, ...]]]) -> Iterator[str]:
    session = rehearsal.sessions[0]
    drawn = cohorts(session, max(LENGTHS))
    for rounds in LENGTHS:
        seen = view_of(in_cohorts(session, drawn[:rounds]), adversary_named("curious_server"))
        known = replace(rehearsal.knowledge, others=None)
        yield _cell(CHANGING_COHORTS.run((seen,), known, lambda *_: None))


def _cell(finding: Finding) -> str:
    found = [each for each in finding.measures if covers("cosine.own_part", each.metric)]
    if not found:
        return "–"
    (cosine,) = found
    baseline = math.nan if cosine.baseline is None else cosine.baseline
    return f"{cosine.value:.2f} ({baseline:.2f})"


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {"inversion": table_of_inversion, "cohorts": table_of_cohorts}


def main() -> None:
    """Print the tables that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(TABLES))
    for name in parser.parse_args().only.split(","):
        print(f"{TABLES[name].__doc__}\n")
        print(*TABLES[name](), sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
