"""The view that one adversary has of a session, without the fields that it does not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from methods import sums_of
from methods.round import Round
from secagg.agreement.plan import Plan, ResultAccess
from secagg.errors import BadInput
from secagg.privacy import Claim, NoiseCalibration, OpenedNoise
from threat_models.adversary import FIELDS, Adversary
from threat_models.session import Blocks, Message, Released, RemadeSessions, Session

ALWAYS = ("plan", "clients", "members", "noise", "claim", "calibration", "number", "cells", "ciphertexts")
"""Fields of a session that everybody sees who knows the plan and its outcome."""


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class View:
    """One adversary's view of a session: public fields, those of `FIELDS` that it sees, and views of `earlier` sums.

    Who sees sums is told what opens each `round`, such as the state that members train from; others have None there.

    Each field means what it does in `Session`. Reading a field that the adversary does not see raises AttributeError:
    the value is not in the object. `contributions` are of the clients whose blocks it has in clear alone.
    """

    plan: Plan
    clients: tuple[str, ...]
    members: tuple[str, ...]
    noise: Mapping[str, OpenedNoise] | None
    claim: Claim | None
    calibration: NoiseCalibration | None
    number: int
    cells: tuple[str, ...]
    ciphertexts: RemadeSessions | None
    earlier: tuple[View, ...]
    round: Round | None
    messages: tuple[Message, ...]
    uploads: Mapping[str, bytes]
    release: Blocks
    head: Released
    contributions: Mapping[str, Blocks]

    def __init__(self, seen: Mapping[str, Any]) -> None:
        for name, value in seen.items():
            object.__setattr__(self, name, value)

    @property
    def sees(self) -> tuple[str, ...]:
        """The names of `FIELDS` that this view holds."""
        return tuple(name for name in FIELDS if hasattr(self, name))

    @property
    def in_clear(self) -> Mapping[str, Blocks]:
        """The blocks (arrays), by client, that the adversary sees unprotected; empty if there are none."""
        return self.contributions if "contributions" in self.sees else {}

    def has(self, need: str) -> bool:
        """Return whether the view has a field, or one of its sums has a block, named `need`."""
        sums = [*([self.release] if "release" in self.sees else []), *self.in_clear.values()]
        return need in self.sees or any(need in blocks for blocks in sums)


def view_of(session: Session, adversary: Adversary) -> View:
    """Make the view that an adversary has of a session.

    `contributions` are of all clients where the protection is one that the adversary opens, else of its colluders; the
    field is missing where there are none. Raises BadInput where the transcript of a party shows nothing of what the
    adversary sees.
    """
    seen: dict[str, Any] = {name: getattr(session, name) for name in ALWAYS}
    missing = missing_from(session, adversary)
    hidden = {"contributions", *missing} | (_hidden_from_members(session) if adversary.is_member else set())
    for name in adversary.sees:
        if name not in hidden and (found := getattr(session, name)) is not None and (name == "head" or found):
            seen[name] = found
    if "contributions" in adversary.sees and "contributions" not in missing:
        clear = _clients_in_clear(session, adversary)
        if own := {client: session.contributions[client] for client in clear if client in session.contributions}:
            seen["contributions"] = own
    if len(seen) == len(ALWAYS) and missing and session.role:
        raise BadInput(
            f"the transcript of a {session.role} shows none of what {adversary.name} sees: {', '.join(missing)}",
            remedy="audit another party's transcript, or --simulate",
        )
    earlier = session.earlier if "release" in adversary.sees else ()
    told = session.round if "release" in adversary.sees else None
    return View({**seen, "earlier": tuple(view_of(each, adversary) for each in earlier), "round": told})


def missing_from(session: Session, adversary: Adversary) -> tuple[str, ...]:
    """Return the fields that the adversary sees but that this session lacks or holds incompletely.

    Only a server's transcript shows every message and upload. Contributions that the protection hides from the server,
    but not from this adversary, are in no transcript. A simulation makes no uploads; this counts as holding them, since
    no attack on masks is judged by a simulation.
    """
    clear = [client for client in _clients_in_clear(session, adversary) if client in session.members]
    is_there = {
        "messages": session.role in ("", "server"),
        "uploads": session.role in ("", "server"),
        "release": bool(session.release),
        "head": session.head is not None
        or (session.role == "server" and session.number < sum(kind.times for kind in sums_of(session.plan))),
        "contributions": all(client in session.contributions for client in clear),
    }
    hidden = _hidden_from_members(session) if adversary.is_member else set()
    if "release" in hidden:
        hidden = hidden | {"contributions"}  # of use to take it off the sum alone
    return tuple(name for name in adversary.sees if name not in hidden and not is_there[name])


def _clients_in_clear(session: Session, adversary: Adversary) -> tuple[str, ...]:
    """Return the clients whose contributions the adversary has in clear."""
    return session.clients if session.plan.protection in adversary.opens else adversary.colluding(session.clients)


def _hidden_from_members(session: Session) -> set[str]:
    """Return the fields that the plan hides from members: a head that the server keeps, and sums not shown to them."""
    hidden = set() if session.plan.result is ResultAccess.MEMBERS else {"head"}
    return hidden if session.is_shown else {*hidden, "release"}
