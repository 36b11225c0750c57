"""What others called things cannot move a cursor, hide a line or forge one: not on a terminal, nor in a log."""

import io
import logging
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.cli.console import LogLines, Speaker, two_columns
from secagg.ledger import Ledger
from secagg.system.printable import as_cell, escaped, first_unprintable, is_printable
from tests.agreement.test_ledger import ANYTHING, finite
from tests.cli.command import Command

FORGED = "cat\x1b[8m\n  promise  epsilon 1\r\x9b2K\u202e\u200b\x07"
ESCAPED = r"cat\x1b[8m\n  promise  epsilon 1\r\x9b2K\u202e\u200b\x07"


CODES = (
    0x00, 0x07, 0x09, 0x0A, 0x0D, 0x1B, 0x7F, 0x85, 0x9B, 0xA0, 0xAD, 0x34F, 0x61C,
    0x115F, 0x1160, 0x17B4, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2060, 0x2066,
    0x2069, 0x3000, 0x3164, 0xD800, 0xE000, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xFFFF, 0xE0001, 0xE0100, 0x10FFFF,
)  # fmt: skip


@given(st.text())
def test_only_what_shows_is_printable(text: str) -> None:
    """No control, format, private or unassigned character passes, nor any space but one; the rest stays as it is."""
    shown = escaped(text)
    assert is_printable(shown)
    assert (shown == text) == is_printable(text) == (first_unprintable(text) is None)
    if is_printable(text):
        assert all(each == " " or unicodedata.category(each)[0] not in "CZ" for each in text)


@pytest.mark.parametrize("code", CODES, ids=hex)
def test_what_moves_turns_or_hides_is_unprintable(code: int) -> None:
    """Controls of both sets, bidirectional marks, and letters that show nothing are found, wherever they stand."""
    text = f"a{chr(code)}b"
    assert not is_printable(text)
    assert first_unprintable(text) == f"U+{code:04X}"
    assert escaped(text).isascii()


@pytest.mark.parametrize("text", ["", "cat", "Löwe", "猫", "קָטָן", "a b", "π ≤ 4", "naïve\u0301", "👩"])
def test_other_writing_is_left_as_it_is(text: str) -> None:
    """Names in any script show as they were written."""
    assert is_printable(text)
    assert escaped(text) == text


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+1+1", "-1+1", "-", "+cmd|x", "\t=1", "\r=1"])
def test_no_text_is_a_formula_in_a_spreadsheet(text: str) -> None:
    """What begins as one does is led by an apostrophe."""
    assert as_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "cat", "-1", "+1.5", "-.5e-3", "1=1", "'=1"])
def test_other_cells_stay(text: str) -> None:
    """Numbers with a sign are no formulas."""
    assert as_cell(text) == text


def test_a_name_cannot_forge_a_row() -> None:
    """Of a table every name has one line, and a value's further lines stand below its first."""
    table = two_columns("Plan", [(FORGED, "yes"), ("classes", FORGED), ("promise", "none")])
    lines = table.split("\n")
    assert all(map(is_printable, lines))
    assert [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "] == [
        "cat\\x1b[8m\\n", "classes", "promise"
    ]  # fmt: skip
    assert sum(line.lstrip().startswith("promise") and line.startswith("  p") for line in lines) == 1


def test_both_streams_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    """Results and remarks, whatever they quote, reach both streams without a character that a terminal obeys."""
    speaker = Speaker(quiet=False)
    speaker.say(f"left out: {FORGED}")
    speaker.result({}, f"one: {FORGED}")
    speaker.text("{}", f"two: {FORGED}")
    streams = capsys.readouterr()
    assert streams.err == f"left out: {ESCAPED}\n"
    assert all(is_printable(line) for line in streams.out.split("\n"))


def test_log_has_one_line_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer's words in a message, or in the error of a traceback, neither break its line nor reach a terminal raw."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(LogLines())
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    log = logging.getLogger("tests.printable")
    log.propagate = False
    monkeypatch.setattr(log, "handlers", [handler])
    log.warning("refused %s: %s", "alice", FORGED)
    log.warning("100 %")
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("a call of %s failed", "alice")
    lines = stream.getvalue().split("\n")
    assert lines[:3] == [f"tests.printable: refused alice: {ESCAPED}", "tests.printable: 100 %",
                         "tests.printable: a call of alice failed"]  # fmt: skip
    assert lines[3].startswith("Traceback")
    assert all(map(is_printable, lines))


def test_command_line_cleans_its_log(secagg: Command, federation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What any command logs goes through the same filter."""
    home = federation / "alice"
    monkeypatch.setattr(
        "secagg.cli.plan.explain", lambda setup: logging.getLogger("secagg.server").warning(FORGED) or []
    )
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    arguments = ("--plan", federation / "plan.json", "--roster", home / "roster.json")
    said = secagg("plan", "show", *arguments)
    assert f"secagg.server: {ESCAPED}\n" in said.err


def test_domain_of_an_archive_reaches_the_terminal_escaped(secagg: Command, tmp_path: Path) -> None:
    """A domain in an .npz is called by a key of the archive, which may hold anything."""
    rng, arrays = np.random.default_rng(0), {}
    for domain in ("a\x1b[31m", "b\u202e"):
        arrays |= {f"{domain}_features": rng.normal(size=(20, 3)), f"{domain}_labels": np.arange(20) % 2}
    np.savez(tmp_path / "d.npz", **arrays)
    said = secagg("simulate", "--dataset", tmp_path / "d.npz", "--partition", "column:domain", "--radius", "9")
    assert said.code == 0
    assert all(is_printable(line) for line in (said.out + said.err).split("\n"))


def test_older_ledger_is_shown_escaped(secagg: Command, tmp_path: Path) -> None:
    """Names that only older policies took are listed, and cannot forge a row."""
    Ledger(tmp_path).record(finite(data_name=f"heart/{FORGED}"), ANYTHING)
    said = secagg("ledger", "show", "--state", tmp_path)
    assert said.code == 0
    assert f"heart/{ESCAPED}" in said.out
    assert all(is_printable(line) for line in said.out.split("\n"))


def test_complaint_is_one_clean_line(secagg: Command, tmp_path: Path) -> None:
    """An error that quotes a file's name is one line without a character that a terminal obeys."""
    said = secagg("plan", "show", "--plan", tmp_path / FORGED.replace("\n", ""), "--roster", tmp_path)
    assert said.code == 2
    assert is_printable(said.complaint)
