"""What the guides say that papers claim stands so in the papers, and no claim holds here without an interval."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import ROOT
from tests.benchmarks import claims, contrasts, leaving, systems
from tests.benchmarks.claims import Claim

PAPERS = ROOT.parent / "shared" / "papers"
CLAIMS = claims.read_claims()
NUMBERED = r"\d+(?:\.\d+)*\.? [A-Z]\w+"
"""The beginning of a numbered heading."""
CAPTION = re.compile(r"\bTable \d+: ")
FIGURE = re.compile(r"(?<![\d.])(?:\d+\.\d+(?![\d.]*\d)|\d+(?= %))")
INTERVAL = re.compile(r"([+−-]?\d+(?:\.\d+)?) ± (\d+(?:\.\d+)?)")
VERDICT = re.compile(r"\b(?:held|holds?|confirmed|refuted)\b")


def flat(text: str) -> str:
    """The text with one space for any white space."""
    return " ".join(text.split())


def misquotes(claim: Claim, text: str) -> list[str]:
    """What of a claim does not stand in the paper's text at the place that it names."""
    if claim.chapter:
        _, _, text = text.partition(f"\n{claim.chapter}\n")
        text = re.split(r"\nChapter \d+\n", text)[0]
    whole, section = flat(text), flat(section_of(claim.section, text))
    at = whole.find(flat(claim.table))
    wrong = [quote for quote in claim.quotes if flat(quote) not in section]
    wrong += [claim.table] if at < 0 else []
    for row in claim.rows:
        places = [match.start() for match in re.finditer(re.escape(flat(row)), whole)]
        between = [whole[min(at, place) + 1 : max(at, place)] for place in places]
        wrong += [] if any(not CAPTION.search(each) for each in between) else [row]
    known = FIGURE.findall(" ".join(claim.rows))
    return wrong + [each for each in FIGURE.findall(claim.figures) if each not in known]


def section_of(heading: str, text: str) -> str:
    """From a heading to the next one: a numbered one, or one that a claim names."""
    names = "|".join([NUMBERED, *(re.escape(each.section) + "$" for each in CLAIMS)])
    starts = [match.start() for match in re.finditer(rf"^#* ?(?:{names})", text, re.MULTILINE)]
    parts = [text[start:end] for start, end in pairwise([*starts, len(text)])]
    return "\n".join(part for part in parts if part.splitlines()[0].strip("# ") == heading)


def sentences_of_papers(text: str) -> Iterator[str]:
    """Sentences, and rows of tables, that name a paper; neither commands nor the table of claims."""
    text = text.partition(claims.BEGIN)[0] + text.partition(claims.BEGIN)[2].partition(leaving.END)[2]
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"^\|.*$", r"\n\g<0>\n", text, flags=re.MULTILINE)
    for sentence in re.split(r"(?<=[.:;?!])\**\s+|\n\n", text):
        if re.search(r"\bpapers?\b", sentence):
            yield flat(sentence)


def unquoted(text: str) -> list[str]:
    """Figures in sentences that name a paper which are not in the file of claims."""
    known = FIGURE.findall(" ".join(row for claim in CLAIMS for row in (*claim.rows, *claim.quotes)))
    return [each for said in sentences_of_papers(text) for each in FIGURE.findall(said) if each not in known]


def is_unproven(said: str) -> bool:
    """Whether a verdict stands beside no paired interval that excludes 0."""
    intervals = [(float(middle.replace("−", "-")), float(half)) for middle, half in INTERVAL.findall(said)]
    return bool(VERDICT.search(said)) and not any(abs(middle) > half for middle, half in intervals)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.system}, {claim.place}")
def test_claims_stand_in_the_papers(claim: Claim) -> None:
    """Quotes are in the named section, rows beside the named table, and figures in the rows, all verbatim."""
    if not (PAPERS / claim.paper).is_file():
        pytest.skip(f"needs {claim.paper} in ../shared/papers")
    assert misquotes(claim, (PAPERS / claim.paper).read_text(encoding="utf-8")) == []


