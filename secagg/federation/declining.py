"""A client's signed message that it stays away from a round, so that nobody waits for it until the time is over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import SecaggError
from secagg.protection import LocalParty
from secagg.protection.messages import Decline
from secagg.session import Connection, RoundSetup
from secagg.transcript import NOT_SEEN, make_body, sign_frame

_DECLINE_SECONDS = 5.0


async def send_decline(
    setup: RoundSetup, me: LocalParty, reason: str, connections: Mapping[int, Connection]
) -> tuple[str, ...]:
    """Send a `Decline` to the server, and to each helper that takes uploads; return the names of those that have it.

    `connections` are by roster index. Nobody is asked for longer than some seconds: who does not hear of it waits for
    this client as for any absent one.
    """

    async def send(receiver: int, connection: Connection) -> bool:
        body = make_body(setup.context.round_digest, me.member, receiver, NOT_SEEN, NOT_SEEN, Decline(reason))
        with contextlib.suppress(SecaggError, TimeoutError):
            async with asyncio.timeout(_DECLINE_SECONDS):
                await connection.submit(sign_frame(me.identity, body))
                return True
        return False

    receivers = setup.protocol.receivers(setup.context) | {SERVER_INDEX}
    asked = [index for index in sorted(receivers) if index in connections]
    heard = await asyncio.gather(*(send(index, connections[index]) for index in asked))
    return tuple(setup.roster.name(index) for index, has_it in zip(asked, heard, strict=True) if has_it)
