"""Whoever is shown a masked sum opens it from what the server releases, and finds every lie in that."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from secagg.agreement.roster import SERVER_INDEX
from secagg.errors import LeftBehind, MalformedMessage, ProtocolViolation
from secagg.protection.masking import derivations as bind
from secagg.protection.masking import server as server_module
from secagg.protection.masking import unmasking
from secagg.protection.masking.messages import (
    Directory,
    Inbox,
    OpenedSecret,
    Survivors,
    Unmasking,
    UploadTags,
)
from secagg.protection.masking.tags import no_words, pack_total, tags_of, unpack_total, words_of
from secagg.protection.messages import Attachment, UploadHeader
from secagg.wire import decode, encode
from tests.protection.masking.tampering import refused_as
from tests.protection.rehearsal import Rehearsal, context_for
from tests.worlds.rosters import identity

DROPPED, VANISHED, LIAR, WITNESS = 5, 6, 3, 1
MEMBERS = (1, 2, 3, 4, 6)


class Session(Rehearsal):
    """A session of six: one client never uploads, one vanishes after it has endorsed; all that the first one hears."""

    def __init__(self, plan: bytes = b"plan", bits: int = 32) -> None:
        self.heard: dict[type, Any] = {}
        self.headers: dict[int, bytes] = {}
        super().__init__(context_for(6, colluders=1, dropouts=2, plan=plan, bits=bits))

    def show(self, index: int, message: Any) -> None:
        if index == WITNESS:
            self.heard[type(message)] = message
        super().show(index, message)

    def deliver(self, index: int, message: Any) -> None:
        if isinstance(message, UploadHeader):
            self.headers[index] = bytes([index]) + encode(message)
        super().deliver(index, message)

    def released(self) -> "Shown":
        """Play to the end; return what the server then shows to the clients that are in the sum."""
        members, total = self.finish({DROPPED: "UploadHeader", VANISHED: "Opening"})
        parts = self.server.release(self.context, self.uploads.__getitem__, self.headers)
        return Shown(self, members, parts, dict(self.heard), total)


@dataclass(frozen=True)
class Shown:
    """What a client checks."""

    session: Session
    members: tuple[int, ...]
    parts: tuple[bytes, ...]
    heard: dict[type, Any] = field(repr=False)
    total: list[int] = field(repr=False)

    @property
    def listed(self) -> Unmasking:
        """The secrets and tags."""
        return decode(Unmasking, self.parts[1])

    def listing(self, **changes: Any) -> "Shown":
        """The same with other secrets, tags or frames."""
        return replace(self, parts=(self.parts[0], encode(replace(self.listed, **changes)), *self.parts[2:]))

    def tagged(self, member: int, **changes: Any) -> "Shown":
        """The same with one client's tags changed."""
        return self.listing(tags=tuple(replace(t, **changes) if t.member == member else t for t in self.listed.tags))

    def endorsing(self, packed: bytes) -> "Shown":
        """The same as if another sum had been endorsed."""
        survivors = replace(self.heard[Survivors], total=hashlib.sha256(packed).digest())
        return replace(self, parts=(packed, *self.parts[1:]), heard=self.heard | {Survivors: survivors})

    def open(self) -> list[int]:
        """What the client makes of it."""
        opened = unmasking.open_release(
            self.session.context,
            self.heard,
            self.members,
            self.parts,
            lambda frame, message: (frame[0], decode(message, frame[1:])),
        )
        return opened.tolist()


@pytest.fixture(scope="module")
def shown() -> Shown:
    """What an honest server shows."""
    return Session().released()


@pytest.mark.parametrize("bits", [8, 32, 40, 48, 64])
def test_clients_open_the_same_sum(bits: int) -> None:
    """The sum that a client opens from the release is the server's, bit for bit, in narrow rings and wide ones."""
    shown = Session(bits=bits).released()
    assert shown.members == MEMBERS
    assert shown.open() == shown.total == shown.session.expected(MEMBERS)
    assert [tags.member for tags in shown.listed.tags] == [1, 2, 3, 4]
    assert len(shown.parts) == 3
    unmasking.check_lengths(shown.session.context, shown.members, [Attachment.of(part) for part in shown.parts])


