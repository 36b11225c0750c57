"""The HTML page: complete, and closed to whatever its data hold."""

import re
from base64 import b64encode
from dataclasses import replace
from datetime import date
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from tests.threat_models.report import sample
from threat_models.active.probe import PROBE, REFUSED_WAYS
from threat_models.attacks.reconstruction.inversion import PSNR, REIDENTIFIED
from threat_models.findings import Control, Curve, Measure, Metric, Picture, Series, Verdict
from threat_models.report.content import AttackNote, ProtectionLevel
from threat_models.report.gate import Gate
from threat_models.report.gate_evaluation import judge
from threat_models.report.html import as_html
from threat_models.session import Provenance

VOID = {"meta", "img", "br", "line", "circle", "polyline", "polygon", "path"}
NASTY = "<script>alert(1)</script>\"'><img src=http://evil.example/x>\x1b[31m\u202e&amp;"


class Page(HTMLParser):
    """Tags with their attributes, the text, and whether every tag is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """A tag begins."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """A tag without content."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        """A tag ends: the last that began."""
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        """Text between tags."""
        self.words.append(data)

    @property
    def text(self):
        """All text, white space as one space."""
        return " ".join("".join(self.words).split())


def gated(report):
    """The report with the lines of the default gate."""
    return replace(report, gate=judge(Gate.read(), report, date(2026, 3, 1)))


def nasty():
    """A report whose every text is an attempt to break out of the page."""
    made = sample.report(title=NASTY)
    one = sample.finding(
        "unmixing",
        Verdict.SUCCEEDS,
        NASTY,
        measures=(Measure(Metric("id", NASTY), 0.5, 0.4, 0.6, NASTY, of=NASTY),),
        curves=(Curve(NASTY, NASTY, NASTY, (Series(NASTY, (0.0, 1.0), (0.0, 1.0)),)),),
        pictures=(Picture(NASTY, (NASTY,), ((sample.picture().rows[0][0],),)),),
        controls=(Control(NASTY, True, True), Control(NASTY, False, False)),
    )
    notes = tuple(AttackNote(note.name, NASTY, NASTY) for note in sample.NOTES)
    server = made.examinations[0]
    adversary = replace(server.adversary, title=NASTY, who=NASTY, knows=(NASTY,), residual_risk=NASTY)
    made = sample.with_findings(replace(made, attacks=notes), one)
    server = replace(made.examinations[0], adversary=adversary, sees=(NASTY,), lacks=(NASTY,))
    signed = Provenance(NASTY, NASTY, NASTY, NASTY, NASTY, {NASTY: NASTY}, has_doubts=True)
    subject = replace(made.subject, protection=NASTY, transcripts=((NASTY, NASTY),), settings={NASTY: NASTY})
    subject = replace(subject, provenance=(signed,))
    promise = replace(made.promise, sentence=NASTY, recomputed_by=NASTY, unit=NASTY, adjacency=NASTY)
    return gated(
        replace(
            made,
            subject=subject,
            promise=promise,
            examinations=(server,),
            power=(NASTY,),
            limits=(NASTY,),
            environment={NASTY: NASTY},
            levels=(ProtectionLevel(NASTY, (one,)),),
        )
    )


REPORTS = {
    "without a gate": sample.report(),
    "passes": gated(sample.report()),
    "fails": gated(sample.with_findings(sample.exact(sample.report(), 64), *sample.exposed_findings())),
    "hostile": nasty(),
    "empty": sample.report(examinations=(), levels=(), power=(), limits=()),
}
each = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)


@each
def test_page_asks_for_nothing(report):
    """No script, frame, form or link out, no handler, no style attribute; images are data, links go into the page."""
    page = Page(as_html(report))
    targets = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert page.open == []
    for tag, attributes in page.tags:
        assert tag not in {"script", "iframe", "form", "link", "object", "embed", "base", "use", "image"}
        assert not any(name.startswith("on") or name in {"style", "srcset", "xlink:href"} for name in attributes)
        assert attributes.get("src", "data:image/png;base64,").startswith("data:image/png;base64,")
        if tag == "a":
            assert attributes["href"].removeprefix("#") in targets


@each
def test_policy_allows_its_own_style_and_images_alone(report):
    """Everything is forbidden but pictures in the page and the one style, whose digest is right."""
    text = as_html(report)
    (policy,) = (
        attributes["content"]
        for tag, attributes in Page(text).tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{digest}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_text_stays_text():
    """Names show as they are, controls and marks that turn the writing spelt out."""
    text = as_html(nasty())
    assert "<script" not in text
    assert "<img src=http" not in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "<script>alert(1)</script>\"'><img src=http://evil.example/x>\\u001b[31m\\u202e&amp;" in Page(text).text


def test_verdict_stands_first():
    """The outcome comes before the promise, this before the views, the attacks, and what could not be found."""
    text = Page(as_html(REPORTS["fails"])).text
    order = (
        "✕ Broken: the gate fails",
        "What this means, and what to do",
        "Appendix: what is promised",
        "“Control” shows",
        "Who attacks",
        "Attacks, one by one",
        "The same attacks at every level of protection",
        "What this audit could have detected",
        "The gate, line by line",
        "How this report was made",
    )
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_page_says_what_the_report_says():
    """Promise, ε three times, powers, limits, digests, papers and every finding's sentence are there."""
    report = REPORTS["passes"]
    text = Page(as_html(report)).text
    said = [report.promise.sentence, report.promise.measured.power, "0.9998", "0.87", *report.power, *report.limits]
    said += [finding.sentence for finding in report.findings]
    said += [note.paper for note in report.attacks if any(note.name == f.attack for f in report.findings)]
    said += ["A lower bound above the claim disproves it.", "3f" * 32, report.gate.gate_sha256]
    said += ["◆ Allowed by the gate: the gate passes"]
    assert [words for words in said if words not in text] == []


