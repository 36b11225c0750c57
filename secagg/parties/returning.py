"""How a client that was away returns: others have signed what opened the round, in place of all that it has missed.

Every party that has checked the end of a round acknowledges it, and names in that the opening that follows from it for
this plan. Acknowledgements of t other clients (`witnesses_of`) make an opening as certain to who was away as
the quorum of a masked sum makes a set of survivors: of any t at most c lie, any two sets of t share an honest client,
and no honest one acknowledges two ends of one session. The server can keep them back; it cannot make them up.
"""

from __future__ import annotations

from collections.abc import Mapping

from secagg.errors import ProtocolViolation
from secagg.parties.setup import SessionSetup
from secagg.protection.messages import Acknowledgement, Return
from secagg.roster import SERVER_INDEX
from secagg.transcript import open_frame, payload_of, peek


def witnesses_of(setup: SessionSetup) -> int:
    """How many other clients must have signed what opened a round for one that was away: t, with 2t > n + c."""
    return (len(setup.context.clients) + setup.plan.colluders) // 2 + 1


def may_return(first: SessionSetup) -> bool:
    """Whether clients that were away may return in a later round: it is decided here, for all parties.

    Each broadcast must tell all of its round, and there must be enough others to sign. `first` is the plan's first
    session.
    """
    return first.rounds > 1 and first.round.stands_alone and witnesses_of(first) < len(first.context.clients)


def show_return(setup: SessionSetup, acknowledged: Mapping[int, bytes], client: int) -> Return | None:
    """What a client that was away is shown of a later round; None as long as too few others have signed.

    `acknowledged` are the parties' frames in the session before.
    """
    others = [acknowledged[each] for each in setup.context.clients if each in acknowledged and each != client]
    if setup.opening is None or len(others) < witnesses_of(setup):
        return None
    return Return(setup.opening, tuple(others[: witnesses_of(setup)]))


def follow_return(
    first: SessionSetup, shown: Return, client: int | None, after: int, broadcast: bytes = b""
) -> SessionSetup:
    """The session in which `client` returns; `first` is the plan's first one, `after` the last round that it saw.

    What it sums is known with the `broadcast`. Raises MalformedMessage or ProtocolViolation (the server) for a round
    that is not a later one of the plan, a plan that nobody may return to, for fewer than t valid signatures of distinct
    others, and for a broadcast that they have not signed.
    """
    number = shown.opening.number
    if not may_return(first):
        raise ProtocolViolation(SERVER_INDEX, "shows a way back into a plan that has none")
    if not after < number <= first.rounds:
        raise ProtocolViolation(SERVER_INDEX, f"shows a way back into round {number}, after round {after}")
    signers = [_signer(first, shown, frame) for frame in shown.acknowledgements]
    if len(set(signers)) < len(signers):
        raise ProtocolViolation(SERVER_INDEX, "shows one client's signature twice")
    others = set(signers) - {client}
    if len(others) < witnesses_of(first):
        said = f"shows {len(others)} signatures of other clients on what opened round {number}"
        raise ProtocolViolation(SERVER_INDEX, f"{said}, fewer than {witnesses_of(first)}")
    return first.returning(shown, broadcast)


def _signer(first: SessionSetup, shown: Return, frame: bytes) -> int:
    """The client whose frame acknowledges the opening for this plan. Raises MalformedMessage or ProtocolViolation."""
    opening, sender = shown.opening, peek(frame).sender
    if sender not in first.context.identities:
        raise ProtocolViolation(SERVER_INDEX, f"shows a signature of party {sender}, which is no client")
    try:
        body = open_frame(frame, first.roster, opening.previous, sender, SERVER_INDEX)
    except ProtocolViolation as error:
        raise ProtocolViolation(SERVER_INDEX, f"shows what is not signed: {first.roster.name_culprit(error)}") from None
    told = Acknowledgement(opening.aggregate_sha256, opening.statement(first.plan.digest))
    if payload_of(body, Acknowledgement) != told:
        raise ProtocolViolation(SERVER_INDEX, f"shows what {first.roster.name(sender)} signed of something else")
    return sender
