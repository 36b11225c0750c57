"""Text from data, numbers for people, the lines for a terminal and the cells for a spreadsheet."""

import csv
import io
import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.threat_models.report import sample
from threat_models.findings import Measure, Verdict
from threat_models.report.gate import Gate
from threat_models.report.judging import judge
from threat_models.report.summary import COLUMNS, as_csv, as_text
from threat_models.report.text import LONGEST, cell, figure, interval, shown


@given(st.text(st.characters()))
def test_what_is_shown_is_one_printable_line(text):
    """Whatever the text: nothing that a terminal acts on, and what is printable stays."""
    assert shown(text).isprintable()
    assert shown(shown(text)) == shown(text)
    assert not text.isprintable() or shown(text) == text


def test_long_text_is_cut():
    """A name of a million letters does not fill the page."""
    assert len(shown("a" * 1_000_000)) == LONGEST


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "\t=", "\n@", " ="])
def test_no_cell_is_a_formula(start):
    """What a spreadsheet would compute becomes text; other names stay as they are."""
    assert cell(f"{start}cmd").startswith("'")
    assert cell("plain = text") == "plain = text"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.123456, "0.1235"),
        (1e-05, "1e−05"),
        (50_000, "50,000"),
        (-2.5, "−2.5"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "not supported"),
    ],
)
def test_figures_have_four_digits(value, words):
    """Numbers as people read them."""
    assert figure(value) == words


def test_interval_is_told_where_there_is_one():
    """Without limits there is the value alone."""
    assert interval(sample.measure("m", 0.5, 0.4, 0.6)) == "0.5 (0.4 to 0.6)"
    assert interval(Measure("m", 0.5, 0.5, 0.5, "none")) == "0.5"
    assert interval(Measure("m", 0.0, 0.0, 1.0, "not supported by 9 non-members"), "%") == "0 %"
    assert interval(sample.measure("m", 0.5, 0.4, 0.6), "%") == "50 % (40 to 60 %)"
    assert interval(sample.measure("m", math.nan, math.nan, math.nan)) == "not supported"


def test_terminal_gets_the_verdict_first():
    """The outcome, then what did not pass, then the findings."""
    report = sample.with_findings(sample.report(), sample.finding("unmixing", Verdict.SUCCEEDS, "All.\x1b[2J\nPASS"))
    lines = as_text(replace(report, gate=judge(Gate.read(), report, date(2026, 3, 1)))).splitlines()
    assert lines[0].endswith("gate FAIL")
    assert lines[3] == "FAIL unmixing by curious_server: The attack succeeds: All.\\u001b[2J PASS"
    assert len([line for line in lines if line.startswith("curious_server, ")]) == len(report.findings)
    assert lines[-1] == report.comparisons.sentence()


def test_terminal_is_told_that_there_was_no_gate():
    """Without a gate nothing looks like a verdict."""
    assert as_text(sample.report()).splitlines()[0].endswith("no gate was applied")


def test_table_has_every_measure():
    """A row for each, of the subject and of the levels, with names that no spreadsheet computes."""
    found = sample.finding("unmixing", Verdict.FAILS, measures=(sample.measure('=HYPERLINK("x")', 0.5, 0.4, math.inf),))
    report = sample.with_findings(sample.report(), found)
    rows = list(csv.DictReader(io.StringIO(as_csv(report))))
    findings = [*report.findings, *(finding for level in report.levels for finding in level.findings)]
    assert len(rows) == sum(len(finding.measures) for finding in findings)
    row = next(row for row in rows if row["attack"] == "unmixing")
    assert tuple(row) == COLUMNS
    assert (row["level"], row["measure"], row["low"], row["high"]) == ("", '\'=HYPERLINK("x")', "0.4", "inf")


def test_control_has_a_sentence_of_its_own():
    """What is found without protection is not counted with the attacks on the session."""
    text = as_text(sample.with_control(sample.report()))
    assert "9 attacks by 1 adversary: 2 succeed" in text
    assert "Without protection, for comparison, 9 attacks: 4 succeed" in text
    assert "no_protection, unmixing: control: succeeds, as it must." in text