@pytest.mark.parametrize(
    ("change", "verdict"),
    [({}, "does not disprove it"), ({"is_enough": False}, "? too little to tell"), ({"lower": 2.0}, "✕ disproves it")],
)
def test_a_measurement_that_could_not_tell_has_its_own_verdict(change, verdict):
    """A lower bound of ε that too few runs give is not shown like one that does not disprove the claim."""
    made = sample.report()
    measured = replace(made.promise.measured, **change)
    text = Page(as_html(replace(made, promise=replace(made.promise, measured=measured)))).text
    verdicts = ("does not disprove it", "? too little to tell", "✕ disproves it")
    assert [each for each in verdicts if each in text] == [verdict]


def test_failures_are_named_in_the_banner():
    """What did not pass is told at the top with its figures."""
    text = Page(as_html(REPORTS["fails"])).text
    page = text[: text.index("Appendix: what is promised")]
    assert "64 records of 512 dimensions" in page
    assert "Unmixing of second moments" in page
    assert "Put in many more records." in page


def test_pictures_of_all_levels_stand_side_by_side():
    """Each level's pictures are in the section on levels, under the level's name."""
    text = as_html(sample.report())
    section = text[text.index('id="levels"') : text.index('id="power"')]
    images = sum(len(row) for row in sample.picture().rows)
    assert section.count("<img") == images * len(sample.report().levels)


def test_page_is_the_same_twice():
    """Equal reports give equal pages."""
    assert as_html(REPORTS["passes"]) == as_html(gated(sample.report()))


def test_control_without_protection_looks_like_no_verdict():
    """What it finds is grey, in words of its own, in every table; green and red are for the session alone."""
    page = as_html(gated(sample.with_control(sample.report(levels=()))))
    assert '<a class="badge none" href="#a1-2">control: broken, as it must be</a>' in page
    assert '<a class="badge none" href="#a1-3">control: withstood even unprotected</a>' in page
    assert '<td>No protection</td><td><span class="badge none">– control</span></td>' in page
    assert not re.findall(r'<a class="badge (?:good|bad)" href="#a1-', page)


def test_nothing_promised_leaves_no_gap():
    """Without epsilon every row of the promise has a verdict, and no comma dangles."""
    text = Page(as_html(gated(sample.exact(sample.report())))).text
    assert "by the plan: no noise– nothing promised" in text
    assert text.count("– nothing to check") == 2
    assert ", –" not in text


def test_unknown_number_of_records_is_said():
    """Where nobody knows how many records there are the page gives no figure."""
    assert "unknown number of records of 512 dimensions" in Page(as_html(sample.exact(sample.report(), None))).text


def test_numbers_stand_in_their_units_beside_what_would_be_good():
    """Shares are per cent, and each finding is summed up in words."""
    text = Page(as_html(REPORTS["passes"])).text
    assert "In numbers: re-identified, class mean of sum of all: 1 % (0 to 5 %); good: no more than 1 %" in text


def test_correction_is_said_where_the_intervals_are():
    """The reader of a table learns for how many limits its intervals are corrected."""
    report = REPORTS["passes"]
    attacks = Page(as_html(report)).text.split("Attacks, one by one")[1]
    assert report.comparisons.sentence() in attacks


def test_refusals_are_a_list_of_their_own():
    """Each way to cheat is told with whether it was refused, not as a 1 or a 0."""
    measures = (
        REFUSED_WAYS.exact(0.5),
        PROBE.exact(1.0, of="swapped keys: other keys. client-1: refused"),
        PROBE.exact(0.0, of="replay: an old session. client-2 went along"),
    )
    found = sample.finding("malicious_server", Verdict.SUCCEEDS, measures=measures)
    text = Page(as_html(sample.with_findings(sample.report(), found))).text
    assert "In numbers: ways to cheat that were refused: 50 %; good: 100 %" in text
    assert "client-1: refused✓ refused" in text
    assert "client-2 went along✕ not refused" in text


def test_levels_of_an_inversion_are_the_rows_of_one_table():
    """The same measures from several levels of knowledge stand side by side, with the level named once."""
    names = ("raw feature", "N, A and B of its client")
    measures = tuple(
        sample.measure(what, value, value, value, of=name, baseline=0.1)
        for name in names
        for what, value in ((REIDENTIFIED, 0.5), (PSNR, 9.0))
    )
    found = sample.finding("feature_inversion", Verdict.FAILS, measures=measures)
    page = as_html(sample.with_findings(sample.report(levels=()), found))
    assert page.count('<th scope="row">N, A and B of its client</th>') == 1
    assert "re-identified<br><small>good: no more than 10 %, by the class alone</small>" in page
    assert "<td>9 dB<br><small>9 to 9 dB</small></td>" in page
