"""The cells of the fault matrix: fault x party x protection x rounds, each with a name."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from secagg.protection import protection_named
from tests.faults.inside import Inside, Jumping, Killed, Refusing
from tests.faults.proxy import Trouble
from tests.worlds.processes import HELPERS
from tests.worlds.rosters import SERVER

CLIENT = "b"
"""The client that a fault of clients is at; one of four."""
PROTECTIONS, ROUNDS = ("masked", "shared", "encrypted"), (1, 3)
JOIN_SECONDS, STEP_SECONDS = 300, 60
"""Long, as nobody waits for them where all are there, and as the machine may be busy."""
MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


@dataclass(frozen=True)
class Fault:
    """One kind of fault: inside the party, at its connections, its process stopped, or its disk too small.

    `is_patient`: the plan's times are long, as the party is away again and again. `is_absence`: the party is away for
    longer than a step, so that the others may go on without it. `unable` says why it cannot be had here.
    """

    inside: Inside | None = None
    trouble: Trouble | None = None
    stopped: float = 0.0
    disk: int = 0
    is_patient: bool = False
    is_absence: bool = False
    unable: str = ""

    @property
    def kills(self) -> bool:
        """Whether the fault itself ends the party's process."""
        return isinstance(self.inside, Killed) or (isinstance(self.inside, Jumping) and self.inside.dies)


_NO_MOUNTS = "" if os.geteuid() == 0 and shutil.which("mount") else "a small disk is mounted, which only root may"
_NO_CLOCK = "the clock of a single process cannot be set, and OpenSSL does not ask Python for it: not tried"
FAULTS: Mapping[str, Fault] = {
    "kill at write 13": Fault(Killed(13)),
    "full disk of 16 KiB": Fault(disk=16, unable=_NO_MOUNTS),
    "failing fsync 6": Fault(Refusing(errno.EIO, ("fsync",), 6)),
    "clock +1 day, then restarted": Fault(Jumping(DAY, dies=True)),
    **{f"proxy: {trouble}": Fault(trouble=trouble) for trouble in Trouble},
    "stop for less than a step": Fault(stopped=STEP_SECONDS / 6),
    "stop for more than a step": Fault(stopped=STEP_SECONDS + 10.0, is_absence=True),
    "clock -4 min, then restarted": Fault(Jumping(-4 * MINUTE, dies=True)),
    "clock +1 h, then restarted": Fault(Jumping(HOUR, dies=True)),
    "clock +1 day": Fault(Jumping(DAY, dies=False)),
    "clock -1 day, of OpenSSL": Fault(unable=_NO_CLOCK),
    **{f"full disk of {size} KiB": Fault(disk=size, unable=_NO_MOUNTS) for size in (48, 96)},
    **{f"kill at write {number}": Fault(Killed(number)) for number in (2, 7, 30)},
    **{f"failing fsync {number}": Fault(Refusing(errno.EIO, ("fsync",), number)) for number in (1, 12, 20)},
    "kill at every write": Fault(Killed(), is_patient=True),
    "full disk at every write": Fault(Refusing(errno.ENOSPC, ("fsync", "replace", "mkdir")), is_patient=True),
    "each fsync fails once": Fault(Refusing(errno.EIO, ("fsync",)), is_patient=True),
}
"""By name: the party is killed after its write of that number, or after each; a write is refused, or each once."""
FIRST = tuple(FAULTS)[:11]
"""One of each kind: a run that has not the time for all begins with them."""


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    fault: str
    party: str
    protection: str
    rounds: int

    @property
    def kind(self) -> Fault:
        """The fault itself."""
        return FAULTS[self.fault]

    @property
    def name(self) -> str:
        """Its name, by which a skipped cell is listed."""
        return f"{self.fault} | {self.party} | {self.protection} | {self.rounds} round{'s' * (self.rounds > 1)}"

    def is_of(self, only: Mapping[str, str]) -> bool:
        """Whether its fault begins with the given one, and its other fields are those given."""
        return all(
            self.fault.startswith(value) if field == "fault" else str(getattr(self, field)) == value
            for field, value in only.items()
        )


def parties_of(protection: str) -> tuple[str, ...]:
    """The parties that faults are at: the server, one helper if there is any, and one client."""
    return (SERVER, *HELPERS.get(protection_named(protection).helper_role, ())[:1], CLIENT)


def all_cells() -> Iterator[Cell]:
    """Every cell: one of each kind of fault everywhere first, in one round and then in three; the others follow."""
    for faults in (FIRST, [fault for fault in FAULTS if fault not in FIRST]):
        for rounds in ROUNDS:
            for fault in faults:
                for protection in PROTECTIONS:
                    yield from (Cell(fault, party, protection, rounds) for party in parties_of(protection))
