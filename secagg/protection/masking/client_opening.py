"""The client of the masked protocol after its upload: Uploaded → Endorsed → Opened.

Bonawitz et al. 2017, Figure 4, rounds 3 and 4. A client signs one survivor set of a session, ever, and opens one
share of each dealer, never both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import ProtocolViolation
from secagg.protection.interface import LocalParty, SessionContext, Transition
from secagg.protection.masking import derivations as bind
from secagg.protection.masking.messages import Endorsement, Held, OpenedShare, Opening, Quorum, Survivors
from secagg.protection.messages import Digest, Members, Outcome
from secagg.wire import message


@message("Uploaded")
@dataclass(frozen=True)
class Uploaded:
    """The masked vector is fixed; nothing that could unmask it is left here."""

    awaits: ClassVar[type] = Survivors
    directory: Digest
    dealers: Members
    held: Held

    def advance(self, context: SessionContext, me: LocalParty, incoming: Survivors) -> Transition:
        """Round 3: sign the survivor set, if it is a possible one. The next state can sign no other."""
        survivors = incoming.members
        if me.member not in survivors or not set(survivors) <= set(self.dealers):
            raise ProtocolViolation(
                SERVER_INDEX, "the survivors are not a subset of the dealers that holds this client"
            )
        fewest = bind.thresholds_of(context).survivors
        if len(survivors) < fewest:
            raise ProtocolViolation(
                SERVER_INDEX, f"asks to open the sum of {len(survivors)} clients; {fewest} is the least"
            )
        parts = bind.endorsement_parts(context, self.directory, self.dealers, survivors)
        endorsement = Endorsement(me.member, me.identity.sign("survivors", *parts))
        return Transition(Endorsed(self.directory, self.dealers, self.held, survivors), endorsement)


@message("Endorsed")
@dataclass(frozen=True)
class Endorsed:
    """One survivor set is signed; proof that enough others signed the same is awaited."""

    awaits: ClassVar[type] = Quorum
    directory: Digest
    dealers: Members
    held: Held
    survivors: Members

    def advance(self, context: SessionContext, me: LocalParty, incoming: Quorum) -> Transition:
        """Round 4: after t valid signatures on this very set, open one share for each dealer."""
        self._check(context, incoming)
        survivors = set(self.survivors)
        opening = Opening(
            seed_shares=tuple(
                OpenedShare(each.dealer, each.seed_share) for each in self.held if each.dealer in survivors
            ),
            key_shares=tuple(
                OpenedShare(each.dealer, each.key_share) for each in self.held if each.dealer not in survivors
            ),
        )
        return Transition(Opened(self.survivors), opening)

    def _check(self, context: SessionContext, quorum: Quorum) -> None:
        parts = bind.endorsement_parts(context, self.directory, self.dealers, self.survivors)
        needed = bind.thresholds_of(context).signatures
        valid = 0
        for endorsement in quorum.endorsements:
            if endorsement.member not in self.survivors:
                raise ProtocolViolation(SERVER_INDEX, f"counts member {endorsement.member}, which did not survive")
            if not bind.endorsement_is_signed(context, endorsement, parts):
                raise ProtocolViolation(
                    SERVER_INDEX, f"shows a signature of member {endorsement.member} on another set"
                )
            valid += 1
            if valid == needed:
                return
        raise ProtocolViolation(SERVER_INDEX, f"shows {valid} of the {needed} signatures that an opening needs")


@message("Opened")
@dataclass(frozen=True)
class Opened:
    """The opening is given and every share forgotten; only the outcome is awaited."""

    awaits: ClassVar[type] = Outcome
    survivors: Members

    def advance(self, context: SessionContext, me: LocalParty, incoming: Any) -> Transition:
        """Check that the outcome speaks of the set that this client opened; the session is over."""
        if incoming.members != self.survivors:
            raise ProtocolViolation(SERVER_INDEX, "the outcome names other clients than those that were opened")
        return Transition(self)
