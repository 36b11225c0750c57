"""Pages in a headless Chromium: what is measured there, how they print, and what axe-core finds.

Pages forbid scripts; those here go into a copy without that policy.
"""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = os.environ.get("SECAGG_AXE")
"""The folder of the npm package axe-core."""
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
WITHIN = "Promise.resolve([document.documentElement.scrollWidth, innerWidth])"
VIOLATIONS = (
    "axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(each => "
    "[each.impact, each.id, each.nodes.map(node => node.html.slice(0, 200))]))"
)
HIDE_APPENDIX = "<style>.appendix { display: none !important; }</style>"


def _chromium(page: Path, width: int, *words: str) -> str:
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},2000")
    folder = f"--user-data-dir={page.parent / 'browser'}"
    done = subprocess.run(
        [CHROMIUM or "chromium", *options, folder, "--virtual-time-budget=60000", *words, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    return done.stdout


def _evaluate(page: Path, width: int, expression: str, library: str = "") -> object:
    """The JSON value of a promise in the page, at a width in pixels."""
    tell = "const told = document.createElement('pre'); told.id = 'told'; told.textContent = JSON.stringify(value)"
    when = f"{expression}.then(value => {{ {tell}; document.body.append(told) }})"
    script = f"{library}\n;addEventListener('load', () => {when})"
    text = POLICY.sub("", page.read_text(encoding="utf-8"))
    copy = page.with_suffix(".tried.html")
    copy.write_text(text.replace("</head>", f"<script>{script}</script></head>", 1), encoding="utf-8")
    found = re.search(r'<pre id="told">(.*?)</pre>', _chromium(copy, width, "--dump-dom"), re.DOTALL)
    assert found is not None
    return json.loads(unescape(found[1]))


def overflow(page: Path, width: int) -> int:
    """By how many pixels a page is wider than the window."""
    wide, window = _evaluate(page, width, WITHIN)
    assert window == width
    return int(wide) - int(window)


def violations(page: Path, width: int) -> list[str]:
    """What axe-core calls serious or critical."""
    library = (Path(AXE or "") / "axe.min.js").read_text(encoding="utf-8")
    found = _evaluate(page, width, VIOLATIONS, library.replace("</script", "<\\/script"))
    return [f"{name}: {nodes}" for impact, name, nodes in found if impact in ("serious", "critical")]


def printed_pages(page: Path, *, is_first: bool = False) -> int:
    """On how many sheets of A4 a page is printed; `is_first`: what stands before its appendix alone."""
    copy, sheets = page.with_suffix(".print.html"), page.with_suffix(".pdf")
    text = POLICY.sub("", page.read_text(encoding="utf-8"))
    copy.write_text(text.replace("</head>", f"{HIDE_APPENDIX if is_first else ''}</head>", 1), encoding="utf-8")
    _chromium(copy, 1280, "--no-pdf-header-footer", f"--print-to-pdf={sheets}")
    return len(re.findall(rb"/Type\s*/Page\b", sheets.read_bytes()))
