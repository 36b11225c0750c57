"""How the command line speaks.

Results go to stdout, everything else to stderr. An error is one line, "secagg: …", with its remedy; no traceback
unless --debug. `--json -` prints only JSON to stdout. `secagg --help` lists the exit codes. Names come from others:
whatever says them here says them `escaped`.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from secagg.cli.logs import CalmHandler
from secagg.errors import BadInput
from secagg.system.printable import escaped

if TYPE_CHECKING:  # commands that only write certificates, say, start in half the time without
    from secagg.heads import Evaluation, LinearHead

JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - prints only JSON.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr but errors.")]


PAUSE = 10.0
"""Seconds between two lines in a file about how a part of the work goes."""


class Steps(Protocol):
    """Takes what is being done, how much of it is done, how much there is in all (0: unknown), and how it goes."""

    def __call__(self, text: str, done: int, total: int, state: str = "", /) -> None:
        """Say so."""
        ...


class LogLines(logging.Filter):
    """Gives each message one line, whatever a peer put into it; tracebacks keep theirs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Clean the record; every one passes."""
        record.msg, record.args = escaped(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = _lines(logging.Formatter().formatException(record.exc_info))
        return True


class Speaker:
    """One command's output.

    `dated`: lines of its log begin with the time, as those of a party that waits for hours do. Raises BadInput for a
    `--json` file that cannot be written: better before the work than after it.
    """

    def __init__(self, *, quiet: bool, json_to: str | None = None, dated: bool = False) -> None:
        if json_to not in (None, "-"):
            refuse_unwritable(Path(json_to))
        self._json_to = json_to
        self._quiet = quiet
        self._stderr = Console(stderr=True, highlight=False, soft_wrap=True)
        handler = CalmHandler(sys.stderr)
        handler.addFilter(LogLines())
        level = logging.ERROR if quiet else logging.INFO
        shown = self._stderr.is_terminal  # where a bar says how far a sweep is; in a file every run is a line
        logging.getLogger("secagg.experiments").setLevel(logging.WARNING if shown else logging.NOTSET)
        form = ("%(asctime)s " if dated else "") + "%(name)s: %(message)s"
        logging.basicConfig(level=level, format=form, datefmt="%Y-%m-%dT%H:%M:%S%z", handlers=[handler])

    def say(self, text: str) -> None:
        """Print one plain line on stderr."""
        if not self._quiet:
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
        """A bar for work that counts its records; the yielded function takes (done, in all)."""
        if self._quiet or not self._stderr.is_terminal:
            self.say(text)
            yield lambda done, total: None
            return
        with Progress(console=self._stderr, transient=True) as bar:
            task = bar.add_task(escape(escaped(text)), total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def steps(self) -> Iterator[Steps]:
        """A bar for work of several parts; the yielded function takes (what is being done, done, in all, how it goes).

        The first part may give 0 in all: nobody knows. In a file a part is a line, and how it goes is one now and then.
        """
        if self._quiet or not self._stderr.is_terminal:
            yield self._say_step()
            return
        with Progress(console=self._stderr, transient=True) as bar:
            task = bar.add_task("", total=None)

            def update(text: str, done: int, total: int, state: str = "") -> None:
                bar.update(task, description=escape(escaped(state or text)), completed=done, total=total or None)

            yield update

    def _say_step(self) -> Steps:
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

        return say

    def text(self, content: str, lines: str) -> None:
        """A result that is JSON text already, and what people read instead of it."""
        if self._json_to == "-":
            sys.stdout.write(content)
            return
        print(_lines(lines))
        if self._json_to is not None:
            Path(self._json_to).write_text(content, encoding="utf-8")
            self.say(f"wrote {self._json_to}")

    def result(self, content: Mapping[str, Any], *lines: str) -> None:
        """The result: lines for people, and the same as JSON where it was asked for."""
        if self._json_to == "-":
            sys.stdout.write(json.dumps(content, indent=2, allow_nan=False) + "\n")
            return
        for line in lines:
            print(_lines(line))
        if self._json_to is not None:
            try:
                Path(self._json_to).write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")
            except OSError as error:
                raise BadInput(
                    f"cannot write {self._json_to} ({error.strerror})", remedy="name a file that you may write"
                ) from None
            self.say(f"wrote {self._json_to}")


def _lines(text: str) -> str:
    """The text, each of its lines as it can be shown."""
    return "\n".join(map(escaped, text.split("\n")))


def two_columns(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Names and values under a title; values are never cut, so that digests can be copied.

    A value's further lines stand below its first, so that none can pass for a row of its own.
    """
    listed = [
        (escaped(name), escaped(line))
        for row, value in rows
        for name, line in zip_longest([row], value.split("\n"), fillvalue="")
    ]
    width = max((len(name) for name, _ in listed), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {line}".rstrip() for name, line in listed)])


def warn_of_programs(
    speaker: Speaker, backbones: Iterable[str | None], parameters: Iterable[str] = (), methods: Iterable[str] = ()
) -> None:
    """Say which backbones, methods and parameters are files of code, before any runs. Raises BadInput."""
    from secagg.networks import code_warnings

    for line in code_warnings(backbones, parameters, methods):
        speaker.say(line)


def percent(evaluation: Evaluation) -> str:
    """An accuracy with its interval and counts."""
    low, high = (100 * bound for bound in evaluation.interval)
    share = 100 * evaluation.accuracy
    return f"{share:.2f} % ({evaluation.correct} of {evaluation.total}; 95 % interval {low:.2f} to {high:.2f})"


def read_head(path: Path) -> tuple[LinearHead, dict[str, str]]:
    """A session's head, and what it belongs to. Raises BadInput, for its copy for PyTorch as well."""
    from secagg.heads import load_safetensors

    refuse_torch_file(path)
    return load_safetensors(path)


def refuse_torch_file(path: Path) -> None:
    """Raise BadInput for a head's copy for PyTorch."""
    if path.suffix == ".pt":
        raise BadInput(f"{path} does not say what it belongs to", remedy="give head.safetensors, which is beside it")


def refuse_existing(path: Path) -> None:
    """Raise BadInput for a file that is there: people have read it, and others hold its digest."""
    if path.exists():
        raise BadInput(f"{path} is there already", remedy="write to another file, or remove it first")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there. Raises BadInput."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot make the folder {path} ({error.strerror})", remedy="give another folder") from None


def refuse_unwritable(path: Path) -> None:
    """Raise BadInput for a file that cannot be written: better before the work than after it."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder", remedy="name a file in it")
    if not path.parent.is_dir():
        raise BadInput(f"{path} cannot be written: there is no folder {path.parent}", remedy="make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInput(f"{path} cannot be written: permission denied", remedy="write to another file")


def to_epsilon(text: str) -> float:
    """The value of an --epsilon option. Raises BadInput unless it is inf or a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0:
        raise BadInput(f"epsilon cannot be {text!r}", remedy="give inf or a number above 0")
    return value