TEXT = """
Chapter 1

1 First part

Ours is\tbest.

Ours 1.25 2.50

Table 1: Accuracy

Table 2: Time

Ours 9.75 0.50

2 Second part

Chapter 2
"""
TOY = Claim(
    system="X",
    paper="x.txt",
    chapter="Chapter 1",
    section="1 First part",
    table="Table 1: Acc",
    quotes=("Ours is best.",),
    rows=("Ours 1.25 2.50",),
    figures="Ours 2.50",
    contrast="",
    shown="",
    differs="",
)


@pytest.mark.parametrize(
    "fault",
    [
        {"chapter": "Chapter 2"},
        {"section": "2 Second part"},
        {"quotes": ("Ours is the best.",)},
        {"quotes": ("Ours is best.", "Theirs is worst.")},
        {"table": "Table 1: Time"},
        {"rows": ("Ours 1.25 2.51",)},
        {"rows": ("Ours 1.25 2.50", "Ours 9.75 0.50")},
        {"figures": "Ours 2.5"},
        {"figures": "Ours 2.50, theirs 0.50"},
    ],
    ids=str,
)
def test_a_misquote_is_found(fault: dict[str, Any]) -> None:
    """A changed word, digit, place or table is a misquote; the claim as it stands is none."""
    assert misquotes(TOY, TEXT) == []
    assert misquotes(replace(TOY, **fault), TEXT)


def test_every_system_has_a_claim() -> None:
    """Each of the eight systems has a claim with figures, and no claim is of another."""
    assert {claim.system for claim in CLAIMS if claim.figures} == {system.name for system in systems.SYSTEMS}
    assert {claim.system for claim in CLAIMS} == {system.name for system in systems.SYSTEMS}


@pytest.mark.parametrize("page", [systems.RESULTS, systems.README], ids=lambda page: page.name)
def test_guides_name_no_other_figure_of_a_paper(page: Path) -> None:
    """A sentence that names a paper has no figure, or one of the file of claims; and no verdict without an interval."""
    text = page.read_text(encoding="utf-8")
    assert unquoted(text) == []
    assert [said for said in sentences_of_papers(text) if is_unproven(said)] == []


def test_a_figure_or_a_verdict_of_no_source_is_found() -> None:
    """Figures that no claim has, in prose and in tables, and verdicts whose interval contains 0, are found."""
    said = "Here 12.34 %. The paper has 91.34 and\n12.34 %, 77 %.\n| the paper | 5.678 |\n"
    assert unquoted(said) == ["12.34", "77", "5.678"]
    assert is_unproven("It held.")
    assert is_unproven("It held: +0.2 ± 0.2.")
    assert is_unproven("It holds: −0.2 ± 1.0.")
    assert not is_unproven("It did not hold: −1.2 ± 1.0.")
    assert not is_unproven("Cannot be told: +0.2 ± 1.0.")


def test_verdicts_are_computed() -> None:
    """Each system has one primary claim; the words of the file have no verdict but "cannot be told"."""
    assert sorted(claim.system for claim in CLAIMS if claim.primary) == sorted(contrasts.PRIMARY)
    assert [claim for claim in CLAIMS if VERDICT.search(claim.shown)] == []
    open_claims = [claim for claim in CLAIMS if claim.figures and not claim.primary]
    assert [claim for claim in open_claims if not claim.shown.startswith("cannot be told")] == []


def test_the_table_has_the_verdict_of_its_contrast() -> None:
    """A primary claim with a contrast shows the computed verdict with both intervals; no other claim shows one."""
    found = contrasts.read_contrasts()
    for claim in CLAIMS:
        shown = claims.shown_of(claim)
        if claim.primary and claim.system in found:
            assert shown.startswith(f"**{contrasts.verdicts(found)[claim.system]}** (p ")
            assert f" by Holm): {found[claim.system].says()}" in shown
        else:
            assert shown == claim.shown


def test_the_table_is_that_of_the_file() -> None:
    """`python -m tests.benchmarks.claims` would change nothing."""
    text = claims.README.read_text(encoding="utf-8")
    assert leaving.placed(text, claims.table(), claims.BEGIN) == text
