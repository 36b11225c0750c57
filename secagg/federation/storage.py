"""Where a party keeps its sessions."""

from __future__ import annotations

from pathlib import Path

from secagg.errors import BadInput
from secagg.plan_facts import SessionSetup
from secagg.session.attachments import folder_name
from secagg.system.files import private_folder


def session_folder(state: Path, setup: SessionSetup) -> Path:
    """Return the session's folder inside a party's state folder. Raises BadInput when it cannot be made."""
    folder = state / folder_name(setup.context.round_digest)
    try:
        private_folder(folder)
    except OSError as error:
        problem = f"cannot make the folder {folder} ({error.strerror})"
        raise BadInput(problem, remedy="give another --state folder, or free the disk") from None
    return folder
