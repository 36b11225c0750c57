"""What a round leaves to its own member: sealed in the round's folder before the upload leaves, read by the next.

A round gets what the round just before it left, and only if the member's vector was in that sum. Otherwise (it was
away, its vector came too late, the file is lost) it begins anew, as in the first round, with nothing: what assumes a
vector that no sum has, or is older than the public state that the round begins at, counts for nothing.

The newest alone is kept: once the round after has its outcome, the one before is erased. A method whose rounds keep
nothing leaves no file. The key lies beside the state: who reads the folder reads both; the
seal binds the state to its round and shows damage.
"""

from __future__ import annotations

from pathlib import Path

from secagg.crypto.sealing import seal, unseal
from secagg.errors import BadInput
from secagg.randomness import RandomSource
from secagg.session.sealed_state import overwrite
from secagg.system.files import sync_folder, write_synced

STATE_FILE, KEY_FILE = "private.state", "private.key"
KEY_BYTES = 32


def keep_state(folder: Path, state: bytes, round_digest: bytes, randomness: RandomSource) -> None:
    """Write the state that the round of this digest leaves in place of an earlier try's; no file for an empty one."""
    if state:
        key = randomness.bytes(KEY_BYTES)
        write_synced(folder / KEY_FILE, key)
        write_synced(folder / STATE_FILE, seal(key, state, round_digest))
    elif (folder / KEY_FILE).exists():  # which is written first
        (folder / STATE_FILE).unlink(missing_ok=True)
        (folder / KEY_FILE).unlink()
        sync_folder(folder)


def erase_state(folder: Path) -> None:
    """Forget what a round has left, the key first: what it left to the round after is all that counts from then on."""
    for path in (folder / KEY_FILE, folder / STATE_FILE):
        overwrite(path)


def recall_state(folder: Path, round_digest: bytes) -> bytes:
    """Return what the round of this digest left in its folder; empty where nothing, or what a crash left of erasing it.

    Raises BadInput for damage.
    """
    if not ((folder / STATE_FILE).exists() and _key(folder)):
        return b""
    try:
        return unseal(_key(folder), (folder / STATE_FILE).read_bytes(), round_digest)
    except (OSError, ValueError):
        raise BadInput(
            f"the private state in {folder} is damaged, or of another round",
            remedy="bring the folder back; without it this member cannot go on",
        ) from None


def _key(folder: Path) -> bytes:
    """The key; empty where there is none or it was being erased, so that what is left of the state says nothing."""
    key = (folder / KEY_FILE).read_bytes() if (folder / KEY_FILE).exists() else b""
    return key if any(key) else b""
