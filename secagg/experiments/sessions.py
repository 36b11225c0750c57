"""One session of a plan, whatever its protection, with the noise that those who open the sum add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from secagg.crypto.signatures import SigningKey
from secagg.encoding import Integers
from secagg.experiments.encrypted_session import EncryptedSession
from secagg.experiments.in_memory import InMemorySession, SessionResult
from secagg.experiments.shared_session import SharedSession
from secagg.parties import SessionSetup
from secagg.plan import NoiseFrom
from secagg.privacy import rounded_gaussian
from secagg.protection.encryption.binding import EncryptedContext
from secagg.protection.sharing.context import SharedContext
from secagg.randomness import OperatingSystem
from secagg.roster import SERVER_INDEX


def run_session(
    setup: SessionSetup,
    identities: Mapping[int, SigningKey],
    vector_of: Callable[[int], Integers],
    leaves: Mapping[int, str],
) -> SessionResult:
    """Open the sum of the clients that stay; `leaves` says who leaves at which step.

    `identities` are those of all parties by their index in the roster. Raises SessionAborted when too few are left.
    """
    context, source = setup.context, OperatingSystem()
    noise = _noise_of(setup)
    members = {index: identities[index] for index in (*context.clients, *context.seconds)}
    if isinstance(context, SharedContext):
        return SharedSession(context, members, vector_of, source, leaves, noise).run()
    if isinstance(context, EncryptedContext):
        return EncryptedSession(context, members, identities[SERVER_INDEX], vector_of, source, leaves).run()
    opened = InMemorySession(context, setup.protection, members, vector_of, source, leaves).run()
    return opened if noise is None else replace(opened, total=opened.total + noise())


def _noise_of(setup: SessionSetup) -> Callable[[], Integers] | None:
    """Draws the noise of one party that opens the sum; None where it adds none."""
    calibration = setup.calibration
    if calibration is None or setup.plan.noise != NoiseFrom.AGGREGATOR:
        return None
    segments = calibration.segments
    return lambda: rounded_gaussian(segments, OperatingSystem())
