"""A data set's privacy budget as text and JSON: ε spent before, ε of this plan, their joint ε, the limit, and ε left.

In text, each spent ε is rounded up, and what is left is rounded down.
"""

from __future__ import annotations

import math
from typing import Any

from secagg.agreement.policy import data_set
from secagg.ledger.spending import Account
from secagg.privacy.claim import format_epsilon
from secagg.wire import plain


def budget_rows(account: Account, data_name: str) -> list[tuple[str, str]]:
    """Return rows (name, value): the ε spent before, this plan's ε, their joint ε with its limit, and the ε left."""
    kind = f", {account.adjacency}, {account.unit} level" if account.adjacency else ""
    limit = "no limit" if math.isinf(account.limit) else f"at most {format_epsilon(account.limit)}"
    rows = [
        ("budget", f"of {data_set(data_name)}: epsilon at delta {account.delta:g}{kind}"),
        ("  spent before", f"{format_epsilon(account.spent)} in {account.sessions} other session(s)"),
        ("  this plan", format_epsilon(account.plan)),
        ("  together", f"{format_epsilon(account.together)}, {limit}"),
        ("  left", _left(account)),
    ]
    return rows if account.plan else [row for row in rows if row[0] not in ("  this plan", "  spent before")]


def budget_sentence(account: Account, data_name: str) -> str:
    """Return one line for people: the ε that the data set has spent in all, its limit, and what is left."""
    most = "no limit" if math.isinf(account.limit) else f"of at most {format_epsilon(account.limit)}"
    spent = format_epsilon(account.together)
    return f"{data_set(data_name)} has now spent epsilon {spent} ({most}); left: {_left(account)}"


def budget_content(account: Account, data_name: str) -> dict[str, Any]:
    """Return the budget as JSON values: no figure is rounded, and infinity is "inf"."""
    names = ("delta", "spent", "plan", "together", "limit", "left")
    figures = {name: plain(getattr(account, name)) for name in names}
    kind = {"data_set": data_set(data_name), "unit": str(account.unit), "adjacency": account.adjacency}
    return {**kind, "sessions": account.sessions, **figures}


def _left(account: Account) -> str:
    if math.isinf(account.left):
        return "no limit"
    if not account.left:
        return "nothing: no further plan is accepted"
    down = math.floor(account.left * 10_000) / 10_000
    return f"{down:.4f}".rstrip("0").rstrip(".") + ", the most that a further plan may cost"
