"""`secagg ledger`: show, export or recover a member's record of the privacy cost charged to its data sets."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.policy import data_set, read_policy
from secagg.cli.budget import budget_content, budget_rows
from secagg.cli.console import QuietOption, Speaker, two_columns
from secagg.errors import BadInput
from secagg.federation import recover_ledger
from secagg.ledger import FILE_NAME, Entry, Ledger
from secagg.ledger.spending import Release, counted_rows, settles, total_epsilon
from secagg.privacy import Adjacency, Unit
from secagg.privacy.claim import format_epsilon
from secagg.privacy.gaussian import check_delta
from secagg.system.printable import escaped
from secagg.wire import plain

EXPORT_VERSION = 3
_HEADER = ("row", "date", "plan", "session", "epsilon", "delta", "unit", "adjacency", "name")

app = typer.Typer(help="What was released about this member's data sets.", no_args_is_help=True)
StateOption = Annotated[Path, typer.Option("--state", help="The member's folder: sessions, transcripts, ledger.")]


@app.command("show")
def show(
    speaker: Speaker,
    state: StateOption,
    data: Annotated[str | None, typer.Option(help="Only this data set, under any version of its name.")] = None,
    delta: Annotated[float, typer.Option(help="δ of the totals: probability with which their ε may fail.")] = 1e-5,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="Also say what this policy's budget leaves of its data set.")
    ] = None,
) -> None:
    """List the releases of each data set and what they cost together. Rounded up, never down."""
    check_delta(delta)
    ledger = Ledger(state, create=False)
    entries = ledger.entries()
    names = sorted({data_set(entry.release.data_name) for entry in entries})
    if data is not None:
        if data_set(data) not in names:
            problem = f"the ledger has no data set {data_set(data)}"
            raise BadInput(problem, remedy=f"it has {', '.join(names) or 'none'}")
        names = [data_set(data)]
    budgets = {}
    if policy is not None:
        asked = read_policy(policy)
        called = asked.data_name
        account = ledger.account(None, called, asked.budget)
        budgets[data_set(called)] = (budget_content(account, called), budget_rows(account, called))
    content: list[dict[str, Any]] = []
    lines: list[str] = []
    for name in names:
        own = [entry for entry in entries if data_set(entry.release.data_name) == name]
        releases = counted_rows([entry.release for entry in own])
        totals = [
            {"unit": unit, "adjacency": adjacency, "epsilon": plain(total_epsilon(releases, unit, adjacency, delta))}
            for unit, adjacency in itertools.product(Unit, Adjacency)
        ]
        content.append({"data_set": name, "releases": [_row(entry) for entry in own], "spent": totals})
        spent = [
            (f"  {each['unit']} level, {each['adjacency']}", f"epsilon {_show(each['epsilon'])}") for each in totals
        ]
        lines += [*_table(name, own), two_columns(f"  together, at delta {delta:g}", spent), ""]
        if name in budgets:
            content[-1]["budget"], rows = budgets.pop(name)
            lines.insert(-1, two_columns("  by the policy", rows))
    for name, (budget, rows) in budgets.items():
        content.append({"data_set": name, "releases": [], "budget": budget})
        lines += [two_columns(f"{name}: nothing was released yet", rows), ""]
    head = entries[-1].head.hex() if entries else None
    lines.append(two_columns("Ledger", [("rows", str(len(entries))), ("head", head or "-")]))
    speaker.result({"delta": delta, "head": head, "data_sets": content}, *lines)


@app.command("export")
def export(
    state: StateOption,
    out: Annotated[Path, typer.Option("--out", help="Where to write the JSON.")],
    quiet: QuietOption = False,
) -> None:
    """Write the whole ledger as JSON: every row with its costs' parameters, and the chain's heads."""
    entries = Ledger(state, create=False).entries()
    rows = [_row(entry) | {"head": entry.head.hex(), "spent": _costs(entry.release)} for entry in entries]
    content = {"version": EXPORT_VERSION, "entries": rows}
    try:
        out.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {out} ({error.strerror})") from None
    Speaker(quiet=quiet).say(f"wrote {len(rows)} row(s) of {state / FILE_NAME} to {out}")


@app.command("recover")
def recover(speaker: Speaker, state: StateOption) -> None:
    """Write a lost ledger again from the transcripts beside it; what they do not prove counts as an exact sum.

    The rows are proven where they give every head again that a transcript names: none is missing up to the last.
    Bring the ledger back from a backup where there is one: it also knows sessions whose folders are gone.
    """
    entries, proven = recover_ledger(state)
    lines = [*_table(f"Recovered into {state / FILE_NAME}", entries)]
    said = "proven by the heads that the transcripts name"
    if not proven:
        said = (
            "rows are missing, or of another version: every data set above is charged with an exact sum (epsilon inf)"
        )
    content = {"proven": proven, "releases": [_row(entry) for entry in entries]}
    speaker.result(content, *lines, f"  {said}")


def _row(entry: Entry) -> dict[str, Any]:
    release = entry.release
    return {
        "number": entry.number,
        "at": entry.at.isoformat(timespec="seconds") if entry.at is not None else None,
        "data_name": release.data_name,
        "session": release.session.hex(),
        "plan": release.plan.hex(),
        "epsilon": plain(release.epsilon),
        "delta": release.delta,
        "unit": release.unit,
        "adjacency": release.adjacency,
    }


def _costs(release: Release) -> list[dict[str, Any]]:
    """Return the release's costs as JSON values: unit, adjacency and the mechanism's parameters of each."""
    rows = []
    for each in release.spent:
        parameters = asdict(each.cost)
        rows.append({"unit": each.unit, "adjacency": each.adjacency} | parameters.pop("steps", {}) | parameters)
    return rows


def _show(epsilon: float | str) -> str:
    return epsilon if isinstance(epsilon, str) else format_epsilon(epsilon)


def _table(title: str, entries: list[Entry]) -> list[str]:
    rows = [_HEADER]
    for entry in entries:
        row = _row(entry)
        cost = (_show(row["epsilon"]), f"{row['delta']:g}", row["unit"], row["adjacency"] or "-")
        when = f"{entry.at:%Y-%m-%d %H:%M}" if entry.at is not None else "-"
        whole = next((each.number for each in entries if settles(entry.release, each.release)), None)
        name = row["data_name"] if whole is None else f"{row['data_name']}: what row {whole} came to"
        rows.append((str(entry.number), when, row["plan"][:12], row["session"][:12], *cost, escaped(name)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = (zip(row, widths, strict=True) for row in rows)
    return [title, *("  " + "  ".join(f"{cell:<{width}}" for cell, width in row).rstrip() for row in padded)]