def parts_of(session: Session, **changes: Any) -> tuple[bytes, ...]:
    """What the clients' tags are signed with, but for what is changed."""
    survivors = session.heard[Survivors]
    facts = {"directory": session.heard[Directory].digest, "dealers": session.heard[Inbox].dealers}
    facts |= {"survivors": survivors.members, "total": survivors.total}
    return bind.endorsement_parts(session.context, *(facts | changes).values())


def another_total(shown: Shown) -> bytes:
    """The sum with one more in one entry."""
    total = unpack_total(shown.session.context, shown.parts[0])
    total[2] += np.uint64(1)
    return pack_total(shown.session.context, total)


def own_tags(shown: Shown, add: int = 0, **changes: Any) -> UploadTags:
    """The liar's tags as it would sign them of these facts, of its upload with so much added to an entry."""
    parts, words = parts_of(shown.session, **changes), words_of(shown.session.context, shown.session.uploads[LIAR])
    words[2] += np.uint64(add)
    return bind.sign_tags(identity(LIAR), LIAR, tags_of(parts, [words])[0].tobytes(), parts)


def with_tags(shown: Shown, tags: UploadTags) -> Shown:
    """The liar's tags in place of its own."""
    return shown.tagged(LIAR, tags=tags.tags, signature=tags.signature)


def upload_shown(shown: Shown) -> Shown:
    """The liar's upload shown too, beside its tags."""
    session, (frame,) = shown.session, shown.listed.uploads
    listed = shown.listing(uploads=(session.headers[LIAR], frame))
    return replace(listed, parts=(*listed.parts[:2], session.uploads[LIAR], *listed.parts[2:]))


def secret_of(shown: Shown, member: int, secret: bytes) -> Shown:
    """Another secret of one client."""
    secrets = (OpenedSecret(m.member, secret) if m.member == member else m for m in shown.listed.secrets)
    return shown.listing(secrets=tuple(secrets))


