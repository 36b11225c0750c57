"""Every fault under every protection: who notices it, at which message, and whose name is given for it.

Each cell of the table is a session of real parties, with their folders, in which the fault is planted: what they notice
must be what the cell says. The same table stands in `threat_models/FAULTS.md`, where
`python -m tests.session.test_fault_table` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from secagg.protection.encryption.messages import OpenedSum, PublishedKey, SumRequest
from secagg.protection.masking import server as masking_server
from secagg.protection.masking import unmasking
from secagg.protection.masking.messages import Directory, Endorsement, KeyAdvertisement, Opening, Quorum, Survivors
from secagg.protection.messages import Acknowledgement, Confirmation, Outcome, Receipt, Taken
from secagg.protection.sharing.messages import SessionKeys, SetLists, SumShare
from secagg.wire import tag_of
from tests.architecture.source import ROOT
from tests.protection.census_liars import (
    PLUS,
    another_prover,
    changed_blindings,
    deaf,
    proves_no_bits,
    true_bits,
    unchecked,
)
from tests.session.noticing import NOBODY, Planted, noticed
from tests.session.planted_faults import (
    EVERYBODY,
    HELPER,
    ME,
    OTHER,
    SERVER,
    UPLOADS,
    Notices,
    Plant,
    Scene,
    acknowledging_another,
    adding_one,
    another_digest,
    another_head,
    another_list,
    another_pledge,
    another_secret,
    another_seed,
    another_share,
    another_share_shown,
    another_sum,
    another_total,
    bad_shares,
    beyond_capacity,
    body_with,
    censored,
    concluding,
    declared_without_one,
    entering,
    false_release,
    false_share,
    false_tags,
    false_tags_shown,
    forged_acknowledgement,
    head_on_the_servers_word,
    in_census,
    in_first_entry,
    keys_of_small_order,
    keys_swapped,
    leaving,
    left_out_in_spite_of_its_receipt,
    list_shortened,
    made_to_say,
    making,
    of_small_order,
    of_two_clients,
    opened_otherwise,
    opening_of_another,
    other_bytes,
    passed_on_unusable,
    proofs_of_another,
    saying,
    seed_sealed,
    sending,
    share_with_proofs_of_another,
    shares_of_another_seed,
    signed_by_another,
    sum_changed_in_its_ciphertext,
    telling,
    telling_frame,
    two_left_out,
    two_manifests,
    two_outcomes,
    two_outcomes_kept_apart,
    two_uploads,
    unconfirmed,
    unusable,
    with_members,
    without_a_receipt,
    without_proofs,
    wrong_share,
)
from tests.session.test_lies_at_every_write import among, pledge_unsigned, unsigned, without_last

PROTECTIONS = tuple(UPLOADS)


@dataclass(frozen=True)
class Cell:
    """A fault under one protection; `seen` says who notices it, at which message, and whose name is given for it."""

    seen: str
    plant: Plant | None = None


@dataclass(frozen=True)
class Fault:
    """One row: who is at fault, the fault in words, its cell by protection, and why nobody notices, or is named."""

    who: str
    words: str
    cells: Mapping[str, Cell]
    why: str = ""


def fault(who: str, words: str, row: Cell | Mapping[str, Cell] | None = None, why: str = "", **cells: Cell) -> Fault:
    """A row: the same cell everywhere, a whole row, or cells for the protections that can have the fault."""
    return Fault(who, words, dict.fromkeys(PROTECTIONS, row) if isinstance(row, Cell) else row or cells, why)


def at_upload(plant: Plant, aggregators: str = "that aggregator") -> dict[str, Cell]:
    """Cells of a bad upload, which whoever takes it refuses."""
    takers = {"masked": "server", "shared": aggregators, "encrypted": "server"}
    return {name: Cell(f"{takers[name]}, `{tag_of(UPLOADS[name])}`: client", plant) for name in PROTECTIONS}


def to_everybody(plant: Plant, **others: Plant) -> dict[str, Cell]:
    """Cells of a lie of the server, which whoever opens the sum refuses: clients, and helpers beside them.

    `others` are plants for one protection: under `shared` one of two aggregators is in league with the server.
    """
    seen = {
        "masked": "every client",
        "shared": "every aggregator and every client",
        "encrypted": "every client and key holder",
    }
    if "shared" in others:
        seen["shared"] = ONE_AGGREGATOR
    return {name: Cell(f"{seen[name]}, `Outcome`: server", others.get(name, plant)) for name in PROTECTIONS}


def at_the_end(plant: Plant) -> dict[str, Cell]:
    """Cells of a census that is not the sum of the proven entries, which an honest server shows to nobody."""
    last = {"masked": Opening, "shared": SumShare, "encrypted": OpenedSum}
    return {name: Cell(f"server, `{tag_of(last[name])}`: nobody", plant) for name in PROTECTIONS}


ONE_AGGREGATOR = "every client and that aggregator"
ONE_WORD = "one party's word for what did not come proves nothing"
ALL_BLINDINGS = (
    "only the sum of all blindings is opened, so that a client's entry or blinding, or what a helper opened, \
may be false"
)
TABLE = (
    fault(
        "server",
        "shows a client another outcome than the others, and what these acknowledged",
        Cell("that client, `Confirmation`: server", two_outcomes),
    ),
    fault(
        "server",
        "shows a client another outcome than the others, and keeps back what these acknowledged",
        Cell("that client, `Confirmation`: nobody; `verify`, `Outcome`: server", two_outcomes_kept_apart),
        "the client has no result, and cannot know why; two transcripts together hold both outcomes, signed",
    ),
    fault(
        "server",
        "shows a client no confirmation",
        Cell("that client, `Confirmation`: nobody", unconfirmed),
        f"{ONE_WORD}; another party's transcript completes the outcome (`secagg confirm`)",
    ),
    fault(
        "server",
        "shows a confirmation with an acknowledgement that nobody signed",
        Cell("that client, `Confirmation`: server", telling(ME, Confirmation, forged_acknowledgement)),
    ),
    fault(
        "server",
        "signs another transcript than the client's at its end",
        Cell("that client, `Receipt`: server", telling_frame(Receipt, seen=bytes(32))),
    ),
    fault(
        "server",
        "names another head than follows from the sum, which clients are shown",
        masked=Cell("every client, `Outcome`: server", concluding(result=another_head, shown=True)),
        shared=Cell(
            "every aggregator and every client, `Outcome`: server", concluding(result=another_head, shown=True)
        ),
        encrypted=Cell("every client and key holder, `Outcome`: server", concluding(result=another_head, shown=True)),
    ),
    fault(
        "server",
        "names another head than follows from the sum, which clients are not shown",
        Cell("`verify` of the server's transcript, `Outcome`: server", head_on_the_servers_word),
        "all have the same head, on the server's word; its transcript, with the uploads, leads to another",
    ),
    fault(
        "server",
        "names another sum and what follows from it, where clients are shown the sum",
        masked=Cell("every client, `Outcome`: server", concluding(result=another_sum, shown=True)),
        shared=Cell("every aggregator and every client, `Outcome`: server", concluding(result=another_sum, shown=True)),
        encrypted=Cell("key holder, `Outcome`: server", concluding(result=another_sum, shown=True)),
        why="`masked`, `shared`: whoever is shown the sum opens it; `encrypted`: only the key holder can",
    ),
    fault(
        "server",
        "names another sum and what follows from it, where clients are not shown the sum",
        masked=Cell("`verify` of the server's transcript, `Outcome`: server", concluding(result=another_sum)),
        shared=Cell("`verify` of the server's transcript, `Outcome`: server", concluding(result=another_sum)),
        encrypted=Cell("key holder, `Outcome`: server", concluding(result=another_sum)),
        why="the sum is the server's word; its transcript, with the uploads, gives another",
    ),
    fault(
        "server",
        "names another sum, and what follows from the true one, where clients are not shown the sum",
        masked=Cell("`verify` of the server's transcript, `Outcome`: server", concluding(another_digest)),
        shared=Cell("`verify` of the server's transcript, `Outcome`: server", concluding(another_digest)),
        encrypted=Cell("key holder, `Outcome`: server", concluding(another_digest)),
        why="the same",
    ),
    fault(
        "server",
        "adds to the sum of the uploads after clients endorsed it",
        masked=Cell("every client, `Outcome`: server", false_release(unmasking)),
    ),
    fault(
        "server",
        "adds to the sum of the uploads before it shows that to anybody",
        masked=Cell("every client, `Outcome`: server", false_release(unmasking, masking_server)),
        encrypted=Cell("`verify` of the server's transcript, `SumRequest`: server", sum_changed_in_its_ciphertext),
        why="`encrypted`: nobody else has the uploads; the server's transcript, with these, gives another sum",
    ),
    fault(
        "server",
        "takes a mask of another secret from the sum",
        masked=Cell("every client, `Outcome`: server", concluding(result=another_secret, shown=True)),
    ),
    fault(
        "server",
        "goes on without a client whose upload it signed for",
        masked=Cell("that client, `Abort`: server", partial(censored, signs=True)),
        encrypted=Cell("that client, `Abort`: server", partial(censored, signs=True)),
    ),
    fault(
        "server",
        "goes on without a client whose upload it took, and signed nothing",
        masked=Cell("that client, `Abort`: nobody", partial(censored, signs=False)),
        encrypted=Cell("that client, `Abort`: nobody", partial(censored, signs=False)),
        why=f"{ONE_WORD}; `verify` says that this upload was not signed for",
    ),
    fault(
        "server",
        "shows a client a list of the sum's clients without it",
        masked=Cell("that client, `Survivors`: server", telling(ME, Survivors, among(1, 3, 4))),
        shared=Cell("that client, `Outcome`: server", telling(ME, Outcome, among(1, 3, 4))),
        encrypted=Cell("that client, `Outcome`: server", telling(ME, Outcome, among(1, 3, 4))),
    ),
    fault(
        "server",
        "signs that it accepted another upload than the client's",
        masked=Cell("that client, `Taken`: server", telling(ME, Taken, lambda _, told: Taken(bytes(32)))),
        encrypted=Cell("that client, `Taken`: server", telling(ME, Taken, lambda _, told: Taken(bytes(32)))),
    ),
    fault(
        "server",
        "names other clients in its outcome than those of the sum",
        masked=Cell(
            "that client, `Abort`: server; those clients, `Outcome`: server", concluding(with_members(1, 2, 3))
        ),
        shared=Cell("every aggregator, `Outcome`: server", concluding(with_members(1, 2, 3))),
        encrypted=Cell(
            "key holder, `Outcome`: server; that client, `Abort`: server", concluding(with_members(1, 2, 3))
        ),
    ),
    fault(
        "server",
        "shows two sets (`masked`: survivors, `shared`: lists); `encrypted`: declares another set than it sums",
        masked=Cell(
            "that client, `Quorum`: server", telling(ME, Survivors, among(1, 2, 3), lost=(ME, SERVER, Endorsement))
        ),
        shared=Cell("that aggregator, `SetLists`: server", telling(HELPER, SetLists, list_shortened)),
        encrypted=Cell("key holder, `SumRequest`: nobody", telling(HELPER, SumRequest, declared_without_one)),
        why="`encrypted`: the masks that are left make it noise, and nothing is opened; so does a client's false mask",
    ),
    fault(
        "server",
        "shows a client another sum of the masked uploads than the others",
        masked=Cell(
            "that client, `Quorum`: server", telling(ME, Survivors, another_total, lost=(ME, SERVER, Endorsement))
        ),
    ),
    fault(
        "server",
        "has a sum of fewer than n − D clients opened (`shared`: says that it was)",
        masked=Cell("every client, `Survivors`: server", telling(EVERYBODY, Survivors, among(1, 2))),
        shared=Cell("every aggregator and those clients, `Outcome`: server", concluding(with_members(1, 2))),
        encrypted=Cell("key holder, `SumRequest`: server", telling(HELPER, SumRequest, of_two_clients)),
    ),
    fault(
        "server",
        "shows fewer endorsements than t",
        masked=Cell("every client, `Quorum`: server", telling(EVERYBODY, Quorum, without_last("endorsements"))),
    ),
    fault(
        "server",
        "puts a key of its own in the place of a client's or helper's",
        masked=Cell("every client, `Directory`: server", telling(EVERYBODY, Directory, keys_swapped)),
        shared=Cell("every client, `SessionKeys`: server", telling(EVERYBODY, SessionKeys, pledge_unsigned)),
        encrypted=Cell("every client, `PublishedKey`: server", telling(EVERYBODY, PublishedKey, unsigned)),
    ),
    fault(
        "server",
        "replays a frame of another round",
        Cell("that client, `Outcome`: nobody", telling_frame(Outcome, round_digest=bytes(32))),
        "anybody who carries frames can do it: it is asked for again, and ends nothing",
    ),
    fault(
        "server",
        "replays a frame of another step, a `Receipt` for the `Outcome`",
        Cell("that client, `Receipt`: nobody", telling_frame(Outcome, step=tag_of(Receipt))),
        "the same",
    ),
    fault(
        "client",
        "sends an upload that somebody else signed",
        at_upload(sending(signed_by_another)),
    ),
    fault(
        "client",
        "sends an upload of another round",
        at_upload(sending(body_with(round_digest=bytes(32)))),
    ),
    fault(
        "client",
        "sends an upload as the message of another step",
        masked=Cell("server, `UploadHeader`: client", sending(body_with(step=tag_of(Acknowledgement)))),
        shared=Cell("that aggregator, `ShareManifest`: nobody", sending(body_with(step=tag_of(Acknowledgement)))),
        encrypted=Cell("server, `EncryptedUpload`: client", sending(body_with(step=tag_of(Acknowledgement)))),
        why="`shared`: an aggregator has one step for clients, and refuses what is not its message as malformed",
    ),
    fault(
        "client",
        "sends other bytes than its upload announces",
        at_upload(making(ME, other_bytes)),
    ),
    fault("client", "sends a second, different upload", at_upload(two_uploads, "every aggregator")),
    fault(
        "client",
        "sends two aggregators shares of two splittings, each with its own manifest",
        shared=Cell("every aggregator and server, `SetLists`: client", two_manifests),
        why="the client is left out; the server's log names it, and the lists, which all have, are the evidence",
    ),
    fault(
        "client",
        "publishes a key of small order",
        masked=Cell("server, `KeyAdvertisement`: client", saying(ME, KeyAdvertisement, keys_of_small_order)),
    ),
    fault(
        "client",
        "deals a holder shares that do not open",
        masked=Cell("that client, `UploadHeader`: client", bad_shares(OTHER)),
    ),
    fault(
        "client",
        "deals all holders shares that do not open",
        masked=Cell("every client, `UploadHeader`: client", bad_shares(1, 3, 4)),
    ),
    fault(
        "client",
        "deals shares of another seed than it committed to",
        masked=Cell("server, `Opening`: client", making(ME, shares_of_another_seed)),
    ),
    fault(
        "client",
        "opens another share than it was dealt",
        masked=Cell("server, `Opening`: client", saying(ME, Opening, false_share)),
    ),
    fault(
        "client",
        "signs tags that are not those of its upload",
        masked=Cell("server, `Opening`: client", making(ME, made_to_say(Opening, false_tags), shown=True)),
    ),
    fault(
        "client",
        "the same, and the server, in league with it, shows tags and upload",
        masked=Cell("every client, `Outcome`: client", false_tags_shown(with_upload=True)),
    ),
    fault(
        "client",
        "the same, and the server, in league with it, shows the tags alone",
        masked=Cell("every client, `Outcome`: server", false_tags_shown(with_upload=False)),
    ),
    fault(
        "client",
        "seals a seed that does not open",
        encrypted=Cell("key holder, `SumRequest`: client", seed_sealed(lambda session: bytes(1168))),
    ),
    fault(
        "client",
        "seals another seed than that of its mask",
        encrypted=Cell("key holder, `SumRequest`: nobody", seed_sealed(another_seed)),
        why="nothing is opened; so it is where the server declares another set than it sums",
    ),
    fault(
        "client",
        "enters what its records do not hold, within the plan's bounds",
        Cell(NOBODY, entering(1)),
        "a vector is its client's word",
    ),
    fault(
        "client",
        "enters more than any records hold, where clients are shown the sum",
        masked=Cell("every client, `Outcome`: nobody", entering(4000)),
        shared=Cell("every aggregator and every client, `Outcome`: nobody", entering(4000)),
        encrypted=Cell("every client and key holder, `Outcome`: nobody", entering(4000)),
        why="the sum is beyond what honest clients reach, and only the sum is known",
    ),
    fault(
        "client",
        "acknowledges another outcome than it was told",
        Cell("server, `Acknowledgement`: client", sending(acknowledging_another, Acknowledgement)),
    ),
    fault(
        "client",
        "acknowledges nothing, as others do, so that fewer than t have",
        masked=Cell("server, `Acknowledgement`: client", leaving(3, 4)),
        shared=Cell(NOBODY, leaving(3, 4)),
        encrypted=Cell(NOBODY, leaving(3, 4)),
        why="`masked`: by the server's word alone; `shared`, `encrypted`: helpers confirm, and clients do not count",
    ),
    fault(
        "aggregator or key holder",
        "publishes a key that nobody can use",
        shared=Cell("server, `SessionKeys`: aggregator", saying(HELPER, SessionKeys, unusable)),
        encrypted=Cell(
            "server, `PublishedKey`: key holder",
            saying(HELPER, PublishedKey, lambda by, said: of_small_order(by._context, by._me.identity, said)),
        ),
    ),
    fault(
        "aggregator or key holder",
        "the same, and the server, in league with it, passes it on",
        shared=Cell(
            "every client, `SessionKeys`: aggregator", telling(EVERYBODY, SessionKeys, passed_on_unusable, HELPER)
        ),
        encrypted=Cell(
            "every client, `PublishedKey`: key holder",
            telling(
                EVERYBODY,
                PublishedKey,
                lambda run, said: of_small_order(run.world.setup.context, run.world.keys[HELPER], said),
                HELPER,
            ),
        ),
    ),
    fault(
        "aggregator or key holder",
        "keeps back what opens the sum",
        shared=Cell("server, `SumShare`: aggregator", leaving(HELPER, before=SumShare)),
        encrypted=Cell("server, `OpenedSum`: key holder", leaving(HELPER, before=OpenedSum)),
    ),
    fault(
        "aggregator or key holder",
        "acknowledges nothing",
        shared=Cell("server, `Acknowledgement`: aggregator", leaving(HELPER)),
        encrypted=Cell("server, `Acknowledgement`: key holder", leaving(HELPER)),
    ),
    fault(
        "aggregator",
        "takes no upload of a client, and signs nothing",
        shared=Cell("that client, `ShareManifest`: nobody", without_a_receipt),
        why=ONE_WORD,
    ),
    fault(
        "aggregator",
        "leaves out an upload that it signed a receipt for",
        shared=Cell("that client, `SetLists`: aggregator", left_out_in_spite_of_its_receipt),
    ),
    fault(
        "aggregator",
        "leaves out so many that fewer than n − D are left",
        shared=Cell("server, `SetLists`: nobody", making(HELPER, two_left_out)),
        why="the session ends before clients are shown the lists",
    ),
    fault("aggregator", "commits to two sets", shared=Cell("server, `SetPledges`: aggregator", another_pledge)),
    fault(
        "aggregator",
        "shows another list than it committed to",
        shared=Cell("server, `SetLists`: aggregator", saying(HELPER, SetLists, another_list)),
    ),
    fault(
        "aggregator",
        "shows another sum share than it committed to",
        shared=Cell("server, `SumShare`: aggregator", making(HELPER, another_share)),
    ),
    fault(
        "aggregator",
        "commits to a wrong sum share",
        shared=Cell(NOBODY, adding_one(wrong_share)),
        why="its share is uniform to everybody else",
    ),
    fault(
        "key holder",
        "opens another sum than the declared one",
        encrypted=Cell("server, `OpenedSum`: key holder", saying(HELPER, OpenedSum, opening_of_another)),
    ),
    fault(
        "key holder",
        "opens values that no sum of the plan has",
        encrypted=Cell("server, `OpenedSum`: key holder", making(HELPER, opened_otherwise(beyond_capacity))),
    ),
    fault(
        "key holder",
        "opens false values",
        encrypted=Cell(NOBODY, adding_one(opened_otherwise(in_first_entry))),
        why="nobody else can decrypt the sum",
    ),
    fault(
        "client",
        "enters another value in an exact census than it proves",
        at_the_end(in_census(entering(PLUS, opened=()), partial(another_prover, liar=ME, change=true_bits))),
        ALL_BLINDINGS,
    ),
    fault(
        "client",
        "the same, and the server, in league with it, shows that census",
        to_everybody(in_census(entering(PLUS, SERVER), partial(another_prover, liar=ME, change=true_bits), deaf)),
    ),
    fault(
        "client",
        "proves its entries of an exact census with a false blinding",
        at_the_end(in_census(entering(0, opened=()), partial(another_prover, liar=ME, change=changed_blindings))),
        "the same",
    ),
    fault(
        "client",
        "enters 2 in an exact census, with a forged proof that it is a bit",
        at_upload(in_census(entering(PLUS, opened=(1, 3, 4)), proves_no_bits)),
    ),
    fault(
        "client",
        "the same, and server and first aggregator, in league with it, let it pass",
        to_everybody(
            in_census(entering(PLUS, SERVER), proves_no_bits, unchecked),
            shared=in_census(entering(PLUS, SERVER, HELPER), proves_no_bits, unchecked),
        ),
    ),
    fault(
        "client",
        "says in an exact census that it has records of a class of which it has none",
        Cell(NOBODY, in_census(entering(1))),
        "that an entry is a bit is proven, and not that a record stands behind it; the gate's threshold counts with "
        "such a lie of every colluder",
    ),
    fault(
        "server",
        "changes an exact census (`masked`: sum of uploads, `shared`: a share, `encrypted`: ciphertexts), and shows it",
        masked=Cell("every client, `Outcome`: server", in_census(false_release(unmasking, masking_server), deaf)),
        shared=Cell(
            "every aggregator and every client, `Outcome`: server",
            in_census(concluding(result=another_share_shown)),
        ),
        encrypted=Cell(
            "every client and key holder, `Outcome`: server", in_census(sum_changed_in_its_ciphertext, deaf)
        ),
    ),
    fault(
        "server",
        "leaves out the proofs of an exact census that it shows",
        to_everybody(in_census(concluding(result=without_proofs))),
    ),
    fault(
        "server",
        "shows another client's proofs in the place of a client's",
        to_everybody(in_census(concluding(result=proofs_of_another))),
    ),
    fault(
        "aggregator",
        "has another client's proofs in its share in the place of a client's",
        shared=Cell("server, `SumShare`: aggregator", in_census(making(HELPER, share_with_proofs_of_another))),
    ),
    fault(
        "aggregator",
        "the same, and the server, in league with it, lets it pass",
        shared=Cell(
            f"{ONE_AGGREGATOR}, `Outcome`: server",
            in_census(making(HELPER, share_with_proofs_of_another, SERVER), unchecked, deaf),
        ),
    ),
    fault(
        "aggregator or key holder",
        "changes an exact census (`shared`: commits to a wrong share, `encrypted`: opens false values)",
        shared=Cell("server, `SumShare`: nobody", in_census(adding_one(wrong_share, is_opened=False))),
        encrypted=Cell(
            "server, `OpenedSum`: nobody",
            in_census(adding_one(opened_otherwise(in_first_entry), is_opened=False)),
        ),
        why=ALL_BLINDINGS,
    ),
    fault(
        "aggregator or key holder",
        "the same, and the server, in league with it, shows that census",
        shared=Cell(f"{ONE_AGGREGATOR}, `Outcome`: server", in_census(adding_one(wrong_share, SERVER), deaf)),
        encrypted=Cell(
            "every client, `Outcome`: server", in_census(adding_one(opened_otherwise(in_first_entry), SERVER), deaf)
        ),
    ),
)
FAULTS = ROOT / "threat_models" / "FAULTS.md"
HEADER = ("| whose fault | what it does | masked | shared | encrypted | why |", "|---|---|---|---|---|---|")


def said(notices: Notices) -> str:
    """What was noticed, in the words of a cell: those who noticed the same together, what `verify` says at last."""
    by: dict[tuple[str, str], list[str]] = {}
    for each in sorted(notices):
        by.setdefault((each.when, each.whose), []).append(each.who)
    cells = (f"{' and '.join(who)}, `{when}`: {whose}" for (when, whose), who in by.items())
    return "; ".join(sorted(cells, key=lambda cell: (cell.startswith("`"), cell))) or NOBODY


def rendered(row: Fault) -> str:
    """A row as it stands in the text."""
    cells = (row.cells[protection].seen if protection in row.cells else "—" for protection in PROTECTIONS)
    return f"| {row.who} | {row.words} | {' | '.join(cells)} | {row.why} |".replace("  ", " ")


def written(text: str) -> str:
    """The text with this table in it."""
    lines = text.splitlines()
    start = lines.index(HEADER[0])
    end = next((place for place in range(start, len(lines)) if not lines[place].startswith("|")), len(lines))
    return "\n".join([*lines[:start], *HEADER, *map(rendered, TABLE), *lines[end:]]) + "\n"


CELLS = [
    pytest.param(protection, cell, id=f"{protection}-{row.who} {row.words}")
    for row in TABLE
    for protection, cell in row.cells.items()
    if cell.plant is not None
]


@pytest.mark.parametrize(("protection", "cell"), CELLS)
async def test_fault_is_noticed_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str, cell: Cell
) -> None:
    """The honest parties of a session with this fault notice, when and by name, what the cell says, and no more."""
    assert cell.plant is not None
    assert said(await cell.plant(Scene(tmp_path, protection, monkeypatch))) == cell.seen


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize(
    ("is_census", "shown"),
    [(False, False), (False, True), (True, True)],
    ids=["sum not shown", "sum shown", "exact census"],
)
async def test_without_a_fault_nobody_notices_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: str, is_census: bool, shown: bool
) -> None:
    """All parties of an honest session end with its outcome, and `verify` refuses no transcript."""
    run = Planted(Scene(tmp_path, protection, monkeypatch, is_census).world(shown=shown))
    assert await noticed(run) == frozenset()
    assert run.totals[-1].tolist() == run.world.total(EVERYBODY).tolist()


def test_every_gap_says_why() -> None:
    """A row in which a fault is not noticed, or nobody named, says why; in none an honest party is named."""
    for row in TABLE:
        gaps = [cell.seen for cell in row.cells.values() if NOBODY in cell.seen]
        assert row.why or not gaps, row.words
        assert not any("honest" in cell.seen for cell in row.cells.values()), row.words


def test_text_holds_the_table() -> None:
    """`threat_models/FAULTS.md` has these rows: `python -m tests.session.test_fault_table` writes them."""
    text = FAULTS.read_text(encoding="utf-8")
    assert text == written(text)


if __name__ == "__main__":
    FAULTS.write_text(written(FAULTS.read_text(encoding="utf-8")), encoding="utf-8")
