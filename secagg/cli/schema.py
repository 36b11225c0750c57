"""`secagg schema`: draft a schema (columns, ranges, values) of a table, and check a table against a schema."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secagg.agreement.schema import Schema, load_schema
from secagg.cli.console import Speaker, refuse_unwritable, two_columns
from secagg.cli.options import FormatOption
from secagg.data import open_dataset
from secagg.data.derivation import draft_schema
from secagg.data.profile import profile_of
from secagg.data.sources import line_breaks_of, read_public_table, rewrite_line_breaks

OWN = "For you alone: looked at here, never sent"
"""Title of the report on a member's own records."""
WithoutBreaksOption = Annotated[
    Path | None,
    typer.Option(
        "--without-line-breaks", metavar="NEW.csv", help="Write the table with a space for each line break in a cell."
    ),
]
"""The option to rewrite a table with line breaks in cells as one with a line for each record."""
app = typer.Typer(help="Say what the columns of a table are, in public; look at one's own.", no_args_is_help=True)


@app.command("new")
def new(
    speaker: Speaker,
    like: Annotated[Path, typer.Option(help="A PUBLIC table with the same columns: its values go into the schema.")],
    label: Annotated[str, typer.Option(help="The column that is to be predicted.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the schema, a TOML file.")],
    positive: Annotated[
        str, typer.Option(help="Of two classes the one to be recognised: sensitivity and specificity are of it.")
    ] = "",
    formats: FormatOption = None,
    without_line_breaks: WithoutBreaksOption = None,
) -> None:
    """Draft a schema from a public table, for you to correct: kinds of columns, ranges, values, missing values.

    Members agree to the schema, and it travels in the plan, so nothing of it may come from anybody's private records:
    at a finite epsilon no range and no value that was read off them would be covered by it.
    """
    refuse_unwritable(out, new=True)
    speaker.say(f"WARNING: ranges and values of {like} go into the schema, which all members see: is it public?")
    like = _mended(speaker, like, None, without_line_breaks)
    draft = draft_schema(read_public_table(like), label, positive)
    out.write_text(draft.to_toml(), encoding="utf-8")
    rows = []
    for column in draft.schema.columns:
        rule = draft.schema.rule_of(column)
        missing = f", missing values: {rule}" if rule != draft.schema.missing_rule else ""
        rows.append((column.name, f"{column.kind}{missing}"))
    rows += [(name, f"not used: {reason}") for name, reason in draft.unused]
    if len(draft.schema.classes) == 2:
        told = f"{draft.schema.positive or 'FILL IN'}: of {' and '.join(draft.schema.classes)} the one to be recognised"
        rows.insert(0, ("positive class", told))
    speaker.result({"schema": draft.schema.to_dict()}, two_columns(f"Draft of {out}: read every line", rows))


@app.command("check")
def check(
    speaker: Speaker,
    schema: Annotated[str, typer.Argument(metavar="SCHEMA", help="A schema file, or a packaged name.")],
    data: Annotated[str, typer.Argument(help="Your table, or a folder of tables.")],
    formats: FormatOption = None,
    without_line_breaks: WithoutBreaksOption = None,
) -> None:
    """Hold your table against a schema: what each column holds, what is doubtful, and the first cell that is refused.

    Minima, medians and maxima are of your records: they are shown to you and sent nowhere.
    """
    known = load_schema(schema)
    data = str(_mended(speaker, Path(data), known, without_line_breaks))
    found = open_dataset(data, schema=known, split=False, tolerant=True)
    profile = profile_of(found.train, found.classes, known, line_breaks_of(data, known))
    speaker.result(profile.to_json(), two_columns(OWN, profile.rows()))
    if profile.bad:
        open_dataset(data, schema=known, split=False)  # raises BadRecord for the first record at fault


def _mended(speaker: Speaker, table: Path, schema: Schema | None, out: Path | None) -> Path:
    """Return the table, or its copy `out` without line breaks in cells. Raises BadInput unless it is delimited text."""
    if out is None:
        return table
    refuse_unwritable(out, new=True)
    count = rewrite_line_breaks(table, out, schema)
    speaker.say(f"{out} is {table} with spaces for line breaks in quoted cells; records that had one: {count}")
    return out
