"""Output of the commands on stdout and stderr: results, progress, logs, errors.

Results go to stdout, everything else to stderr. An error is one line, "secagg: …", with its remedy; no traceback
unless --debug. `--json -` prints only JSON to stdout. `secagg --help` lists the exit codes. Names come from others:
whatever says them here says them `escaped`.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from secagg.cli.log_lines import JsonLines
from secagg.errors import BadInput, NotNow
from secagg.system.printable import escaped

if TYPE_CHECKING:  # commands that only write certificates, say, start in half the time without
    from secagg.heads import Evaluation

MOST_EQUAL = 5
WINDOW_SECONDS = 60.0


class CalmHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """A log handler that drops repeats: it writes the first few of a minute's equal records, and counts the others."""

    def __init__(self, stream: object = None) -> None:
        super().__init__(stream)
        self._seen: dict[str, logging.LogRecord] = {}
        self._counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record, unless MOST_EQUAL of the same text came before it within WINDOW_SECONDS."""
        if record.name.partition(".")[0] == "grpc":
            if "ExecuteBatchError" in record.getMessage():
                return  # a caller hung up
            record.exc_info = record.exc_text = None
        self._count_up(record.created - WINDOW_SECONDS)
        text = record.getMessage()
        self._seen.setdefault(text, record)
        self._counts[text] += 1
        if self._counts[text] <= MOST_EQUAL:
            super().emit(record)

    def close(self) -> None:
        """Write how many records were left out, and close the handler."""
        self._count_up(float("inf"))
        super().close()

    def _count_up(self, before: float) -> None:
        """Write how many records were left out, for each text whose first record is older than the time `before`."""
        while self._seen and (oldest := next(iter(self._seen.items())))[1].created < before:
            text, first = oldest
            del self._seen[text]
            if (more := self._counts.pop(text) - MOST_EQUAL) > 0:
                said = f"… and {more} more like it: {text}"
                super().emit(logging.LogRecord(first.name, first.levelno, "", 0, said, (), None))


JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - prints only JSON.")
]
LogFormatOption = Annotated[
    str, typer.Option("--log-format", metavar="<text|json>", help="What stderr holds: text, or a JSON object a line.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")]


PAUSE = 10.0
"""Seconds between two lines on the state of the same part of the work, where stderr is not a terminal."""


class StepProgress(Protocol):
    """A progress callback; takes the current step's name, items done, all items (0: unknown) and a status text."""

    def __call__(self, text: str, done: int, total: int, state: str = "", /) -> None:
        """Report the progress."""


