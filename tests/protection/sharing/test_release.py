"""Whoever is shown a shared sum adds up the aggregators' shares, and finds every lie of the server in what it shows."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import MalformedMessage, ProtocolViolation, SessionAborted
from secagg.protection.messages import Attachment
from secagg.protection.proven_bits import NO_CENSUS
from secagg.protection.sharing import client
from secagg.protection.sharing import derivations as bind
from secagg.protection.sharing.context import SharedContext
from secagg.protection.sharing.derivations import Equivocated
from secagg.protection.sharing.messages import ReleasedShares, SumShare
from secagg.protection.sharing.release import check_lengths, open_release
from secagg.wire import decode, encode
from tests.protection.rehearsal import party
from tests.protection.sharing.rehearsal import Shared, identity, shared_context

MEMBERS, ABSENT, LIAR = (1, 2, 3), 4, 2


@dataclass(frozen=True)
class Released:
    """What a client checks: the clients that the outcome names, and the files."""

    session: Shared
    members: tuple[int, ...]
    parts: tuple[bytes, ...]

    @property
    def context(self) -> SharedContext:
        return self.session.context

    @property
    def listed(self) -> ReleasedShares:
        """The manifests and frames."""
        return decode(ReleasedShares, self.parts[-1])

    def listing(self, **changes: Any) -> "Released":
        """The same with other manifests or frames."""
        return replace(self, parts=(*self.parts[:-1], encode(replace(self.listed, **changes))))

    def announcing(self, number: int, receiver: int | None = None, **changes: Any) -> "Released":
        """The same with one aggregator's frame changed, or under the name of another sender."""
        frames = list(self.listed.shares)
        announced = replace(decode(SumShare, frames[number - 1][1:]), **changes)
        frames[number - 1] = bytes([receiver or self.context.index_of(number)]) + encode(announced)
        return self.listing(shares=tuple(frames))

    def with_share(self, number: int, share: bytes) -> "Released":
        """The same with other bytes as one aggregator's share."""
        parts = list(self.parts)
        parts[number - 1] = share
        return replace(self, parts=tuple(parts))

    def open(self) -> list[int]:
        """The sum as a client opens it."""
        check_lengths(self.context, self.members, tuple(map(Attachment.of, self.parts)))
        return open_release(self.context, {}, self.members, self.parts, signed).tolist()


def signed(frame: bytes, message: type) -> tuple[int, Any]:
    """A frame's sender and message; that frames are signed is tested with the sessions."""
    return frame[0], decode(message, frame[1:])


@cache
def session(m: int = 3, proves: bool = False, clients: tuple[int, ...] = MEMBERS) -> Shared:
    """Clients and m aggregators whose shares of the sum are open; one client stayed away."""
    made = Shared(shared_context(m, 4, dropouts=1, colluders=0, proves_bits=proves))
    if proves:
        made.vectors = {member: (vector & 1).astype(np.int64) for member, vector in made.vectors.items()}
    made.upload(*clients).play("commit set", "open").gather()
    return made


def frames_of(made: Shared) -> dict[int, bytes]:
    return {made.context.index_of(number): encode(said) for number, said in made.said.items()}


def released(m: int = 3, proves: bool = False) -> Released:
    """What the server shows."""
    made = session(m, proves)

    def read(index: int) -> bytes:
        return made.disk[made.context.number_of(index)]["sum"]

    frames = {index: bytes([index]) + frame for index, frame in frames_of(made).items()}
    return Released(made, MEMBERS, made.server.release(made.context, read, frames))


@pytest.mark.parametrize("proves", [False, True], ids=["sum", "census"])
@pytest.mark.parametrize("m", [2, 3, 16])
def test_released_shares_add_up_to_the_sum(m: int, proves: bool) -> None:
    """Every client opens the sum of the vectors of the clients that the outcome names."""
    shown = released(m, proves)
    assert shown.open() == shown.session.expected(MEMBERS)


def changed(share: bytes, place: int = 0) -> bytes:
    """A share with another bit."""
    return share[:place] + bytes([share[place] ^ 1]) + share[place + 1 :]


def agreeing(shown: Released, share: bytes) -> Released:
    """Another share, announced with its digest by a server that has the aggregator's frame."""
    return shown.with_share(LIAR, share).announcing(LIAR, digest=sha256(share).digest())


