"""Checkpoints between the rounds of a simulated plan, so that an interrupted simulation can be resumed.

A folder's part for one simulation is named by all that decides its result (`identity_of`): other settings, data or code
begin anew beside it. There the last round that has ended is kept: what opened the rounds after it, the simulated
members' private states, and the reports and costs so far, sealed like a member's own state. A process that is killed
between two writes leaves the round before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from secagg.errors import BadInput
from secagg.experiments.client_accuracy import ClientAccuracy, PersonalAccuracy
from secagg.experiments.provenance import identity_of
from secagg.experiments.rounds import RoundReport
from secagg.experiments.session import SessionCost
from secagg.experiments.settings import SimulationSettings
from secagg.heads import Evaluation
from secagg.protection.messages import RoundOpening
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup, SumResult
from secagg.session.rounds import opening_after
from secagg.session.sealed_state import keep_state, recall_state
from secagg.system.files import private_folder
from secagg.wire import decode, encode


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a simulation between two rounds, from which it can be resumed.

    `openings`: what opened each round so far, with its broadcast; where a broadcast tells all, the last alone. `states`
    are the members' own, `points`, `measured` and `seconds` what is known and was spent so far.
    """

    openings: tuple[tuple[RoundOpening, bytes], ...] = ()
    states: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    points: tuple[RoundReport, ...] = ()
    measured: SessionCost = field(default_factory=SessionCost)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def after(self, setup: RoundSetup, result: SumResult) -> tuple[tuple[RoundOpening, bytes], ...]:
        """Return the (message, broadcast) pairs that start the rounds so far, and the one after the round of `setup`.

        Where a broadcast contains all that its round needs, only the last pair. Raises BadInput after the last round.
        """
        opening = opening_after(setup, result)
        if opening is None:
            raise BadInput(f"round {setup.number} opens no other")
        latest = (opening, result.broadcast)
        return (latest,) if setup.facts.opens_alone else (*self.openings, latest)

    def session_at(self, first: RoundSetup) -> RoundSetup:
        """Rebuild the next round from the plan's `first` round and the saved messages that start the rounds after that.

        Where the plan's own digest is another (nothing is seeded), the rounds that are told one by one are bound to it.
        """
        setup = first
        for opening, broadcast in self.openings:
            if opening.number == setup.number + 1:
                setup = setup.following(replace(opening, previous=setup.context.round_digest), broadcast)
            else:
                setup = setup.at(opening, broadcast)
        return setup


class CheckpointFolder:
    """A folder with the checkpoints of one simulation. Raises BadInput where it cannot be written."""

    def __init__(self, folder: Path, settings: SimulationSettings, data_sha256: str) -> None:
        identity = json.dumps(identity_of(asdict(settings), data_sha256))
        self._digest = hashlib.sha256(identity.encode()).digest()
        self._folder = folder / self._digest.hex()
        try:
            private_folder(self._folder)
        except OSError as error:
            raise BadInput(f"cannot write to {folder} ({error.strerror})", remedy="give another --keep") from None

    def recall(self) -> Checkpoint:
        """Return the latest checkpoint that was written completely, or an empty one if there is none."""
        for kept in sorted(self._rounds(), reverse=True):
            try:
                content = recall_state(self._folder / str(kept), self._digest)
            except BadInput:
                continue
            if content:
                return _read(json.loads(content))
        return Checkpoint()

    def keep(self, number: int, checkpoint: Checkpoint) -> None:
        """Write the checkpoint after round `number`, and delete those of the rounds before it."""
        folder = self._folder / str(number)
        private_folder(folder)
        content = {
            "openings": [[_text(encode(opening)), _text(broadcast)] for opening, broadcast in checkpoint.openings],
            "states": {member: _text(state) for member, state in checkpoint.states.items()},
            "points": [asdict(point) for point in checkpoint.points],
            "measured": asdict(checkpoint.measured),
            "seconds": dict(checkpoint.seconds),
        }
        keep_state(folder, json.dumps(content).encode(), self._digest, OperatingSystem())
        for before in self._rounds():
            if before != number:
                shutil.rmtree(self._folder / str(before))

    def forget(self) -> None:
        """Delete the checkpoints of a finished simulation, so that the same command starts again from round one."""
        shutil.rmtree(self._folder)

    def _rounds(self) -> list[int]:
        return [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]


def _read(content: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint of the JSON that `CheckpointFolder.keep` writes, which gives floats back exactly."""
    of_members = (content["measured"][name] for name in ("client_cpu", "client_bytes"))
    cpu, sent = ({int(member): value for member, value in each.items()} for each in of_members)
    return Checkpoint(
        tuple((decode(RoundOpening, b64decode(opening)), b64decode(told)) for opening, told in content["openings"]),
        {int(member): b64decode(state) for member, state in content["states"].items()},
        tuple(_report(**point) for point in content["points"]),
        SessionCost(cpu, sent, content["measured"]["server_seconds"]),
        content["seconds"],
    )


def _report(*, evaluation: dict[str, Any] | None, personal: list[dict[str, Any]], **others: Any) -> RoundReport:
    for own in personal:
        own["clients"] = tuple(ClientAccuracy(**_paired(each)) for each in own["clients"])
    test = Evaluation(**_paired(evaluation)) if evaluation is not None else None
    return RoundReport(evaluation=test, personal=tuple(PersonalAccuracy(**own) for own in personal), **others)


def _paired(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with `interval` as a pair, which JSON made a list."""
    return {**content, "interval": tuple(content["interval"])}


def _text(content: bytes) -> str:
    return b64encode(content).decode()