class LogLines(logging.Filter):
    """A log filter that escapes line breaks in messages, which may quote another party; tracebacks keep theirs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape the record's message and traceback; return True for every record."""
        record.msg, record.args = escaped(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = _lines(logging.Formatter().formatException(record.exc_info))
        return True


class Speaker:
    """The output of one command: results on stdout; messages, progress and log on stderr.

    `dated`: lines of its log begin with the time, as those of a party that waits for hours do. `log_format` is `text`,
    or `json`: then each line on stderr is a JSON object, with the fields of `context`. Raises BadInput for a `--json`
    file that cannot be written: better before the work than after it.
    """

    def __init__(
        self, *, quiet: bool, json_to: str | None = None, dated: bool = False, log_format: str = "text"
    ) -> None:
        if log_format not in ("text", "json"):
            raise BadInput(f"--log-format cannot be {log_format!r}", remedy="give text or json")
        if json_to not in (None, "-"):
            refuse_unwritable(Path(json_to))
        self._json_to = json_to
        self._quiet = quiet
        self._is_json = log_format == "json"
        self.context: dict[str, Any] = {}
        """Fields of every line of a log in JSON: the party and its plan, round and step."""
        plain = False if self._is_json else None
        self._stderr = Console(stderr=True, highlight=False, soft_wrap=True, force_terminal=plain)
        handler = CalmHandler(sys.stderr)
        handler.addFilter(LogLines())
        level = logging.ERROR if quiet else logging.INFO
        shown = self._stderr.is_terminal  # where a bar says how far a sweep is; in a file every run is a line
        logging.getLogger("secagg.experiments").setLevel(logging.WARNING if shown else logging.NOTSET)
        form = ("%(asctime)s " if dated else "") + "%(name)s: %(message)s"
        handler.setFormatter(
            JsonLines(self.context) if self._is_json else logging.Formatter(form, datefmt="%Y-%m-%dT%H:%M:%S%z")
        )
        logging.basicConfig(level=level, handlers=[handler])

    def say(self, text: str) -> None:
        """Print one plain line on stderr, or log it where the log is JSON."""
        if self._is_json:
            logging.getLogger("secagg").info("%s", text)
        elif not self._quiet:
            self._stderr.print(escaped(text), markup=False)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal while something long runs."""
        if self._quiet or not self._stderr.is_terminal:
            self.say(text)
            yield
        else:
            with self._stderr.status(escape(escaped(text))):
                yield

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[int, int], None]]:
        """Show a progress bar for work on counted records; yield a callback that takes (records done, all records)."""
        with self.steps() as told:
            told(text, 0, 0)
            yield partial(told, text)

    @contextmanager
    def steps(self) -> Iterator[StepProgress]:
        """Show a progress bar for work of several steps; yield a callback, a `StepProgress`.

        The first part may give 0 in all: nobody knows. In a file a part is a line, and how it goes is one now and then.
        """
        said: set[str] = set()
        last = time.monotonic()

        def say(text: str, _done: int, _total: int, state: str = "") -> None:
            nonlocal last
            if text not in said:
                said.add(text)
                self.say(text)
            elif state and time.monotonic() - last >= PAUSE:
                last = time.monotonic()
                self.say(state)

        if self._quiet or not self._stderr.is_terminal:
            yield say
            return
        with Progress(console=self._stderr, transient=True) as bar:
            task = bar.add_task("", total=None)

            def update(text: str, done: int, total: int, state: str = "") -> None:
                bar.update(task, description=escape(escaped(state or text)), completed=done, total=total or None)

            yield update

    def result(self, content: Mapping[str, Any], *lines: str) -> None:
        """Print the result as lines for people, and write it as JSON where --json asks for it."""
        self.text(json.dumps(content, indent=2, allow_nan=False) + "\n" if self._json_to is not None else "", *lines)

    def text(self, content: str, *lines: str) -> None:
        """Print `lines` for people, and write `content`, the result as JSON text, where --json asks for it."""
        if self._json_to == "-":
            sys.stdout.write(content)
            return
        for line in lines:
            print(_lines(line))
        if self._json_to is not None:
            try:
                Path(self._json_to).write_text(content, encoding="utf-8")
            except OSError as error:
                problem = f"cannot write {self._json_to} ({error.strerror})"
                raise BadInput(problem, remedy="name a file that you may write") from None
            self.say(f"wrote {self._json_to}")


PartySpeaker = Annotated[Speaker, "dated"]
"""The `Speaker` of a party that waits for hours: its log lines begin with the time."""


def speaking(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command with the options --json and --quiet, from which its parameter `speaker` is made."""
    own = dict(inspect.signature(command, eval_str=True).parameters)
    if "speaker" not in own:
        return command
    dated = own.pop("speaker").annotation is PartySpeaker

    def run(*, json_to: JsonOption = None, quiet: QuietOption = False, **given: Any) -> None:
        command(speaker=Speaker(quiet=quiet, json_to=json_to), **given)

    def run_dated(
        *, json_to: JsonOption = None, quiet: QuietOption = False, log_format: LogFormatOption = "text", **given: Any
    ) -> None:
        before = signal.signal(signal.SIGTERM, _stop)
        try:
            command(speaker=Speaker(quiet=quiet, json_to=json_to, dated=True, log_format=log_format), **given)
        finally:
            signal.signal(signal.SIGTERM, before)

    chosen: Callable[..., None] = run_dated if dated else run
    outputs = list(inspect.signature(chosen, eval_str=True).parameters.values())[:-1]
    chosen = wraps(command)(chosen)
    give_options(chosen, [*own.values(), *outputs])
    return chosen


def _stop(*_: object) -> None:
    """Handle SIGTERM before and after a session; while one runs, `run_until_stopped` does. Raises NotNow."""
    raise NotNow("stopped by SIGTERM")


def give_options(command: Callable[..., None], offered: Iterable[inspect.Parameter]) -> None:
    """Replace a command's parameters, as typer reads them, by the parameters `offered`, all made keyword-only."""
    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in offered]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}


