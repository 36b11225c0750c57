"""The transcript file: vectors, reopening, every kind of damage, and a disk that refuses."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from secagg.errors import BadInput, MalformedMessage, TranscriptInvalid
from secagg.transcript import START, Journal, Record, chain, read_transcript
from secagg.wire import encode
from tests.transcript.vectors import TARGET, file_of, heads, records_of

VECTORS = json.loads(TARGET.read_text(encoding="utf-8"))
CONTENTS = tuple((each["kind"], bytes.fromhex(each["content"])) for each in VECTORS["valid"]["records"])
WHOLE = bytes.fromhex(VECTORS["valid"]["file"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the transcript is."""
    return tmp_path / "transcript.log"


@pytest.fixture
def written(path: Path) -> Path:
    """A transcript with all the vectors' records."""
    path.write_bytes(WHOLE)
    return path


def append_all(path: Path, contents: tuple[tuple[str, bytes], ...]) -> bytes:
    """Append records with a journal; return its head."""
    journal = Journal(path)
    try:
        for kind, content in contents:
            journal.append(kind, content)  # type: ignore[arg-type]
        return journal.head
    finally:
        journal.close()


def test_vectors_are_those_of_their_generator() -> None:
    """The committed file and heads are what the independent implementation gives."""
    assert file_of(records_of(CONTENTS)) == WHOLE
    assert [head.hex() for head in heads(CONTENTS)] == VECTORS["valid"]["heads"]


def test_journal_writes_the_vector(path: Path) -> None:
    """Records and heads are byte for byte those of an independent implementation."""
    assert append_all(path, CONTENTS).hex() == VECTORS["valid"]["heads"][-1]
    assert path.read_bytes() == WHOLE
    assert [record.head.hex() for record in read_transcript(path)] == VECTORS["valid"]["heads"]


@pytest.mark.parametrize("case", VECTORS["invalid"], ids=lambda case: case["name"])
def test_damaged_vector_names_its_record(path: Path, case: dict[str, str]) -> None:
    """A transcript damaged in the way of its name does not read, and the first record at fault is named."""
    path.write_bytes(bytes.fromhex(case["file"]))
    with pytest.raises(TranscriptInvalid) as refusal:
        read_transcript(path)
    assert refusal.value.record == case["record"]


def test_reopened_journal_goes_on(path: Path) -> None:
    """Appending after reopening gives the same file as appending at once, wherever the pause is."""
    for cut in range(len(CONTENTS) + 1):
        path.unlink(missing_ok=True)
        append_all(path, CONTENTS[:cut])
        append_all(path, CONTENTS[cut:])
        assert path.read_bytes() == WHOLE


def test_torn_tail_is_cut_off(path: Path) -> None:
    """Whatever part of the last record a crash left, reopening cuts it off and the records before it stay."""
    last = len(file_of(records_of(CONTENTS[:-1])))
    for size in range(last, len(WHOLE)):
        path.write_bytes(WHOLE[:size])
        assert append_all(path, CONTENTS[-1:]).hex() == VECTORS["valid"]["heads"][-1]
        assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("size", range(17))
def test_torn_magic_is_written_again(path: Path, size: int) -> None:
    """A crash while the file was made leaves a journal that can be used."""
    path.write_bytes(WHOLE[:size])
    append_all(path, CONTENTS)
    assert path.read_bytes() == WHOLE


def regions() -> Iterator[tuple[int, int]]:
    """Every byte behind the magic, with the record that it is in."""
    end = 16
    for index, record in enumerate(records_of(CONTENTS)):
        yield from ((position, index) for position in range(end, end + 4 + len(record)))
        end += 4 + len(record)


def outcome_of(path: Path) -> tuple[int | None, str]:
    """The record at fault, or None and the last head."""
    try:
        return None, read_transcript(path)[-1].head.hex()
    except TranscriptInvalid as error:
        return error.record, ""


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_flipped_bit_anywhere_is_found(path: Path, mask: int) -> None:
    """A flipped bit in any byte is found, at its record or at the one behind it, never later.

    The last record has nothing behind it: only a countersigned head can show a change of its content.
    """
    last = len(CONTENTS) - 1
    undetected = set()
    for position, index in regions():
        damaged = bytearray(WHOLE)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        at, head = outcome_of(path)
        if at is None:
            assert (index, head == VECTORS["valid"]["heads"][-1]) == (last, False)
            undetected.add(position)
        else:
            assert index <= at <= index + 1, position
    assert len(undetected) <= sum(map(len, CONTENTS[-1]))


def test_flipped_magic_is_found(written: Path) -> None:
    """A file that does not begin as a transcript is none."""
    written.write_bytes(b"X" + WHOLE[1:])
    with pytest.raises(TranscriptInvalid):
        read_transcript(written)
    with pytest.raises(TranscriptInvalid):
        Journal(written)


