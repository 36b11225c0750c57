"""The files in which an opened sum is released, and the sum that every party opens from them itself.

A release of one file is the sum in ring width, on the server's word. Under a protection with a `SumRelease` there are
others, from which each party opens the sum; it keeps the sum beside them, where all that reads sums looks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from secagg.agreement.roster import SERVER_INDEX
from secagg.encoding import Integers, sum_digest
from secagg.errors import MalformedMessage, ProtocolViolation
from secagg.protection.messages import Attachment, Outcome
from secagg.session.attachments import SUM_FILE, read_kept
from secagg.session.round_setup import RoundSetup
from secagg.system.files import write_synced
from secagg.transcript import FrameBody, open_frame, payload_of, peek
from secagg.wire import tag_of

RELEASE_FILE = "release-{}.bin"


def release_files(folder: Path, release: Sequence[Any]) -> tuple[Path, ...]:
    """Return where the files of a release lie in a session's folder; one alone is the sum itself."""
    names = [SUM_FILE] if len(release) == 1 else [RELEASE_FILE.format(place) for place in range(len(release))]
    return tuple(folder / name for name in names)


def write_release(folder: Path, files: tuple[bytes, ...]) -> tuple[Attachment, ...]:
    """Write the files of a release; return the attachments that name them."""
    for path, content in zip(release_files(folder, files), files, strict=True):
        write_synced(path, content)
    return tuple(map(Attachment.of, files))


def require_lengths_of_release(setup: RoundSetup, outcome: Outcome) -> None:
    """Raise ProtocolViolation unless the files of a release have lengths that the plan's sum can have."""
    rules, lengths = setup.protocol.release, [each.length for each in outcome.release]
    if rules is not None:
        rules.check_lengths(setup.context, outcome.members, outcome.release)
    elif lengths != [setup.context.packed_bytes]:
        raise ProtocolViolation(SERVER_INDEX, "the released sum has another length than the plan's")


def open_release(setup: RoundSetup, outcome: Outcome, folder: Path, bodies: Iterable[FrameBody]) -> Integers | None:
    """Open the sum from the files of a release, checked as the protection says; None if a file is missing.

    `bodies` are those of the server's frames before. Raises ProtocolViolation or MalformedMessage.
    """
    parts = []
    for path, attachment in zip(release_files(folder, outcome.release), outcome.release, strict=True):
        content = read_kept(path, attachment)
        if content is None:
            return None
        parts.append(content)

    def signed(frame: bytes, message: type) -> tuple[int, Any]:
        sender = peek(frame).sender
        try:
            body = open_frame(frame, setup.roster, setup.context.round_digest, sender, SERVER_INDEX)
        except ProtocolViolation as error:
            problem = f"releases what is not signed: {setup.roster.name_culprit(error)}"
            raise ProtocolViolation(SERVER_INDEX, problem) from None
        return sender, payload_of(body, message)

    rules, context = setup.protocol.release, setup.context
    if rules is None:
        vector = context.ring.decode(context.ring.unpack(parts[0], context.length))
    else:
        try:
            vector = rules.open(context, _evidence(rules.evidence, bodies), outcome.members, parts, signed)
        except MalformedMessage as error:
            raise ProtocolViolation(SERVER_INDEX, f"releases what cannot be read: {error}") from None
    if sum_digest(vector) != outcome.aggregate_sha256:
        raise ProtocolViolation(SERVER_INDEX, "the released sum is not the one that the outcome names")
    return vector


def _evidence(classes: tuple[type, ...], bodies: Iterable[FrameBody]) -> Mapping[type, Any]:
    """Return the server's first message of each class. Raises ProtocolViolation for one that it has not sent."""
    found: dict[type, Any] = {}
    steps = {tag_of(each): each for each in classes}
    for body in bodies:
        message = steps.get(body.step)
        if message is not None and message not in found:
            found[message] = payload_of(body, message)
    if missing := [step for step, message in steps.items() if message not in found]:
        raise ProtocolViolation(SERVER_INDEX, f"releases a sum without the {missing[0]} that it is checked by")
    return found
