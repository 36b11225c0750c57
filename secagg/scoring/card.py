"""The model card beside a head's file: the head's plan, (ε, δ), signers and metrics."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods.gate import GatedRound
from methods.method import domains_of
from secagg.agreement.roster import SERVER_INDEX
from secagg.agreement.schema import column_from_dict
from secagg.session import RoundSetup
from secagg.session.outcome import HEAD_FILE
from secagg.system.files import write_synced
from secagg.system.printable import escaped

if TYPE_CHECKING:
    from secagg.scoring.metrics import Metrics

CARD_JSON, CARD_MARKDOWN = "model_card.json", "model_card.md"
SIGNED = "members signed what they sent, the server its outcome: `secagg verify` checks both on a transcript"
NOBODY = "nobody: simulated, with throw-away keys"
EXACT = "none: an exact sum promises nothing about any one record"
MEASURED = "measured on held-out records without noise: no ε covers it"


def card_of(
    setup: RoundSetup,
    head_sha256: str,
    members: Sequence[int],
    *,
    simulated: bool = False,
    known_noise: bool = False,
    metrics: Metrics | None = None,
) -> dict[str, Any]:
    """Return the model card, version 1, as JSON values, of the head that a plan's last round gave.

    `members` are the roster indices in its sum. `known_noise`: a seed gives the noise again, so that nothing is
    promised. `metrics` are an experiment's: a real federation measures nothing.
    """
    plan, roster = setup.plan, setup.roster
    signers = {} if simulated else {roster.name(each): roster.identity(each).hex() for each in (SERVER_INDEX, *members)}
    return {
        "version": 1,
        "head_sha256": head_sha256,
        "method": plan.method,
        "parameters": plan.method_parameters,
        "classes": list(plan.classes),
        "classes_left_out": classes_left_out(setup),
        "data": {
            "kind": plan.data_kind,
            "shape": list(plan.input_shape),
            "schema": json.loads(plan.schema) if plan.schema else None,
            "backbone": plan.backbone,
            "backbone_sha256": plan.backbone_digest.hex(),
            "expand": plan.expand,
            "normalisation": plan.normalisation,
        },
        "plan": {
            "sha256": plan.digest.hex(),
            "purpose": plan.purpose,
            "consortium": roster.consortium,
            "roster_sha256": roster.digest.hex(),
            "protection": plan.protection,
            "rounds": setup.rounds,
            "clients": len(roster.clients),
            "in_the_sum": len(members),
        },
        "privacy": _privacy_of(setup, known_noise),
        "signed_by": signers,
        "simulated": simulated,
        "metrics": {**metrics.to_json(), "note": MEASURED} if metrics is not None else None,
        "secagg": version("secagg"),
    }


def _privacy_of(setup: RoundSetup, known_noise: bool) -> dict[str, Any]:
    plan = setup.plan
    return {
        "epsilon": plan.epsilon if math.isfinite(plan.epsilon) else "inf",
        "delta": plan.delta or None,
        "adjacency": plan.adjacency or None,
        "unit": plan.unit,
        "promise": setup.facts.claim.sentence() if setup.facts.claim and not known_noise else None,
        "reproducible_noise": known_noise,
    }


def classes_left_out(last: RoundSetup) -> list[str]:
    """Return the names of the classes that the plan's gate left out for too few clients, each with its domain, if any.

    `last` is the plan's last round; the head never predicts these.
    """
    classes, gated = last.plan.classes, last.known_round
    if not isinstance(gated, GatedRound):
        return []
    domains = [f" in {name}" for name in domains_of(last.plan.method_parameters)] or [""]
    slots = gated.parts // len(domains)
    parts = [f"{name}, slot {slot}" if slots > 1 else name for name in domains for slot in range(slots)]
    return [classes[j] + parts[k] for j, k in gated.left_out(len(classes))]


def write_card(folder: Path, card: Mapping[str, Any]) -> None:
    """Write `model_card.json` and `model_card.md` into the folder of a head, readable by the files' owner alone."""
    write_synced(folder / CARD_JSON, (json.dumps(card, indent=2, allow_nan=False) + "\n").encode())
    write_synced(folder / CARD_MARKDOWN, markdown_of(card).encode())


def markdown_of(card: Mapping[str, Any]) -> str:
    """Render a card as Markdown for people."""
    plan, privacy, data = card["plan"], card["privacy"], card["data"]
    positive = (data["schema"] or {}).get("positive", "")
    who = ", ".join(f"{name} (`{key[:16]}…`)" for name, key in card["signed_by"].items()) or NOBODY
    shape = "×".join(map(str, data["shape"]))
    more = f", expanded to {data['expand']}" if data["expand"] else ""
    takes = f"{data['kind']} of {shape}, backbone {_plain(data['backbone'])} (`{data['backbone_sha256'][:16]}…`){more}"
    rows = [
        ("head", f"`{HEAD_FILE}`, SHA-256 `{card['head_sha256']}`"),
        ("made by", f"{_plain(plan['consortium'])}, plan SHA-256 `{plan['sha256']}`"),
        ("purpose", _plain(plan["purpose"]) or "not said"),
        ("tells apart", _plain(", ".join(card["classes"]))),
        *(
            [("left out by the class gate", _plain(", ".join(left_out)))]
            if (left_out := card["classes_left_out"])
            else []
        ),
        *([("positive class", _plain(positive))] if positive else []),
        ("takes", takes),
        ("in the last sum", f"{plan['in_the_sum']} of {plan['clients']} clients, protection {plan['protection']}"),
        ("promise", "none: the noise is known" if privacy["reproducible_noise"] else privacy["promise"] or EXACT),
        ("signed by", who + ("" if card["simulated"] else f"; {SIGNED}")),
    ]
    lines = [
        f"# A classifier head: {card['method']}, {len(card['classes'])} classes",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {value} |" for name, value in rows),
        "",
        *(_columns(data["schema"]) if data["schema"] else []),
        *(_measures(card["metrics"]) if card["metrics"] else []),
        f"Use: `secagg predict --head {HEAD_FILE} --data FILE`. A head is made of the members' records: it tells of",
        "them as far as the promise above lets it, and its accuracy holds for records like theirs.",
    ]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return foreign text escaped for Markdown, so that it can form no HTML, link, picture or table cell."""
    return re.sub(r"[\\`\[\]<>|]", r"\\\g<0>", escaped(text))


def _columns(schema: Mapping[str, Any]) -> list[str]:
    columns = [column_from_dict(each) for each in schema["columns"]]
    listed = [f"| {_plain(column.name)} | {_plain(column.declared)} |" for column in columns]
    return ["| column | values |", "| --- | --- |", *listed, ""]


def _measures(metrics: Mapping[str, Any]) -> list[str]:
    rows = [(name.replace("_", " "), each) for name, each in metrics.items() if isinstance(each, dict)]
    listed = [f"| {name} | {each['value']:.4f} | {each['low']:.4f} to {each['high']:.4f} |" for name, each in rows]
    first = f"On {metrics['records']} records, {metrics['note']}."
    return [first, "", "| measure | value | 95 % |", "| --- | ---: | --- |", *listed, ""]