def test_journal_does_not_open_over_damage(path: Path) -> None:
    """A party never goes on from a transcript whose chain is broken, and does not touch the file."""
    damaged = bytearray(WHOLE)
    damaged[100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(TranscriptInvalid):
        Journal(path)
    assert path.read_bytes() == damaged


def test_known_record_is_not_written_again(path: Path) -> None:
    """What the transcript holds already is not written again, by the same journal or by one reopened."""
    append_all(path, CONTENTS + CONTENTS[1:3])
    append_all(path, CONTENTS[::-1])
    assert path.read_bytes() == WHOLE


@pytest.mark.parametrize("torn", [0, 3])
def test_contents_are_read_back_by_their_places(path: Path, torn: int) -> None:
    """Each record's content is what was appended, in this life and the next, after a torn record and a repetition."""
    append_all(path, CONTENTS)
    with path.open("ab") as file:
        file.write(b"\0\0\1"[:torn])
    with closing(Journal(path)) as journal:
        for kind, content in (*CONTENTS, ("sent", b"one more"), CONTENTS[0]):
            journal.append(kind, content)  # type: ignore[arg-type]
            assert journal.content_at(journal.place_of(kind, content)) == content  # type: ignore[arg-type]
        with pytest.raises(KeyError):
            journal.place_of("sent", b"never appended")


def test_same_content_of_another_kind_is_another_record(path: Path) -> None:
    """Kind and content together make a record known."""
    append_all(path, (("received", b"x"), ("sent", b"x"), ("received", b"y")))
    assert len(read_transcript(path)) == 3


def test_chain_starts_at_zero(path: Path) -> None:
    """The head of nothing is 32 zero bytes, and each record commits to kind and content apart."""
    assert bytes(32) == START
    assert Record(0, START, "plan", b"x").head == chain(START, "plan", b"x") != chain(START, "planx", b"")


def test_record_beyond_its_bound_is_refused(path: Path) -> None:
    """Content of more than 64 MiB is never written."""
    journal = Journal(path)
    with pytest.raises(MalformedMessage):
        journal.append("sent", bytes((64 << 20) + 1))
    journal.append("sent", b"x")
    journal.close()
    assert [record.content for record in read_transcript(path)] == [b"x"]


def test_missing_transcript_is_bad_input(tmp_path: Path) -> None:
    """A path without a file, or a folder, is the user's mistake and is named."""
    for wrong in (tmp_path / "none.log", tmp_path):
        with pytest.raises(BadInput, match=str(wrong)):
            read_transcript(wrong)


def test_journal_in_a_missing_folder_is_bad_input(tmp_path: Path) -> None:
    """A journal that cannot be created names its path."""
    with pytest.raises(BadInput, match="cannot write the transcript"):
        Journal(tmp_path / "none" / "transcript.log")


ANOTHER_PROCESS = """
import sys
from pathlib import Path
from secagg.errors import BadInput
from secagg.transcript import Journal
try:
    journal = Journal(Path(sys.argv[1]))
    journal.append("sent", b"of the other process")
except BadInput as error:
    print(error)
"""


def test_folder_is_one_process_at_a_time(written: Path) -> None:
    """A second process on a folder is refused in one line and changes nothing; once the first has ended it may."""
    journal = Journal(written)
    journal.append("sent", b"of this process")
    before, other = written.read_bytes(), [sys.executable, "-c", ANOTHER_PROCESS, str(written)]
    said = subprocess.run(other, capture_output=True, text=True, check=True).stdout
    assert f"another process is at work in {written.parent}" in said
    assert len(said.splitlines()) == 1
    assert written.read_bytes() == before
    journal.append("sent", b"more of this process")
    journal.close()
    assert subprocess.run(other, capture_output=True, text=True, check=True).stdout == ""
    assert [record.content for record in read_transcript(written)][-2:] == [
        b"more of this process",
        b"of the other process",
    ]


def test_transcript_is_for_its_owner_alone(path: Path) -> None:
    """Whatever the umask, a new transcript can be read and written by its owner only."""
    before = os.umask(0)
    try:
        append_all(path, CONTENTS)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_journal_follows_no_link(path: Path) -> None:
    """A link in the transcript's place is refused: nothing is written where somebody else points."""
    path.symlink_to(path.with_name("elsewhere"))
    with pytest.raises(BadInput, match="cannot write the transcript"):
        Journal(path)
    assert not path.with_name("elsewhere").exists()


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from secagg.errors import BadInput
from secagg.transcript import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
journal = Journal(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, resource.RLIM_INFINITY))
head = journal.head
try:
    journal.append("sent", bytes(5000))
except BadInput as error:
    print(error)
assert journal.head == head
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
if sys.argv[2] == "again":
    journal.append("sent", bytes(5000))
journal.close()
"""


@pytest.mark.parametrize("then", ["stop", "again"])
def test_full_disk_leaves_the_transcript_as_it_was(written: Path, then: str) -> None:
    """When the disk refuses, one line says so, the file is as before, and the same journal goes on later."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(written), then], capture_output=True, text=True, check=True
    )
    assert "cannot write the transcript" in done.stdout
    assert "free the disk" in done.stdout
    added = (("sent", bytes(5000)),) if then == "again" else ()
    assert written.read_bytes() == file_of(records_of(CONTENTS + added))


def test_repair_that_fails_too_is_made_up_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed append whose rest could not be cut off either, the next append does it, and nothing is lost."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with closing(Journal(path)) as journal:
        journal.append("sent", b"first")
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "_sync", refuse)
            patch.setattr(Journal, "_cut_off", refuse)
            with pytest.raises(BadInput, match="broken"):
                journal.append("sent", b"refused")
        journal.append("sent", b"second")
        assert [record.content for record in journal.records()] == [b"first", b"second"]
        assert journal.content_at(journal.place_of("sent", b"first")) == b"first"
    assert [record.content for record in read_transcript(path)] == [b"first", b"second"]


def test_record_is_canonical(path: Path) -> None:
    """What the journal writes is exactly the canonical encoding of its records."""
    append_all(path, CONTENTS)
    assert file_of([encode(record) for record in read_transcript(path)]) == WHOLE