LIES: dict[str, tuple[int, str, Callable[[Shown], Shown]]] = {
    "another sum": (
        SERVER_INDEX,
        "another sum of the uploads than the one that was endorsed",
        lambda shown: replace(shown, parts=(another_total(shown), *shown.parts[1:])),
    ),
    "another sum and its digest": (
        SERVER_INDEX,
        "tags that member 1 did not sign for this sum",
        lambda shown: shown.endorsing(another_total(shown)),
    ),
    "a survivor's seed": (
        SERVER_INDEX,
        "secret of member 4 that is not the one in the directory",
        lambda shown: secret_of(shown, 4, b"s" * 32),
    ),
    "a dropped client's mask key": (
        SERVER_INDEX,
        f"secret of member {DROPPED} that is not the one in the directory",
        lambda shown: secret_of(shown, DROPPED, b"k" * 32),
    ),
    "a secret left out": (
        SERVER_INDEX,
        "the one secret of every client",
        lambda shown: shown.listing(secrets=shown.listed.secrets[1:]),
    ),
    "a secret too many": (
        SERVER_INDEX,
        "the one secret of every client",
        lambda shown: shown.listing(secrets=(*shown.listed.secrets, OpenedSecret(7, b"s" * 32))),
    ),
    "a noise seed in a plan without noise levels": (
        SERVER_INDEX,
        "noise seeds of all clients in the sum, or of none",
        lambda shown: shown.listing(noise_seeds=(OpenedSecret(1, b"s" * 32),)),
    ),
    "tags left out": (
        SERVER_INDEX,
        "tags or upload of every client in the sum",
        lambda shown: shown.listing(tags=shown.listed.tags[1:]),
    ),
    "tags of a client outside": (
        SERVER_INDEX,
        "tags or upload of every client in the sum",
        lambda shown: shown.listing(tags=(*shown.listed.tags[:3], replace(shown.listed.tags[3], member=DROPPED))),
    ),
    "tags changed": (
        SERVER_INDEX,
        "did not sign for this sum",
        lambda shown: shown.tagged(4, tags=bytes(80)),
    ),
    "tags of another": (
        SERVER_INDEX,
        "did not sign for this sum",
        lambda shown: with_tags(shown, shown.listed.tags[0]),
    ),
    "tags of another quorum": (
        SERVER_INDEX,
        f"member {LIAR} did not sign for this sum",
        lambda shown: with_tags(shown, own_tags(shown, survivors=(1, 2, 3, 4))),
    ),
    "tags of other dealers": (
        SERVER_INDEX,
        f"member {LIAR} did not sign for this sum",
        lambda shown: with_tags(shown, own_tags(shown, dealers=(1, 2, 3, 4, 6))),
    ),
    "tags of another directory": (
        SERVER_INDEX,
        f"member {LIAR} did not sign for this sum",
        lambda shown: with_tags(shown, own_tags(shown, directory=bytes(32))),
    ),
    "false tags": (
        SERVER_INDEX,
        "their tags do not add up",
        lambda shown: with_tags(shown, own_tags(shown, add=1)),
    ),
    "false tags beside the upload": (
        LIAR,
        "signed tags that are not those of the masked vector that it signed",
        lambda shown: upload_shown(with_tags(shown, own_tags(shown, add=1))),
    ),
    "an upload that was not signed": (
        SERVER_INDEX,
        f"upload of member {VANISHED} that it did not sign",
        lambda shown: replace(shown, parts=(*shown.parts[:2], bytes(len(shown.parts[2])))),
    ),
    "an upload of another directory": (
        SERVER_INDEX,
        f"upload of member {VANISHED} that it did not sign",
        lambda shown: shown.listing(uploads=(resigned(shown, directory=bytes(32)),)),
    ),
    "an upload for other dealers": (
        SERVER_INDEX,
        f"upload of member {VANISHED} that it did not sign",
        lambda shown: shown.listing(uploads=(resigned(shown, dealers=bytes(32)),)),
    ),
    "an upload twice": (
        SERVER_INDEX,
        f"upload of member {VANISHED} that it did not sign",
        lambda shown: replace(shown.listing(uploads=shown.listed.uploads * 2), parts=(*doubled(shown), shown.parts[2])),
    ),
    "an upload without its frame": (
        SERVER_INDEX,
        "other uploads than it announces",
        lambda shown: replace(shown, parts=(*shown.parts, shown.parts[2])),
    ),
    "a frame without its upload": (
        SERVER_INDEX,
        "other uploads than it announces",
        lambda shown: shown.listing(uploads=shown.listed.uploads * 2),
    ),
    "a survivor without a key": (
        SERVER_INDEX,
        "not in its directory, or dealt no shares",
        lambda shown: replace(shown, heard=shown.heard | {Directory: Directory(shown.heard[Directory].entries[1:])}),
    ),
    "a survivor that dealt no shares": (
        SERVER_INDEX,
        "not in its directory, or dealt no shares",
        lambda shown: replace(shown, heard=shown.heard | {Inbox: Inbox((2, 3, 4, 5, 6), shown.heard[Inbox].shares)}),
    ),
    "other clients": (
        SERVER_INDEX,
        "names other clients than those that were opened",
        lambda shown: replace(shown, members=(1, 2, 3, 4)),
    ),
}


def resigned(shown: Shown, **changes: Any) -> bytes:
    """The frame that announced the vanished client's upload, with another header."""
    (frame,) = shown.listed.uploads
    return frame[:1] + encode(replace(decode(UploadHeader, frame[1:]), **changes))


def doubled(shown: Shown) -> tuple[bytes, ...]:
    """The first three parts, in which the one upload is announced twice."""
    return shown.listing(uploads=shown.listed.uploads * 2).parts


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused_by_name(shown: Shown, lie: str) -> None:
    """Whatever the server shows beside the truth is refused with its name, a false tag with that of its client."""
    culprit, problem, change = LIES[lie]
    refused_as(culprit, problem, change(shown).open)


@pytest.mark.parametrize("cut", [0, 1], ids=["sum", "tags"])
def test_truncated_releases_are_malformed(shown: Shown, cut: int) -> None:
    """A release that ends too early is refused, even if its digest was endorsed."""
    parts = list(shown.parts)
    parts[cut] = parts[cut][:-1]
    changed = replace(shown.endorsing(parts[0]), parts=tuple(parts))
    with pytest.raises(MalformedMessage):
        changed.open()


