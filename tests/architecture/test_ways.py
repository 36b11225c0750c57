"""The two ways through the code that CONTRIBUTING lists are those that a federation goes.

A federation of three clients and a server runs in this process, over gRPC, and a profiler notes when the first client
and the server enter a function for the first time. A list is true when

- each listed function is entered by the party whose part names it;
- each party's functions, its parts one after the other, have their first entries in the listed order. The other
  party's entries are not compared with them: the server may take another client's upload before;
- the last function of each part is first entered before the last one of the next part.

Of a function that a party names twice the first naming is meant.

How far it is: from each listed function to the party's next one there is a route through the calls: back to the
innermost call that led to both, and from there down. What a call returns goes that way, too. A *stay* is one file on
this route, as long as control does not enter another one, by a call or by a return. *Files* are the different ones. The
work of a thread belongs to the call that handed it over. Where another task goes on, the route begins at its outermost
call, and nothing is counted for the network and the disk between them. A function that a list leaves out counts where
it led to one that is listed, and else not.

We aim at 60 stays in 40 files for the record, and at 35 in 22 for the round. The record's way is no longer than that,
the round's is: so that it cannot grow, its limit is what it is today.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import secagg
from secagg.agreement.plan import write_plan
from secagg.agreement.schema import load_schema
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.privacy import Adjacency, Unit
from secagg.randomness import OperatingSystem
from tests.architecture.source import ROOT
from tests.architecture.ways import PARTY, Entry, Part, Place, Profiler, complaints, profiled, route, ways_in
from tests.worlds.rosters import SERVER, enrol, make_roster

RECORD, ROUND = "A record, from CSV to head", "A round of `fedavg`"
CHOICES: dict[str, dict[str, Any]] = {
    RECORD: {"method": "fedcgs"},
    ROUND: {"method": "fedavg", "rounds": 2, "unit": Unit.CLIENT},
}
MOST = {RECORD: (60, 40), ROUND: (61, 22)}
"""Stays and files. Of the round's stays there should be 35."""
CLIENTS = ("client", "second", "third")
SCHEMA = """
label = "ill"
classes = ["no", "yes"]
columns = [
  {kind = "numeric", name = "age", low = 0.0, high = 100.0},
  {kind = "boolean", name = "smokes", true = ["y"], false = ["n"]},
]
[label_values]
0 = "no"
1 = "yes"
"""


