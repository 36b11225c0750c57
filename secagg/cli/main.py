"""The list of all commands, and `main`, which runs one. A command's module is loaded only when the command runs."""

from __future__ import annotations

import errno
import io
import logging
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup
from typer.main import get_group

from secagg.cli.log_lines import complain
from secagg.errors import ExitCode, SecaggError
from secagg.system.printable import escaped
from secagg.system.threads import begin_with_one_thread

_SENTENCES = """\
demo: Five members build a digit classifier together; the server sees nothing but sums.
server: Run one session: collect protected vectors, learn their sum, build the head.
client: Take part in one session.
aggregator: Hold one share of every client's vector, and publish the sum of the shares.
key-holder: Make the session's key, and open one sum with it.
simulate: Simulate a federation: the same plan, ring, thresholds and state machines as a real one, without sockets.
sweep: Simulate every combination of some settings over several seeds, and compare their accuracy.
compare: Compare methods over partitions and seeds: accuracy, bytes, seconds, epsilon, and which protection ran.
table: Make tables and figures again from results.json, without a run; several files over the same data become one.
tune: Find settings for a method that trains, while it trains: simulate FedPop over secure sums of scores.
predict: Say each record's class and probabilities, and how good they are on records that have labels.
adapt: Train a received head on the member's own records; nothing leaves.
generate: Make pictures from a session's slot means with a diffusion model, and train a classifier on them.
verify: Check transcripts offline: chain, signatures, every step, and what they prove of the published sum.
audit: Measure what an adversary could have learnt from what it really saw.
status: Say where each session of a server stands: who was heard, who is waited for, until when, or how it ended.
control: End, extend or cancel the present wait of a server or aggregator that runs on this machine.
confirm: Confirm an outcome by other parties' transcripts, where the server did not show that they have the same one.
purge: Delete members' protected vectors of sessions that are over, and all sums and states but a plan's newest.
attacks: List the attacks: what each is after, what it needs to see, who published it, and which adversaries use it.
canaries: Make canaries, throw a fair coin for each, and put those with heads into a copy of a member's data.
epsilon: Say which epsilon an amount of noise gives, or how much noise an epsilon takes.
pki: Consortium CA, certificate requests and changes of keys, member certificates, roster.
join: Join a consortium by a start kit, or go on after its roster has changed.
plan: Write, explain, check and countersign the plan of a session.
schema: Say what the columns of a table are, in public; look at one's own.
methods: List the methods and the baselines: what is summed, what a baseline lets out, and what each parameter does.
backbone: List backbones; export a pre-trained network to a .pt2 program; show digests.
ledger: What was released about this member's data sets.
"""
COMMANDS = {
    name: (name.replace("-", "_"), sentence)
    for name, _, sentence in (line.partition(": ") for line in _SENTENCES.splitlines())
}
"""For each command, the name of its module in `secagg.cli` and the first sentence of its help.

The module holds a function of its own name, or a group of commands, `app`.
"""


class _Loading(Mapping[str, Any]):
    """A mapping from names to typer commands, each made from its module when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        from secagg.cli.console import speaking  # with rich, which --help does not need

        place, _ = COMMANDS[name]
        module = import_module(f"secagg.cli.{place}")
        found = getattr(module, "app", None) or getattr(module, place)
        whole = typer.Typer(rich_markup_mode=None, add_completion=False)
        if isinstance(found, typer.Typer):
            for each in found.registered_commands:
                each.callback = speaking(each.callback) if each.callback else None
            whole.add_typer(found, name=name)
        else:
            whole.command(name)(speaking(found))
        return get_group(whole).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Commands(TyperGroup):
    """The typer group `secagg`, whose help lists every command without loading a command's module."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": _Loading()})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


class _Unread:
    """Wraps a text stream so that writing does not fail once its reader has gone (a closed pipe)."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or drop it after the reader has closed the pipe; return its length."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop its buffer after the reader has closed the pipe."""
        with self._dropping():
            self._stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # what is in the buffer goes there too, at the latest at the end
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def streams_without_readers() -> Iterator[None]:
    """Let stdout and stderr take any text in this context, even closed or without a reader; escape unencodable text."""
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        inside = [_Unread(stream or nowhere) for stream in before]
        sys.stdout, sys.stderr = inside
        try:
            yield
        finally:
            for stream in inside:
                with suppress(OSError):  # of a full disk, which was said where the result was written
                    stream.flush()
            sys.stdout, sys.stderr = before


_WORDS = (
    ("Input should be a valid integer, unable to parse string as an integer", "it should be a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "it should be a number"),
    ("Input should be", "it should be"),
    ("Value error, ", ""),
)
"""Messages of typer's parser, each with our wording in its place."""
app = typer.Typer(
    name="secagg",
    cls=_Commands,
    epilog=ExitCode.explain(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    """Print the versions that a bug report should name, and exit."""
    if asked:
        from importlib.metadata import version

        print(f"secagg {version('secagg')}, Python {platform.python_version()}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def _everywhere(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error arose; goes with every command.")] = False,
    shown_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Build a classifier head from many members' records; the server learns only their sum."""
    # `main` takes --debug out before commands are parsed, wherever it stands: here it is only documented.


_FULL = (errno.ENOSPC, errno.EDQUOT)


def main() -> None:
    """Run one command, on one thread; turn every failure into one line and an exit code."""
    begin_with_one_thread()
    with streams_without_readers():
        code = _run(sys.argv[1:])
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    logging.getLogger("secagg").setLevel(logging.DEBUG if debug else logging.NOTSET)
    try:
        code = app([each for each in arguments if each != "--debug"], prog_name="secagg", standalone_mode=False)
        if code == ExitCode.INTERRUPTED:  # typer turns the interrupt into this
            raise KeyboardInterrupt
        sys.stdout.flush()
    except SecaggError as error:
        return _complain(str(error), error.exit_code, debug)
    except typer.TyperException as error:
        text = error.format_message()
        if text.startswith("Usage:"):  # a group stands alone: this is its help
            print(text, file=sys.stderr)
            return ExitCode.BAD_INPUT
        for theirs, ours in _WORDS:
            text = text.replace(theirs, ours)
        return _complain(f"{text.rstrip('.')}; try --help", ExitCode.BAD_INPUT, debug)
    except (typer.Abort, KeyboardInterrupt):
        return _complain(
            "interrupted; run the same command again: it goes on from what it keeps (simulate: with --keep DIR)",
            ExitCode.INTERRUPTED,
            debug,
        )
    except MemoryError:
        return _complain("this machine has too little memory for that; give less data", ExitCode.BAD_INPUT, debug)
    except OSError as error:
        remedy = "; free the disk and start again" if error.errno in _FULL else ""
        text = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
        return _complain(text + remedy, ExitCode.BAD_INPUT, debug)
    except Exception as error:  # noqa: BLE001 (the last resort: one line instead of a traceback)
        return _complain(f"internal error: {type(error).__name__}; --debug shows where", ExitCode.INTERNAL_ERROR, debug)
    return code if isinstance(code, int) else ExitCode.DONE


def _complain(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    complain(escaped(" ".join(text.split())))
    return code