def test_release_of_an_earlier_round_is_refused(shown: Shown) -> None:
    """All that another round of the same clients released and told does not open this one's sum."""
    earlier = Session(plan=b"earlier").released()
    assert earlier.open() == earlier.total
    refused_as(SERVER_INDEX, "endorsed", replace(shown, parts=earlier.parts).open)
    replayed = replace(earlier, session=shown.session)
    refused_as(SERVER_INDEX, "member 6 that it did not sign|did not sign for this sum", replayed.open)


def test_sum_that_is_false_from_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has a false sum endorsed gets true tags for it, which do not add up to the sum's."""

    def with_two_more(context: Any) -> np.ndarray:
        words = no_words(context)
        words[2] += np.uint64(2)
        return words

    monkeypatch.setattr(server_module, "no_words", with_two_more)
    monkeypatch.setattr(unmasking, "no_words", with_two_more)
    refused_as(SERVER_INDEX, "the released sum is not that of the uploads", Session().released().open)


@pytest.mark.parametrize("bits", [32, 48, 64])
@pytest.mark.parametrize("power", [0, 31, 32, 47, 63])
def test_errors_of_every_size_change_the_tags(bits: int, power: int) -> None:
    """Two uploads that differ in one bit have different tags, in the highest bit of a wide ring too, nearly always."""
    context = context_for(6, bits=bits)
    one = np.zeros(context.length, dtype=np.uint64)
    one[1] = np.uint64(1 << (power % bits))
    words = [words_of(context, context.ring.pack(entries.astype(context.ring.word))) for entries in (one, 0 * one)]
    difference = tags_of((b"parts",), words)
    assert np.count_nonzero(difference[0] - difference[1]) >= 9


def test_client_without_its_upload_signs_no_tags() -> None:
    """A client whose protected bytes are lost or damaged drops out: it opens nothing, and signs nothing false."""
    for damaged in (b"", b"damaged"):
        session = Session().until_shown("Quorum")
        session.parties[LIAR] = replace(session.parties[LIAR], upload=lambda damaged=damaged: damaged)
        with pytest.raises(LeftBehind, match="lost or damaged"):
            session.show(LIAR, session.inbox[LIAR])
        assert LIAR not in session.outbox


def test_one_client_with_another_digest_stops(shown: Shown) -> None:
    """A client that alone is told another digest signs nothing that others take, and opens nothing."""
    session = Session().until_shown("Survivors")
    session.show(LIAR, replace(session.inbox.pop(LIAR), total=bytes(32)))
    refused_as(LIAR, "did not sign the survivor set", session.server.accept, LIAR, session.outbox.pop(LIAR))
    session.answer()
    session.hear()
    session.close()
    refused_as(SERVER_INDEX, "on another set", session.show, LIAR, session.inbox[LIAR])


def test_upload_is_released_in_place_of_false_tags(caplog: pytest.LogCaptureFixture) -> None:
    """A server finds false tags when it opens the sum, names the client, and shows its upload: the others go on."""
    session = Session().until_said("Opening")
    false = bind.sign_tags(identity(LIAR), LIAR, bytes(80), parts_of(session))
    session.outbox[LIAR] = replace(session.outbox[LIAR], tags=false)
    shown = session.released()
    assert len(shown.parts) == 4
    assert LIAR not in [each.member for each in shown.listed.tags]
    assert session.context.names[LIAR] in caplog.text
    assert shown.open() == shown.total == shown.session.expected(shown.members)


@pytest.mark.parametrize(
    "change",
    [
        lambda named: [],
        lambda named: named[:1],
        lambda named: [replace(named[0], length=named[0].length + 1), *named[1:]],
        lambda named: [named[0], replace(named[1], length=1 << 20), *named[2:]],
        lambda named: [*named[:2], replace(named[2], length=named[2].length - 1)],
        lambda named: [*named, *[named[2]] * 5],
    ],
    ids=["nothing", "no list", "longer sum", "long list", "shorter upload", "more uploads than clients"],
)
def test_other_lengths_are_refused_before_a_download(shown: Shown, change: Callable[[list[Attachment]], Any]) -> None:
    """A release whose files cannot be those of the plan's sum is refused by their lengths."""
    named = [Attachment.of(part) for part in shown.parts]
    with pytest.raises(ProtocolViolation, match="party 0: the released sum has another length"):
        unmasking.check_lengths(shown.session.context, shown.members, change(named))