def listed() -> dict[str, tuple[Part, ...]]:
    """The ways of CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text[text.index("## Two ways through the code") :]
    return ways_in(section[: section.index("\n## ")])


@pytest.fixture(autouse=True)
def no_machine_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def make_federation(folder: Path, **choices: Any) -> None:
    """Keys, plan, policies, and each client's CSV file."""
    roster = enrol(folder, *CLIENTS)
    (folder / "schema.toml").write_text(SCHEMA)
    fixed = {"epsilon": 8.0, "delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE, "max_records": 64, "dropouts": 0}
    data = PublicData.of_schema(load_schema(str(folder / "schema.toml")))
    plan = make_plan(data, roster, PlanChoices(**fixed, **choices), OperatingSystem())
    write_plan(plan, folder / "plan.json")
    for number, name in enumerate(CLIENTS):
        rows = [f"{30 + 7 * number + each},{'yn'[each % 3 % 2]},{each % 2}" for each in range(20)]
        (folder / name / "records.csv").write_text("\n".join(["age,smokes,ill", *rows]))
        (folder / name / "policy.toml").write_text(policy_accepting(plan, name).to_toml())


async def federate(folder: Path) -> None:
    """Run server and clients to the end, each in a task of its own that bears its name as `PARTY`."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def files(name: str) -> dict[str, Path]:
        return {"plan": folder / "plan.json", "state": folder / name / "state", "tls": folder / name}

    async def server() -> None:
        async with secagg.Server(**files(SERVER)) as running:
            address.set_result(running.address)
            await running.run()

    async def client(name: str) -> None:
        own = {"data": folder / name / "records.csv", "policy": folder / name / "policy.toml"}
        await secagg.Client(**files(name), **own, server=await asyncio.shield(address)).run()

    async def named(name: str, make: Callable[[], Awaitable[None]]) -> None:
        PARTY.set(name)
        await make()

    clients = (named(name, lambda name=name: client(name)) for name in CLIENTS)  # type: ignore[misc]
    await asyncio.gather(named(SERVER, server), *clients)


@pytest.mark.parametrize("title", CHOICES)
def test_way_is_gone_as_listed(title: str, tmp_path: Path) -> None:
    """Client and server enter the listed functions in the listed order, on a route no longer than `MOST`."""
    parts = listed()[title]
    make_federation(tmp_path, **CHOICES[title])
    profiler = Profiler(place for part in parts for place in part.places)
    with profiled(profiler):
        asyncio.run(federate(tmp_path))
    assert complaints(parts, profiler.entries) == []
    files = route(parts, profiler.entries)
    stays, different = len(files), len(set(files))
    print(f"\n{title}: {stays} stays in {different} files", *files, sep="\n")
    assert (stays <= MOST[title][0], different <= MOST[title][1]) == (True, True), (stays, different)


TOY = """
**One**, with a remark:

1. *client*: `secagg/a.py: f, C.g` do this, `secagg/b.py: h` that.
2. `secagg/a.py: f` again.
3. *server*: `secagg/s.py: take` takes it.
4. *client*: `secagg/b.py: last` ends.

**Another**

1. *server*: `secagg/s.py: take` alone.
"""
F, G, H, LAST = (
    Place("secagg/a.py", "f"),
    Place("secagg/a.py", "C.g"),
    Place("secagg/b.py", "h"),
    Place("secagg/b.py", "last"),
)
TAKE = Place("secagg/s.py", "take")
OWN = {F: (1,), G: (1, 2), H: (1, 3), LAST: (4,)}
"""The calls that are open at the first entry of each."""
FILES = {1: "secagg/a.py", 2: "secagg/a.py", 3: "secagg/b.py", 4: "secagg/b.py"}


def toy_entries(*order: Place) -> dict[tuple[str, Place], Entry]:
    """Entries of the toy's client, with the server's in the order too."""
    return {
        ("server" if place == TAKE else "client", place): Entry(
            number, tuple((call, FILES[call]) for call in OWN[place]) if place in OWN else ((9, "secagg/s.py"),)
        )
        for number, place in enumerate(order)
    }


def test_a_way_is_read_by_its_parties() -> None:
    """Each title has its parts, and what a party enters twice is named once."""
    one = (Part("client", (F, G, H)), Part("server", (TAKE,)), Part("client", (LAST,)))
    assert ways_in(TOY) == {"One": one, "Another": (Part("server", (TAKE,)),)}


@pytest.mark.parametrize(
    ("order", "found"),
    [
        ((F, G, H, TAKE, LAST), []),
        ((TAKE, F, G, H, LAST), [f"server enters {TAKE} before client enters {H}"]),
        ((F, H, G, TAKE, LAST), [f"client enters {H} before {G}"]),
        ((F, H, TAKE, LAST), [f"client does not enter {G}"]),
        ((F, G, H, LAST), [f"server does not enter {TAKE}"]),
        ((F, G, H, LAST, TAKE), [f"client enters {LAST} before server enters {TAKE}"]),
    ],
)
def test_a_wrong_list_is_found(order: tuple[Place, ...], found: list[str]) -> None:
    """What is entered in another order, or not at all, is named."""
    assert complaints(ways_in(TOY)["One"], toy_entries(*order)) == found


def test_a_function_that_nobody_enters_is_found() -> None:
    """A name that a way lists and the code has no more is complained of."""
    parts = ways_in(TOY.replace("C.g", "C.gone"))["One"]
    assert complaints(parts, toy_entries(F, H, TAKE, LAST)) == ["client does not enter secagg/a.py: C.gone"]


def test_a_route_counts_returns() -> None:
    """From g it goes back to f, which called h as well; to the client's last part none of these led."""
    files = route(ways_in(TOY)["One"], toy_entries(F, G, H, TAKE, LAST))
    assert files == ("secagg/a.py", "secagg/b.py", "secagg/s.py", "secagg/b.py")


def test_a_call_is_entered_once_and_by_its_party() -> None:
    """The profiler notes first entries alone, by the party at work, with the calls of ours that led there."""
    place = Place("secagg/agreement/roster.py", "Roster.index")
    roster, _ = make_roster(3)
    profiler = Profiler([place])
    before = PARTY.set("client")
    with profiled(profiler):
        roster.index("client-1")
        roster.index("client-2")
    PARTY.reset(before)
    assert list(profiler.entries) == [("client", place)]
    assert [file for _, file in profiler.entries["client", place].calls] == [place.file]
