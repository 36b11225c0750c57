"""Command-line options that several commands share, each with the same help text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

from secagg.cli.console import give_options, read_epsilon, speaking
from secagg.data import Dataset
from secagg.data.sources import NAMES, add_format, kinds_of_files
from secagg.errors import BadInput
from secagg.plan_facts.planning import BY_RULE, Choices, kind_in
from secagg.protection import PROTECTIONS, Protection
from secagg.system import plugins
from secagg.system.engines import ENGINES, PROCESSES
from secagg.wire import Choice

T = TypeVar("T")


def read_rounds(text: object) -> int | None:
    """Parse the option --refine: a number of rounds, or None for auto. Raises BadInput."""
    word = str(text)
    if word != BY_RULE and not word.isdecimal():
        raise BadInput(f"--refine cannot be {word!r}", remedy=f"give a whole number, or {BY_RULE}")
    return None if word == BY_RULE else int(word)


def _names_where(holds: Callable[[Protection], bool]) -> str:
    return ", ".join(name for name, each in PROTECTIONS.items() if holds(each))


def read_words(text: str) -> str:
    """Return NAME=VALUE pairs: the text or, if it has no "=", the content of the file it names. Raises BadInput."""
    if "=" in text or not text.strip():
        return text
    try:
        return " ".join(Path(text).read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"{text!r} is no file of settings", remedy="give NAME=VALUE …, or such a file") from None


def _admit(file: Path | None) -> Path | None:
    """Allow a program in this file to be parsed where a plan names its digest. Raises BadInput."""
    if file is not None:
        from secagg.networks.exported import admit

        admit(file)
    return file


def _take_code(files: list[Path] | None) -> list[Path] | None:
    """Let a plan's method be looked up in these files of code; none runs before the plan, and a policy, are read."""
    for file in files or ():
        plugins.admit(file)
    return files


def _take_formats(specs: list[str] | None) -> list[str] | None:
    """Register these data formats, after a warning that their code runs. Raises BadInput."""
    for spec in specs or ():
        if (file := plugins.file_in(spec)) is not None:
            typer.echo(plugins.warning_of(file, plugins.admit(file)), err=True)
        add_format(spec)
    return specs


StateOption = Annotated[Path, typer.Option("--state", help="This party's folder: sessions, transcripts, ledger.")]
TlsOption = Annotated[Path, typer.Option("--tls", help="This party's keys and certificates (secagg pki).")]
WaitOption = Annotated[float, typer.Option(min=0, help="Seconds to wait for the server to be there.")]
PlanOption = Annotated[Path, typer.Option("--plan", help="The plan's file.")]
_READ: dict[str, Callable[[str], Any]] = {"epsilon": read_epsilon, "refine": read_rounds}
_SPELLED = {"epsilon": "inf", "refine": BY_RULE}
"""Default texts of options that are spelled differently from their Python values."""


def option_of(settings: type, name: str) -> Any:
    """Return the typer option of a settings field, with the field's help, bounds, metavar and type."""
    form, (kind, _) = settings.__dataclass_fields__[name].metadata, kind_in(settings, name)  # type: ignore[attr-defined]
    words = {"metavar": form.get("metavar"), "parser": _READ.get(name)}
    if issubclass(kind, Choice):
        words = {"metavar": f"<{'|'.join(kind)}>", "parser": partial(kind.read, name=name)}
    callback = read_words if name == "parameters" else None
    return typer.Option(help=form["help"], min=form.get("minimum"), max=form.get("maximum"), callback=callback, **words)


