"""`secagg confirm`: a client completes its outcome from other parties' files, if they confirm it."""

import asyncio
from pathlib import Path

import pytest

from secagg.errors import Unconfirmed
from secagg.protection.messages import Confirmation
from secagg.transcript import FILE_NAME
from tests.cli.command import Command
from tests.cli.test_verify_command import keys_in
from tests.worlds.federation import SimulatedFederation, run_federation

ME, OTHER = 2, 3


@pytest.fixture
def unconfirmed(tmp_path: Path) -> SimulatedFederation:
    """A session in which one member never gets the confirmation."""
    world = SimulatedFederation.of(tmp_path, refine=0)

    def keep_back(member: int, step: str, frame: bytes) -> bytes:
        return b"" if (member, step) == (ME, Confirmation.__name__) else frame

    ended = asyncio.run(run_federation(world, tamper=keep_back))
    assert isinstance(ended.clients[ME], Unconfirmed)
    return world


def transcript(world: SimulatedFederation, member: int) -> Path:
    """A member's transcript."""
    (path,) = world.state(member).glob(f"*/{FILE_NAME}")
    return path


def test_another_partys_file_confirms(unconfirmed: SimulatedFederation, secagg: Command) -> None:
    """Before, `verify` says that others may have been given something else; afterwards it does not."""
    own, state = transcript(unconfirmed, ME), unconfirmed.state(ME)
    before = secagg("verify", own, "--quiet")
    assert (before.code, "too few have acknowledged its outcome" in before.out) == (4, True)
    said = secagg("confirm", transcript(unconfirmed, OTHER), "--state", state, "--json", "-")
    assert (said.code, said.json) == (0, {"confirmed": str(own), "was_confirmed": False})
    after = secagg("verify", own, "--tls", keys_in(state / "tls", unconfirmed.keys[ME]), "--quiet")
    assert (after.code, "too few" in after.out) == (0, False)
    again = secagg("confirm", transcript(unconfirmed, 0), "--state", state)
    assert again.code == 0
    assert "was confirmed before" in again.out


def test_several_files_confirm_together(tmp_path: Path, secagg: Command) -> None:
    """Where nobody was shown a confirmation, members' own acknowledgements make one up, from enough files."""
    world = SimulatedFederation.of(tmp_path, refine=0)

    def keep_back(member: int, step: str, frame: bytes) -> bytes:
        return b"" if step == Confirmation.__name__ else frame

    ended = asyncio.run(run_federation(world, tamper=keep_back))
    assert {type(end) for end in ended.clients.values()} == {Unconfirmed}
    own, state = transcript(world, ME), world.state(ME)
    said = secagg("confirm", transcript(world, OTHER), transcript(world, OTHER), "--state", state)
    assert (said.code, "hold 2 of the 3 acknowledgements" in said.complaint) == (2, True)
    said = secagg("confirm", transcript(world, OTHER), transcript(world, 1), "--state", state, "--json", "-")
    assert (said.code, said.json) == (0, {"confirmed": str(own), "was_confirmed": False})
    after = secagg("verify", own, "--tls", keys_in(state / "tls", world.keys[ME]), "--quiet")
    assert (after.code, "too few" in after.out) == (0, False)


def test_other_files_confirm_nothing(unconfirmed: SimulatedFederation, secagg: Command, tmp_path: Path) -> None:
    """The own file, one that is no transcript, and one of a session that this party has not: one line, exit 2 or 3."""
    own, state = transcript(unconfirmed, ME), unconfirmed.state(ME)
    before = own.read_bytes()
    said = secagg("confirm", own, "--state", state)
    assert (said.code, "hold 1 of the 3 acknowledgements" in said.complaint) == (2, True)
    (tmp_path / "other.log").write_bytes(b"what is this")
    assert secagg("confirm", tmp_path / "other.log", "--state", state).code == 3
    assert secagg("confirm", tmp_path / "none.log", "--state", state).code == 2
    said = secagg("confirm", transcript(unconfirmed, OTHER), "--state", tmp_path / "nowhere")
    assert (said.code, "has no session of that round" in said.complaint) == (2, True)
    assert own.read_bytes() == before
