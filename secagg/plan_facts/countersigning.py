"""Countersign a plan: write and check approvals, files in which a member's identity key has signed the plan.

The plan's digest covers its roster, so that an approval counts for this plan, among these members, with these keys. It
covers the plan's page, which follows from both (`plan_page`), and needs no digest of it. It moves nothing by itself:
each member's policy and ledger still decide when it takes part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secagg.agreement.plan import Plan
from secagg.agreement.roster import SERVER_INDEX, Roster
from secagg.crypto.signatures import SigningKey, is_signed
from secagg.errors import BadInput
from secagg.system.reading import each_field_once, parse_json, read_limited, require_fields

FORMAT, APPROVAL_VERSION = "secagg-approval", 1
SUFFIX = ".approval"
_MOST_BYTES = 4096


def approve(plan: Plan, name: str, identity: SigningKey) -> str:
    """Return the text of a member's approval file, a signature over the plan's digest and the member's name."""
    signature = identity.sign("plan approval", plan.digest, name.encode())
    named = {"format": FORMAT, "version": APPROVAL_VERSION}
    content = {**named, "plan": plan.digest.hex(), "name": name, "signature": signature.hex()}
    return json.dumps(content, indent=1) + "\n"


@dataclass(frozen=True)
class Approvals:
    """The parties that have approved a plan, those that have not (in the roster's order), and the files refused."""

    given: tuple[str, ...]
    missing: tuple[str, ...]
    refused: Mapping[str, str]

    def lines(self) -> list[str]:
        """Return lines for a log: who has approved the plan and who has not, and a warning for each refused file."""
        given = f"the plan is approved by {', '.join(self.given) or 'nobody'}"
        said = f"{given}; not by {', '.join(self.missing)}" if self.missing else f"{given}: by all"
        return [said, *(f"warning: {name} does not count: {why}" for name, why in self.refused.items())]


def gather_approvals(plan: Plan, roster: Roster, folder: Path) -> Approvals:
    """Read every *.approval in a folder. Raises BadInput for a missing folder; a bad file does not count."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {folder}", remedy="put the members' .approval files into one")
    given, refused = set[str](), dict[str, str]()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            given.add(_approver(plan, roster, path))
        except BadInput as error:
            refused[path.name] = str(error)
    names = [member.name for index, member in enumerate(roster.members) if index != SERVER_INDEX]
    missing = tuple(name for name in names if name not in given)
    return Approvals(tuple(name for name in names if name in given), missing, refused)


def _approver(plan: Plan, roster: Roster, path: Path) -> str:
    """Return the name of the party whose approval a file holds. Raises BadInput."""
    try:
        content = parse_json(read_limited(path, _MOST_BYTES), object_pairs_hook=each_field_once)
        require_fields(content, FORMAT, APPROVAL_VERSION, ("plan", "name", "signature"))
        digest, name = bytes.fromhex(content["plan"]), content["name"]
        signature = bytes.fromhex(content["signature"])
    except OSError as error:
        raise BadInput(f"it cannot be read ({error.strerror})", remedy="have it sent again") from None
    except (ValueError, TypeError) as error:
        raise BadInput(f"it is no approval ({error})", remedy="have it signed again with plan sign") from None
    if digest != plan.digest:
        raise BadInput("it is of another plan", remedy="have it signed again with plan sign")
    index = roster.index(str(name))
    if not is_signed(roster.identity(index), signature, "plan approval", digest, roster.name(index).encode()):
        raise BadInput(f"it is not signed by {roster.name(index)}", remedy="have it signed again with plan sign")
    return roster.name(index)
