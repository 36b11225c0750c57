"""Options that several commands share, each with the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from secagg.agreement.plan import NoiseFrom
from secagg.data.named import NAMES
from secagg.data.sources import add_format, kinds_of_files
from secagg.errors import BadInput
from secagg.networks import admit
from secagg.protection import PROTECTIONS, Protection
from secagg.system import plugins
from secagg.system.engines import ENGINES

BY_RULE = "auto"


def read_rounds(text: str) -> int | None:
    """The number that a --refine option gives, None for auto. Raises BadInput."""
    if text != BY_RULE and not text.isdecimal():
        raise BadInput(f"--refine cannot be {text!r}", remedy=f"give a whole number, or {BY_RULE}")
    return None if text == BY_RULE else int(text)


def _names_where(holds: Callable[[Protection], bool]) -> str:
    return ", ".join(name for name, each in PROTECTIONS.items() if holds(each))


def words_of(text: str) -> str:
    """What an option says: the words of the file that it names, or, with an "=" in it, its own. Raises BadInput."""
    if "=" in text or not text.strip():
        return text
    try:
        return " ".join(Path(text).read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{text!r} is no file of settings", remedy="give NAME=VALUE …, or such a file") from None


def _admit(file: Path | None) -> Path | None:
    """Let a program be parsed from this file where a plan names its digest. Raises BadInput."""
    if file is not None:
        admit(file)
    return file


def _take_code(files: list[Path] | None) -> list[Path] | None:
    """Let a plan's name find its code in these files; none of it runs before the plan, and a policy, are read."""
    for file in files or ():
        plugins.admit(file)
    return files


def _take_formats(specs: list[str] | None) -> list[str] | None:
    """Let these formats be read, from now on: their code runs, which is said first. Raises BadInput."""
    for spec in specs or ():
        if (file := plugins.file_in(spec)) is not None:
            typer.echo(plugins.warning_of(file, plugins.admit(file)), err=True)
        add_format(spec)
    return specs