def _lines(text: str) -> str:
    return "\n".join(map(escaped, text.split("\n")))


def two_columns(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a text of names and values under a title; values are never cut, so that digests can be copied.

    A value's further lines stand below its first, so that none can pass for a row of its own.
    """
    listed = [
        (escaped(name), escaped(line))
        for row, value in rows
        for name, line in zip_longest([row], value.split("\n"), fillvalue="")
    ]
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {line}".rstrip() for name, line in listed)])


def rows_of(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the scalar values as rows (name, value) for people; lists and tables are in the JSON only."""
    plain = {name: value for name, value in content.items() if value is not None and not isinstance(value, dict | list)}
    return [(name.replace("_", " "), str(value)) for name, value in plain.items()]


def absent_rows(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return rows that name a result's missing clients, and those of them that declined; none where nobody is named."""
    return [(name, ", ".join(content[name])) for name in ("missing", "declined") if content.get(name)]


def warn_of_programs(
    speaker: Speaker, backbones: Iterable[str | None], parameters: Iterable[str] = (), methods: Iterable[str] = ()
) -> None:
    """Print a warning of each backbone, method or parameter that is a code file, before any runs. Raises BadInput."""
    from secagg.networks.exported import code_warnings

    for line in code_warnings(backbones, parameters, methods):
        speaker.say(line)


def format_accuracy(evaluation: Evaluation) -> str:
    """Return an accuracy in per cent as text, with its counts and its 95 % interval."""
    low, high = (100 * bound for bound in evaluation.interval)
    share = 100 * evaluation.accuracy
    return f"{share:.2f} % ({evaluation.correct} of {evaluation.total}; 95 % interval {low:.2f} to {high:.2f})"


def refuse_torch_file(path: Path) -> None:
    """Raise BadInput for a head's .pt file (its copy for PyTorch), which lacks the metadata of head.safetensors."""
    if path.suffix == ".pt":
        raise BadInput(f"{path} does not say what it belongs to", remedy="give head.safetensors, which is beside it")


def refuse_existing(path: Path) -> None:
    """Raise BadInput if a file exists already: people have read it, and others hold its digest."""
    if path.exists():
        raise BadInput(f"{path} is there already", remedy="write to another file, or remove it first")


def make_folder(path: Path) -> None:
    """Make a folder and its parents, unless they exist. Raises BadInput."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {path} ({error.strerror})", remedy="give another folder") from None


def refuse_unwritable(path: Path, *, new: bool = False) -> None:
    """Raise BadInput, before long work, if a file cannot be written, or exists although it must be `new`."""
    if new:
        refuse_existing(path)
    if path.is_dir():
        raise BadInput(f"{path} is a folder", remedy="name a file in it")
    if not path.parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.parent}", remedy="make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path} cannot be written: permission denied", remedy="write to another file")


def read_epsilon(text: str) -> float:
    """Return the number in the option --epsilon. Raises BadInput unless it is inf or above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise BadInput(f"epsilon cannot be {text!r}", remedy="give inf or a number above 0")
    return value
