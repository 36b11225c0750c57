"""The protections: interchangeable ways to hide clients' integer vectors, each as state machines without I/O."""

from __future__ import annotations

import copyreg

from secagg.errors import BadInput
from secagg.protection import encryption, masking, none, sharing
from secagg.protection.interface import (
    Delivery,
    Handover,
    LocalParty,
    Protection,
    Script,
    SessionContext,
    SumToDeclare,
    SumToOpen,
)

__all__ = [
    "PROTECTIONS",
    "UNPROTECTED",
    "USUAL",
    "Delivery",
    "Handover",
    "LocalParty",
    "Protection",
    "Script",
    "SessionContext",
    "SumToDeclare",
    "SumToOpen",
    "protection_named",
]

PROTECTIONS: dict[str, Protection] = {
    each.PROTECTION.name: each.PROTECTION for each in (masking, sharing, encryption, none)
}
"""Every protection by its name. CONTRIBUTING.md lists all places of a new one."""
USUAL = masking.PROTECTION.name
"""The protection of a plan that names none."""
UNPROTECTED = none.PROTECTION.name
"""The protection that protects nothing."""


def protection_named(name: str) -> Protection:
    """Return the protection with this name. Raises BadInput for an unknown name."""
    if name not in PROTECTIONS:
        raise BadInput(f"there is no protection {name!r}", remedy=f"choose one of {', '.join(PROTECTIONS)}")
    return PROTECTIONS[name]


copyreg.pickle(Protection, lambda each: (protection_named, (each.name,)))
