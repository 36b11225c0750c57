"""A member whose machine cannot do its part is told so before anything of it leaves."""

import sys
from pathlib import Path

import pytest

from secagg.errors import BadInput
from tests.worlds.federation import FederationRun, SimulatedFederation


def begun(folder: Path) -> list[Path]:
    """The transcripts of sessions in which somebody takes part."""
    return list(folder.rglob("transcript.log"))


async def test_member_without_the_library_is_refused_before_joining(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TenSEAL client and key holder of an encrypted plan learn what to install, and begin no session."""
    world = SimulatedFederation.of(tmp_path, refine=0, protection="encrypted")
    (holder,) = world.setup.context.helpers
    for name in ["tenseal", *(each for each in sys.modules if each.startswith("tenseal."))]:
        monkeypatch.setitem(sys.modules, name, None)
    run = FederationRun(world)  # there is no server: whoever asked it anything would fail otherwise
    for attempt in (lambda: run._client(1), lambda: run._begin_helper(holder).work):
        with pytest.raises(BadInput, match="needs the library tenseal") as caught:
            await attempt()
        assert caught.value.remedy == "pip install 'secagg[encrypted]'"
    assert not begun(tmp_path)
