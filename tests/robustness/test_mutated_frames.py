"""Frames of every step and protection, changed at random: they are refused, and nothing else comes of them.

`pytest --hypothesis-profile=wide` tries a thousand changes for each kind instead of 25.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg.errors import SecaggError
from secagg.protection.interface import CollectingStep
from secagg.transcript import frames, peek
from secagg.wire import encode
from tests.robustness.frames import LAYERS, Place, changes, in_layer, picture, play
from tests.worlds.session import SimulatedSession

PROTECTIONS = ("masked", "shared", "encrypted")
Played = tuple[SimulatedSession, list[Place]]


@pytest.fixture(scope="module", params=PROTECTIONS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A session of three clients that went well, with every place where a frame was taken."""
    return play(tmp_path_factory.mktemp("frames"), request.param)


def is_taken(place: Place, frame: bytes) -> bool:
    """Whether the receiver takes a frame; if it does not, it must be as it was."""
    receiver = place.begin()
    before = picture(receiver)
    try:
        place.take(receiver, frame)
    except SecaggError:
        assert picture(receiver) == before, f"{place.name}: refused, and changed all the same"
        return False
    return True


def test_unchanged_frames_are_taken(played: Played) -> None:
    """Every place takes its own frame; the server's, the clients' and the helpers' steps are all among them."""
    _, places = played
    assert [place.name for place in places if not is_taken(place, place.frame)] == []
    assert {peek(place.frame).step for place in places} >= {"Outcome", "Acknowledgement"}
    assert len({place.name for place in places}) > 9


@pytest.mark.parametrize("layer", LAYERS)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_changed_frames_are_refused(played: Played, layer: str, data: st.DataObject) -> None:
    """Bytes changed on the way are refused; what a sender signs itself is refused, or a message in its one encoding."""
    world, places = played
    place = data.draw(st.sampled_from(places), label="place")
    others = [each.frame if layer == "frame" else peek(each.frame).payload for each in places]
    frame = in_layer(world, place, layer, data.draw(changes(others), label="changes"))
    if frame in (each.frame for each in places):
        return
    if is_taken(place, frame):
        assert layer != "frame", f"{place.name} takes a frame that nobody signed"
        assert encode(peek(frame)) in frame


def refused_flips(places: list[Place], world: SimulatedSession) -> Iterator[bool]:
    """Whether frames are taken one byte of whose payload is another, with every message of the server's steps."""
    for place in places:
        if place.name.endswith("server"):
            size = len(peek(place.frame).payload)
            for at in range(0, size, max(1, size // 20)):
                yield is_taken(place, in_layer(world, place, "payload", partial(overwritten, at=at)))


def overwritten(data: bytes, at: int) -> bytes:
    """The bytes with another one at this place."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_message_noted_before_it_is_checked_is_found(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's step that notes a message and then refuses it has changed, which no test here would pass."""
    world, places = played
    assert not all(refused_flips(places, world))
    accept: Callable[..., None] = CollectingStep.accept

    def noting(step: CollectingStep[Any], member: int, incoming: Any) -> None:
        step.messages.setdefault(-1 - member, incoming)
        accept(step, member, incoming)

    monkeypatch.setattr(CollectingStep, "accept", noting)
    with pytest.raises(AssertionError, match="changed all the same"):
        list(refused_flips(places, world))


def test_signature_that_nobody_looks_at_is_found(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were signatures not checked, a frame with another one would be taken; as it is, it is not."""
    _, places = played
    changed = {place: overwritten(place.frame, len(place.frame) - 1) for place in places}
    assert not any(is_taken(place, frame) for place, frame in changed.items())
    monkeypatch.setattr(frames, "is_signed", lambda *_: True)
    assert [place.name for place, frame in changed.items() if not is_taken(place, frame)] == []
