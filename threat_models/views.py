"""What one adversary sees of a session: an object that simply lacks everything else."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

from secagg.errors import BadInput
from threat_models.adversary import Adversary
from threat_models.session import Session

ALWAYS = ("plan", "clients", "members", "noise", "claim", "calibration", "number", "cells", "ciphertexts")
"""Public to everyone who knows the plan and its outcome."""


def view_of(session: Session, adversary: Adversary) -> Any:
    """The view: what everyone knows (`ALWAYS`), and what the adversary sees.

    `contributions` holds the clients whose blocks it has in clear: all of them where the protection is one that it
    opens, else its colluders; without any it is not there at all. `earlier` are views of the plan's sums before this
    one, where there are any. Raises BadInput where the transcript of a party shows nothing of what the adversary sees.
    """
    seen: dict[str, Any] = {name: getattr(session, name) for name in ALWAYS}
    missing = missing_from(session, adversary)
    hidden = {"contributions", *missing} | (_not_for_members(session) if adversary.is_member else set())
    for name in adversary.sees:
        if name not in hidden and (found := getattr(session, name)) is not None and (name == "head" or found):
            seen[name] = found
    if "contributions" in adversary.sees and "contributions" not in missing:
        clear = _clear(session, adversary)
        if own := {client: session.contributions[client] for client in clear if client in session.contributions}:
            seen["contributions"] = own
    if "release" in adversary.sees and session.earlier:
        seen["earlier"] = tuple(view_of(each, adversary) for each in session.earlier)
    if len(seen) == len(ALWAYS) and missing and session.role:
        raise BadInput(
            f"the transcript of a {session.role} shows none of what {adversary.name} sees: {', '.join(missing)}",
            remedy="audit another party's transcript, or --simulate",
        )
    view = make_dataclass(f"ViewOf_{adversary.name}", [(name, object) for name in seen], frozen=True, eq=False)
    return view(**seen)


def missing_from(session: Session, adversary: Adversary) -> tuple[str, ...]:
    """What the adversary sees and this session does not hold, or not all of: the view lacks it, and cannot tell.

    Only a server's transcript shows every message and upload; contributions that the protection hides from the server,
    but not from this adversary, are in none. A simulation makes no uploads, and what would show in them is none of it.
    """
    clear = [client for client in _clear(session, adversary) if client in session.members]
    is_there = {
        "messages": session.role in ("", "server"),
        "uploads": session.role in ("", "server"),
        "release": bool(session.release),
        "head": session.head is not None or session.role == "server",
        "contributions": all(client in session.contributions for client in clear),
    }
    hidden = _not_for_members(session) if adversary.is_member else set()
    if "release" in hidden:
        hidden = hidden | {"contributions"}  # of use to take it off the sum alone
    return tuple(name for name in adversary.sees if name not in hidden and not is_there[name])


def _clear(session: Session, adversary: Adversary) -> tuple[str, ...]:
    """The clients whose contributions the adversary has in clear."""
    return session.clients if session.plan.protection in adversary.opens else adversary.colluding(session.clients)


def _not_for_members(session: Session) -> set[str]:
    """What the plan does not show to members: the head where the server keeps it, sums that open no other round."""
    plan = session.plan
    return {
        name for name, is_shown in (("head", plan.result == "members"), ("release", session.is_shown)) if not is_shown
    }


def has(view: Any, needs: tuple[str, ...]) -> bool:
    """Whether a view shows all that an attack needs: attributes, or blocks by name in whatever sums it shows."""
    sums = [getattr(view, "release", {}), *getattr(view, "contributions", {}).values()]
    blocks = {name for blocks in sums for name in blocks}
    return all(hasattr(view, name) or name in blocks for name in needs)
