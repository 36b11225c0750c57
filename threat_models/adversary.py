"""Adversaries (threat models), read from threat_models/adversaries/*.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from secagg.errors import BadInput

FOLDER = Path(__file__).parent / "adversaries"
USUAL = ("no_protection", "curious_server", "network_observer", "released_head_white_box")
"""Adversaries of an audit whose caller names none."""
FIELDS = ("messages", "uploads", "release", "head", "contributions")
"""Fields of `Session` that an adversary may see, beside the plan and the clients' names."""


@dataclass(frozen=True)
class Adversary:
    """A threat model: what an adversary sees, and which attacks it tries.

    `sees` names fields of the session. `opens` names the protections under which it sees every client's contribution,
    if `contributions` is among `sees`; under any other it sees those of its `colluders` alone: a number of clients, the
    first ones of the roster, or "all but one". `is_member`: it sees head and release only where the plan shows them to
    members. `sessions` is how many sums about the same data it must have seen.
    `attacks` apply to it; the rest is for people.
    """

    name: str
    title: str
    who: str
    sees: tuple[str, ...]
    opens: tuple[str, ...]
    colluders: int | str
    is_member: bool
    sessions: int
    knows: tuple[str, ...]
    powers: tuple[str, ...]
    out_of_scope: tuple[str, ...]
    attacks: tuple[str, ...]
    residual_risk: str

    def colluding(self, clients: tuple[str, ...]) -> tuple[str, ...]:
        """Return the clients that collude with the adversary, taken from the start of `clients`."""
        return clients[:-1] if self.colluders == "all but one" else clients[: int(self.colluders)]


def names() -> tuple[str, ...]:
    """Return the names of all threat models, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def adversary_named(name: str) -> Adversary:
    """Read a threat model's file by name. Raises BadInput for an unknown name or an incomplete file."""
    if name not in names():
        raise BadInput(f"there is no threat model {name!r}", remedy=f"choose among {', '.join(names())}")
    content: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    wanted = {field.name for field in fields(Adversary)} - {"name"}
    if set(content) != wanted:
        raise BadInput(f"{name}.toml lacks or adds {', '.join(sorted(set(content) ^ wanted))}")
    if unknown := set(content["sees"]) - set(FIELDS):
        raise BadInput(f"{name}.toml sees {', '.join(sorted(unknown))}", remedy=f"choose among {', '.join(FIELDS)}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}
    return Adversary(name=name, **values)
