"""What one adversary sees of a session: an object that simply lacks everything else."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

from threat_models.adversary import Adversary
from threat_models.session import Session

ALWAYS = ("plan", "clients", "members", "noise", "claim", "calibration")
"""Public to everyone who knows the plan and its outcome."""


def view_of(session: Session, adversary: Adversary) -> Any:
    """The view: attributes `plan`, `clients`, `members`, `noise`, `claim`, `calibration` and what the adversary sees.

    `contributions` holds the clients whose blocks it has in clear: all of them where the protection is one that it
    opens, else its colluders; without any it is not there at all.
    """
    seen: dict[str, Any] = {name: getattr(session, name) for name in ALWAYS}
    hidden = {"contributions"} | (_not_for_members(session) if adversary.is_member else set())
    for name in adversary.sees:
        if name not in hidden and (found := getattr(session, name)) is not None and (name == "head" or found):
            seen[name] = found
    if "contributions" in adversary.sees:
        clear = session.clients if session.plan.protection in adversary.opens else adversary.colluding(session.clients)
        if own := {client: session.contributions[client] for client in clear if client in session.contributions}:
            seen["contributions"] = own
    view = make_dataclass(f"ViewOf_{adversary.name}", [(name, object) for name in seen], frozen=True, eq=False)
    return view(**seen)


def _not_for_members(session: Session) -> set[str]:
    """What the plan does not show to members: the head where the server keeps it, sums that open no other round."""
    plan = session.plan
    return {
        name for name, is_shown in (("head", plan.result == "members"), ("release", session.is_shown)) if not is_shown
    }


def has(view: Any, needs: tuple[str, ...]) -> bool:
    """Whether a view shows all that an attack needs."""
    return all(hasattr(view, name) for name in needs)
