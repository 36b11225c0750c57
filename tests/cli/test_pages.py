"""The pages of audits, scores and comparisons in a browser: at a desk, on a telephone, on paper, and for everybody."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from secagg.cli.comparison_page import comparison_page
from secagg.experiments.tables import SHOWN, ResultTable, html_of
from tests.cli import browser
from tests.cli.command import Command
from tests.threat_models.report import sample
from threat_models.findings import Verdict
from threat_models.report.changes import compare
from threat_models.report.gate import Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.report.json_report import as_json

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no Chromium")
needs_axe = pytest.mark.skipif(browser.AXE is None, reason="SECAGG_AXE names no folder of axe-core")
WIDTHS = (1280, 500)
WHY = "It takes records that took part (--known) and others (--public), which this audit was not given."


def gated(report):
    """The report with a cover and the lines of the default gate."""
    return replace(report, gate=judge(Gate.read(), report, date(2026, 3, 1)), cover=sample.COVER)


def audits(folder: Path):
    """A report that passes, one that fails, and one that could hardly tell anything, against the first."""
    good = gated(sample.with_control(sample.report()))
    bad = gated(sample.with_findings(sample.exact(sample.report(), 64), *sample.exposed_findings()))
    judged = (each for each in sample.good_findings() if each.verdict is not Verdict.NOT_APPLICABLE)
    open_ = gated(
        sample.with_findings(
            sample.report(), *(sample.finding(each.attack, Verdict.INCONCLUSIVE, WHY) for each in judged)
        )
    )
    old = folder / "old.json"
    old.write_text(as_json(good), encoding="utf-8")
    return {"good": good, "bad": bad, "open": replace(open_, against=compare(open_, old))}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The audit's three, a comparison's page, and its table as a notebook shows it, as files."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {name: as_html(report) for name, report in audits(folder).items()}
    rows = [["fedcgs", "98.1 % (96.0 to 99.2)", "masked"], ["fedavg", "97.5 % (95.1 to 98.9)", "masked"]]
    table = html_of(("method", "accuracy", "protection"), rows, "Accuracy on digits", ("A note.",))
    texts["notebook"] = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>t</title></head><body><main>'
        f"<h1>A notebook</h1>{table}</main></body></html>"
    )
    measured = (["fedcgs", "dirichlet:0.05", *["84.62 (80.00–88.61)"] * 4], ["<b>", "iid", *["–"] * 4])
    tables = (
        ResultTable("Accuracy.", ("method", "iid"), (("fedcgs", "98.1"),), ("¹ A note.",)),
        ResultTable("Further.", ("method", "partition", *SHOWN.values()), tuple(map(tuple, measured)), name="measures"),
    )
    figure = folder / "accuracy.svg"
    figure.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="340" height="120"/>', encoding="utf-8")
    texts["comparison"] = comparison_page("Methods on digits", tables, ("A note of the runs.",), figure)
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture
def scores(secagg: Command, tmp_path: Path) -> Path:
    """The page of a head's scores on labelled records."""
    generator = np.random.default_rng(5)
    labels = np.arange(300) % 3
    np.savez(tmp_path / "own.npz", features=generator.normal(size=(300, 8)) + labels[:, None], labels=labels)
    made = ("simulate", "--dataset", tmp_path / "own.npz", "--clients", 3, "--save", tmp_path / "run", "--quiet")
    assert secagg(*made).code == 0
    head, page = tmp_path / "run" / "head.safetensors", tmp_path / "scores.html"
    said = secagg("predict", "--head", head, "--data", tmp_path / "own.npz", "--html", page, "--quiet")
    assert said.code == 0, said.err
    return page


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_its_window(pages: dict[str, Path], scores: Path, width: int) -> None:
    """Nothing but tables that scroll in their own box is cut, on a desk or a telephone."""
    found = {name: browser.overflow(page, width) for name, page in {**pages, "scores": scores}.items()}
    assert not {name: by for name, by in found.items() if by > 0}


@needs_axe
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_are_accessible(pages: dict[str, Path], scores: Path, width: int) -> None:
    """axe-core finds nothing serious: contrast, names, tables, regions that keys can scroll."""
    found = {name: browser.violations(page, width) for name, page in {**pages, "scores": scores}.items()}
    assert not {name: said for name, said in found.items() if said}


@pytest.mark.parametrize("name", ["good", "bad"])
def test_what_to_do_is_one_sheet(pages: dict[str, Path], name: str) -> None:
    """Cover, verdict, what it means and what to do are the first sheet of paper; the appendix begins on another."""
    assert browser.printed_pages(pages[name], is_first=True) == 1
    assert browser.printed_pages(pages[name]) > 1


@needs_axe
def test_faults_would_be_found(tmp_path: Path) -> None:
    """Of a page that is too wide, and hard to read, the same measurements say so."""
    page = tmp_path / "bad.html"
    style = "p { width: 900px; color: #ccc; }"
    page.write_text(
        f"<!DOCTYPE html><html><head><title>t</title><style>{style}</style></head><body><p>Grey</p></body></html>"
    )
    assert browser.overflow(page, 500) > 300
    assert any(each.startswith("color-contrast") for each in browser.violations(page, 500))
