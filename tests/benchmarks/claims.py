"""Write the table of the papers' claims in methods/README.md from methods/claims.toml and methods/contrasts.toml.

`python -m tests.benchmarks.claims` writes it between its marks there. `tests/reproduction/test_claims.py` holds the
quotes and figures against the papers' texts. The verdict on a system's primary claim follows from its contrast.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from tests.architecture.source import ROOT
from tests.benchmarks import leaving
from tests.benchmarks.contrasts import adjusted, read_contrasts, verdicts

README, SOURCE = leaving.README, ROOT / "methods" / "claims.toml"
BEGIN = "<!-- made by: python -m tests.benchmarks.claims -->\n"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, verbatim, and what was shown of it here; the fields are those of methods/claims.toml.

    `shown` of a primary claim follows the verdict, which is computed; of the others it is all that is said.
    """

    system: str
    paper: str
    section: str
    quotes: tuple[str, ...]
    contrast: str
    shown: str
    differs: str
    chapter: str = ""
    table: str = ""
    rows: tuple[str, ...] = ()
    figures: str = ""
    primary: bool = False

    @property
    def place(self) -> str:
        """The place in the paper: chapter, section and table, as far as the text has them."""
        return ", ".join(filter(None, (self.chapter.lower(), self.section, self.table.partition(":")[0])))


def read_claims() -> tuple[Claim, ...]:
    """Read all claims. Raises TypeError for an unknown or missing field."""
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8"))["claim"]
    return tuple(Claim(**{key: tuple(v) if isinstance(v, list) else v for key, v in each.items()}) for each in found)


def shown_of(claim: Claim) -> str:
    """Return what was shown of a claim: of a primary one the verdict and its two intervals come first."""
    found = read_contrasts()
    if not claim.primary or claim.system not in found:
        return claim.shown
    p_value = adjusted(found)[claim.system]
    shown = "< 0.001" if p_value < 0.001 else f"= {p_value:.2g}"
    verdict = f"**{verdicts(found)[claim.system]}** (p {shown} by Holm): {found[claim.system].says()}"
    return "; ".join(filter(None, (verdict, claim.shown)))


def row_of(claim: Claim) -> str:
    """Return a row of the table, in Markdown."""
    said = " … ".join(f"“{quote}”" for quote in claim.quotes)
    cells = claim.system, f"{said} ({claim.place})", claim.figures, claim.contrast, shown_of(claim), claim.differs
    return "| " + " | ".join(cells) + " |"


def table() -> str:
    """Return all rows, in Markdown."""
    heads = "system", "the paper's claim", "its figures", "the contrast here", "shown", "what differs"
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *map(row_of, read_claims())]) + "\n"


def main() -> None:
    """Write the table into methods/README.md."""
    README.write_text(leaving.placed(README.read_text(encoding="utf-8"), table(), BEGIN), encoding="utf-8")


if __name__ == "__main__":
    main()