def with_settings(*without: str, **usual: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces each settings dataclass in a command's parameters by an option for every field.

    `without`: fields that get no option, and keep their defaults. `usual`: defaults other than the fields'.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        annotations: dict[str, Any] = {each.name: each.annotation for each in own}
        groups: dict[str, Any] = {name: kind for name, kind in annotations.items() if is_dataclass(kind)}

        @wraps(command)
        def run(**given: Any) -> None:
            made = {name: gather(kind, given) for name, kind in groups.items()}
            taken = {each.name for kind in groups.values() for each in fields(kind)}
            command(**made, **{name: value for name, value in given.items() if name not in taken})

        offered = (_options(each.annotation, without, usual) if each.name in groups else [each] for each in own)
        give_options(run, chain.from_iterable(offered))
        return speaking(run)

    return give


def gather(settings: type[T], given: Mapping[str, Any]) -> T:
    """Build settings from the command's options of the same names; other fields keep defaults. Raises BadInput."""
    return settings(**{each.name: given[each.name] for each in fields(settings) if each.name in given})  # type: ignore[arg-type]


def _options(settings: type, without: Collection[str], usual: Mapping[str, object]) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(settings, include_extras=True)
    for each in fields(settings):
        if each.name in without:
            continue
        annotation = hints[each.name]
        if get_origin(annotation) is not Annotated:
            kind, optional = kind_in(settings, each.name)
            annotation = Annotated[kind | None if optional else kind, option_of(settings, each.name)]
        own = inspect.Parameter.empty if each.default is MISSING else each.default
        default = usual.get(each.name, _SPELLED.get(each.name, own))
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


MethodOption = Annotated[str, option_of(Choices, "method")]
ParametersOption = Annotated[str, option_of(Choices, "parameters")]
ProtectionOption = Annotated[str, option_of(Choices, "protection")]
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
RefineOption = Annotated[int | None, option_of(Choices, "refine")]
CohortOption = Annotated[int, option_of(Choices, "cohort")]
BackboneFileOption = Annotated[
    str | None, typer.Option("--backbone", help="Where this member keeps the backbone's file.")
]
_OF_MODEL: dict[str, Any] = {
    "metavar": "FILE",
    "help": "The exported program that the plan trains, if it trains one: code.",
}
ModelFileOption = Annotated[Path | None, typer.Option("--model", **_OF_MODEL)]
ModelOption = Annotated[Path | None, typer.Option("--model", callback=_admit, **_OF_MODEL)]
"""The option --model of commands without a policy: the file is allowed to be parsed as soon as it is named."""
PluginOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        help="Code of the plan's method, where secagg does not bring it; several allowed.",
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
DatasetOption = Annotated[
    str, typer.Option(help=f"{', '.join(NAMES)}, {kinds_of_files()}, or a folder of tables or of images.")
]


@dataclass(frozen=True)
class DataSource:
    """The options that name the data of a simulation."""

    dataset: DatasetOption = "digits"
    label: Annotated[str | None, typer.Option(help="Label column of a table.")] = None
    schema: Annotated[str | None, typer.Option(help="Schema of a table: a file or a packaged name.")] = None
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Folder of images: scale and cut each to a square of this side.")
    ] = None
    test: Annotated[
        str | None,
        typer.Option(help="Test records of your own, of the same kind; then no record of the data set is held out."),
    ] = None
    formats: FormatOption = None

    def open(self, say: Callable[[str], None], epsilon: float) -> Dataset:
        """Read the simulation's data; bad records are refused if every ε is infinite, else marked. Raises BadInput.

        `epsilon` is the runs' smallest ε.
        """
        from secagg.experiments.input_data import open_simulated  # which a client's command does not load

        return open_simulated(say, self.dataset, epsilon, self.label, self.schema, self.image_size, self.test)


ComparisonPageOption = Annotated[
    Path | None, typer.Option("--html", help="Write tables, figure and notes as one page.", metavar="FILE")
]
SeedsOption = Annotated[int, typer.Option(min=1, help="Every combination runs with the seeds 0 to SEEDS - 1.")]


@dataclass(frozen=True)
class Runs:
    """The options of a sweep: its results folder, the processes or cluster that run it, and which runs to make."""

    out: Annotated[Path, typer.Option("--out", help="Folder of the results; runs that are in it are not repeated.")]
    workers: Annotated[int | None, typer.Option(min=1, help="Processes that run at a time; default: one per core.")] = (
        None
    )
    engine: Annotated[str, typer.Option(help=f"Where they run: {', '.join(ENGINES)} (a cluster; the extra scale).")] = (
        PROCESSES
    )
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of a Ray cluster, auto or HOST:PORT; default: one on this machine."),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Make only every N-th run, from the I-th; writes runs and no table."),
    ] = None
    collect: Annotated[
        bool, typer.Option("--collect", help="Make no run: write the tables of the runs that shards have made.")
    ] = False

    @property
    def how(self) -> dict[str, Any]:
        """All options except `out`, as keyword arguments of `experiments.sweep`."""
        return {name: value for name, value in asdict(self).items() if name != "out"}


TrustedPlansOption = Annotated[
    list[Path] | None,
    typer.Option("--plan", help="The plan that was agreed on, which names its roster; several allowed."),
]
TrustedRostersOption = Annotated[
    list[Path] | None, typer.Option("--roster", help="The consortium's roster.json, to compare with the transcript's.")
]
OwnKeysOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--tls", help="Your own keys: the plans count that their party noted in its state folder; several allowed."
    ),
]