def other_session() -> Released:
    """The same clients and aggregators with other secrets: everything is signed, and of other uploads."""
    made = Shared(shared_context(3, 4, dropouts=1, colluders=0), seed=b"other")
    made.upload(*MEMBERS).play("commit set", "open").gather()
    frames = {index: bytes([index]) + frame for index, frame in frames_of(made).items()}

    def read(index: int) -> bytes:
        return made.disk[made.context.number_of(index)]["sum"]

    return Released(made, MEMBERS, made.server.release(made.context, read, frames))


def pledged_again(shown: Released) -> Released:
    """One aggregator has signed another commitment for the server."""
    context, share = shown.context, changed(shown.parts[LIAR - 1])
    frames = [decode(SumShare, frame[1:]) for frame in shown.listed.shares]
    own = frames[LIAR - 1]
    commitment = bind.sum_commitment(context, LIAR, own.agreed, own.nonce, sha256(share).digest())
    pledge = bind.sign_pledge(context, identity(LIAR), LIAR, bind.SUM, commitment)
    pledges = tuple(pledge if each.aggregator == LIAR else each for each in own.pledges)
    return agreeing(shown, share).announcing(LIAR, pledges=pledges)


SHARE = "releases a sum share that a2 did not sign"
LIES: dict[str, tuple[Callable[[Released], Released], str]] = {
    "another share": (lambda shown: shown.with_share(LIAR, changed(shown.parts[LIAR - 1])), SHARE),
    "shares exchanged": (
        lambda shown: replace(shown, parts=(shown.parts[0], shown.parts[2], shown.parts[1], shown.parts[3])),
        SHARE,
    ),
    "a frame in another's name": (lambda shown: shown.announcing(LIAR, receiver=1), SHARE),
    "another share with its digest": (
        lambda shown: agreeing(shown, changed(shown.parts[LIAR - 1])),
        "reveals another sum share than the one that it committed to",
    ),
    "another nonce": (
        lambda shown: shown.announcing(LIAR, nonce=bytes(32)),
        "reveals another sum share than the one that it committed to",
    ),
    "another set": (
        lambda shown: shown.announcing(LIAR, agreed=bytes(32)),
        "sums another set than the one that was agreed on",
    ),
    "another aggregator's number": (
        lambda shown: shown.announcing(LIAR, aggregator=3),
        "shows a sum share that is not its own",
    ),
    "a pledge less": (
        lambda shown: shown.announcing(LIAR, pledges=shown.session.said[LIAR].pledges[:2]),
        "does not show one 'sum' pledge of a1, a2, a3",
    ),
    "frames of two aggregators": (
        lambda shown: shown.listing(shares=shown.listed.shares[:2]),
        "does not release one sum share of every aggregator",
    ),
    "a frame more": (
        lambda shown: shown.listing(shares=(*shown.listed.shares, shown.listed.shares[0])),
        "does not release one sum share of every aggregator",
    ),
    "a client less": (
        lambda shown: replace(shown, members=(1, 2)),
        "releases the uploads of other clients than the outcome names",
    ),
    "a client that stayed away": (
        lambda shown: replace(shown, members=(1, 2, 3, 4)),
        "releases the uploads of other clients than the outcome names",
    ),
    "a manifest less, and the client": (
        lambda shown: replace(shown.listing(manifests=shown.listed.manifests[:2]), members=(1, 2)),
        "sums another set than the one that was agreed on",
    ),
    "a manifest not signed": (
        lambda shown: shown.listing(
            manifests=(replace(shown.listed.manifests[0], signature=bytes(64)), *shown.listed.manifests[1:])
        ),
        "releases an upload that client 1 did not sign",
    ),
    "other uploads": (
        lambda shown: shown.listing(manifests=other_session().listed.manifests),
        "sums another set than the one that was agreed on",
    ),
    "all of other uploads but the shares": (
        lambda shown: replace(shown, parts=(*shown.parts[:-1], other_session().parts[-1])),
        "releases a sum share that a1 did not sign",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_in_released_shares_blame_the_server(name: str) -> None:
    """Whatever the server changes in shares, frames, set or clients is refused in its name."""
    lie, problem = LIES[name]
    with pytest.raises(ProtocolViolation, match=problem) as caught:
        lie(released()).open()
    assert caught.value.culprit == SERVER_INDEX


def test_aggregator_that_commits_twice_is_convicted() -> None:
    """An aggregator that signs a second commitment, for a server that shows a false share, is named with both."""
    with pytest.raises(Equivocated) as caught:
        pledged_again(released()).open()
    assert caught.value.culprit == session().context.index_of(LIAR)
    assert caught.value.evidence.one.content != caught.value.evidence.other.content


@pytest.mark.parametrize("proves", [False, True], ids=["sum", "census"])
@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("change", [lambda part: part[:-1], lambda part: part + b"\0"], ids=["shorter", "longer"])
def test_files_of_other_lengths_are_refused(proves: bool, place: int, change: Callable[[bytes], bytes]) -> None:
    """A share of another length is refused before it is fetched; of the last file any other byte is."""
    shown = released(proves=proves)
    parts = list(shown.parts)
    parts[place] = change(parts[place])
    with pytest.raises((ProtocolViolation, MalformedMessage)) as caught:
        replace(shown, parts=tuple(parts)).open()
    if place < 3:
        assert "another length than the plan's" in str(caught.value)


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_other_numbers_of_files_are_refused(count: int) -> None:
    """There is one share of every aggregator, and one list."""
    shown = released()
    with pytest.raises(ProtocolViolation, match="another length than the plan's"):
        check_lengths(shown.context, MEMBERS, tuple(map(Attachment.of, (shown.parts * 2)[:count])))


def test_list_of_any_length_is_not_fetched() -> None:
    """A list longer than its clients and aggregators can make it is refused before it is fetched."""
    shown = released()
    named = [*map(Attachment.of, shown.parts[:-1]), Attachment(1 << 20, bytes(32))]
    with pytest.raises(ProtocolViolation, match="another length than the plan's"):
        check_lengths(shown.context, MEMBERS, named)


@pytest.mark.parametrize("m", [2, 16])
def test_longest_list_may_be_fetched(m: int) -> None:
    """The list of a session as its messages make it has a length that is accepted."""
    shown = released(m)
    check_lengths(shown.context, MEMBERS, tuple(map(Attachment.of, shown.parts)))


def test_census_that_is_not_proven_is_not_released() -> None:
    """A server whose aggregators' shares do not add up to the proven entries releases nothing, and names nobody."""
    made = session(proves=True)

    def read(index: int) -> bytes:
        share = made.disk[made.context.number_of(index)]["sum"]
        return changed(share) if made.context.number_of(index) == LIAR else share

    frames = {index: bytes([index]) + frame for index, frame in frames_of(made).items()}
    with pytest.raises(SessionAborted, match=NO_CENSUS):
        made.server.release(made.context, read, frames)


def test_proofs_of_another_client_are_refused_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first aggregator takes no upload with another client's proofs, and names the one that sent it."""
    made = Shared(shared_context(2, 4, dropouts=1, colluders=0, proves_bits=True))
    made.vectors = {member: (vector & 1).astype(np.int64) for member, vector in made.vectors.items()}
    prove = client.prove_entries
    monkeypatch.setattr(client, "prove_entries", lambda context, me, *of: prove(context, party(2), *of))
    made.prepare(1)
    with pytest.raises(ProtocolViolation, match="did not sign") as caught:
        made.submit(1, 1)
    assert caught.value.culprit == 1


def test_first_aggregator_that_passes_false_proofs_is_named() -> None:
    """The server checks the proofs in the first aggregator's sum share itself, and names it for one that is false."""
    made = Shared(shared_context(2, 4, dropouts=1, colluders=0, proves_bits=True))
    made.vectors = {member: (vector & 1).astype(np.int64) for member, vector in made.vectors.items()}
    made.upload(*MEMBERS).play("commit set", "open")
    share, first = made.disk[1]["sum"], made.context.index_of(1)
    made.server.inspect(first, share)
    made.server.inspect(made.context.index_of(2), made.disk[2]["sum"])
    with pytest.raises(ProtocolViolation, match="proofs that member 3 did not sign") as caught:
        made.server.inspect(first, changed(share, len(share) - 1))
    assert caught.value.culprit == first