PlanOption = Annotated[Path, typer.Option("--plan", help="The plan's file.")]
MethodOption = Annotated[str, typer.Option(help="The method; FILE.py:NAME for one of your own, whose code runs.")]
ParametersOption = Annotated[
    str,
    typer.Option(
        help='Of the method, "slots=16 keep=0.9" say, or a file of them; secagg methods lists them.',
        metavar="NAME=VALUE …",
        callback=words_of,
    ),
]
ProtectionOption = Annotated[str, typer.Option(help=f"How vectors are hidden: {', '.join(PROTECTIONS)}.")]
AggregatorsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--aggregator",
        help=f"NAME=HOST:PORT of an aggregator; one for each ({_names_where(lambda each: each.handover is not None)}).",
    ),
]
StayOption = Annotated[
    bool, typer.Option("--stay", help=f"Wait for the outcome ({_names_where(lambda each: each.speaks_once)}).")
]
NoiseOption = Annotated[
    NoiseFrom,
    typer.Option(
        help="Who adds it; aggregator: each of several adds all "
        f"({_names_where(lambda each: each.fewest_seconds > 1)})."
    ),
]
CovarianceOption = Annotated[str, typer.Option(help="within (default) or total (the paper's).")]
RidgeOption = Annotated[float | None, typer.Option(help="Multiplies tr(covariance)/d.")]
RefineOption = Annotated[
    str,
    typer.Option(
        metavar="K|auto",
        help="Rounds of private softmax gradients after the first sum; auto: where they pay, by the plan's fields.",
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Sums of a method that trains, fedavg say: short for --parameters rounds=N. What refines: --refine."
    ),
]
EveryOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="K", help="In a plan of several sums: measure accuracy after every K; default: about 20 times."
    ),
]
AtLeastOption = Annotated[
    int, typer.Option(min=0, help="Records that all members have together at the least, as you state; 0: not stated.")
]
ClassGateOption = Annotated[
    int, typer.Option(min=0, help="Leave out classes that fewer honest clients than this hold; 0: no census, no gate.")
]
EpsilonOption = Annotated[str, typer.Option(help="What all sums of the plan together may cost; inf: no noise.")]
ColludersOption = Annotated[
    int | None, typer.Option(min=0, help="Clients that may side with the server; default 1, of two clients or one 0.")
]
CohortOption = Annotated[
    int,
    typer.Option(min=0, metavar="K", help="Members drawn for each round of a method that trains; 0: all of them."),
]
DeltaOption = Annotated[float | None, typer.Option(help="Needed when epsilon is finite, 1e-5 say.")]
SharesOption = Annotated[
    str | None,
    typer.Option(help="Shares of μ² of the first sum's blocks: moments, equal, or BLOCK=SHARE,…."),
]
BackboneOption = Annotated[
    str | None, typer.Option(help="features, pixels, random-features:M or a .pt2 file; several joined by +.")
]
BackboneFileOption = Annotated[
    str | None, typer.Option("--backbone", help="Where this member keeps the backbone's file.")
]
_OF_MODEL: dict[str, Any] = {
    "metavar": "FILE",
    "help": "The exported program that the plan trains, if it trains one: code.",
}
ModelFileOption = Annotated[Path | None, typer.Option("--model", **_OF_MODEL)]
ModelOption = Annotated[Path | None, typer.Option("--model", callback=_admit, **_OF_MODEL)]
"""For commands that no policy decides for."""
PluginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Code that the plan's method is in, where it is none of ours; several allowed.",
        callback=_take_code,
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        metavar="FILE.py:NAME",
        help="A data format of your own, whose code runs; several allowed.",
        callback=_take_formats,
    ),
]
ExpandOption = Annotated[int, typer.Option(min=0, help="Random ReLU features after the backbone; 0 is off.")]
CentreOption = Annotated[float, typer.Option(help="Public constant subtracted from every feature.")]
RadiusOption = Annotated[float | None, typer.Option(help="Public length that no feature vector exceeds.")]
LevelsOption = Annotated[int | None, typer.Option(min=1, help="Grid steps in a record's length; default by rule.")]
LeaveOutOption = Annotated[
    str | None,
    typer.Option(help="Records of this value are in no client and are the test records.", metavar="COLUMN=VALUE"),
]
ValidateOption = Annotated[
    float,
    typer.Option(min=0, max=0.9, help="Measure on this fraction of the training records instead: to choose constants."),
]
DatasetOption = Annotated[
    str, typer.Option(help=f"{', '.join(NAMES)}, {kinds_of_files()}, or a folder of tables or of images.")
]
ImageSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Folder of images: scale and cut each to a square of this side.")
]
LabelOption = Annotated[str | None, typer.Option(help="Label column of a table.")]
TestOption = Annotated[
    str | None, typer.Option(help="Test records of your own, of the same kind; none of the data set is held out.")
]
SchemaOption = Annotated[str | None, typer.Option(help="Schema of a table: a file or a packaged name.")]
ResultsOption = Annotated[
    Path, typer.Option("--out", help="Folder of the results; runs that are in it are not repeated.")
]
ComparisonPageOption = Annotated[
    Path | None, typer.Option("--html", help="Write tables, figure and notes as one page.", metavar="FILE")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Every combination runs with the seeds 0 to SEEDS - 1.")]
ReferenceOption = Annotated[
    bool, typer.Option("--reference/--no-reference", help="Say what the same gives without noise.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")]
EngineOption = Annotated[str, typer.Option(help=f"Where they run: {', '.join(ENGINES)} (a cluster; the extra scale).")]
RayOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of a Ray cluster, auto or HOST:PORT; default: one on this machine."),
]
ShardOption = Annotated[
    str | None, typer.Option(metavar="I/N", help="Make only every N-th run, from the I-th; writes runs and no table.")
]
CollectOption = Annotated[
    bool, typer.Option("--collect", help="Make no run: write the tables of the runs that shards have made.")
]
TrustedPlansOption = Annotated[
    list[Path] | None,
    typer.Option("--plan", help="The plan that was agreed on, which names its roster; default: those run from here."),
]
TrustedRostersOption = Annotated[
    list[Path] | None, typer.Option("--roster", help="The consortium's roster.json, to compare with the transcript's.")
]
