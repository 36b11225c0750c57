"""Every command: what each is for, and where it is. Its module is loaded when the command runs, not to list it."""

from __future__ import annotations

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

from secagg.errors import ExitCode, SecaggError
from secagg.system.printable import escaped
from secagg.system.threads import begin_with_one_thread

COMMANDS = {
    "demo": ("demo:demo", "Five members build a digit classifier together; the server sees nothing but sums."),
    "server": ("server:server", "Run one session: collect protected vectors, learn their sum, build the head."),
    "client": ("client:client", "Take part in one session."),
    "aggregator": (
        "aggregator:aggregator",
        "Hold one share of every client's vector, and publish the sum of the shares.",
    ),
    "key-holder": ("key_holder:key_holder", "Make the session's key, and open one sum with it."),
    "simulate": (
        "simulate:simulate",
        "Simulate a federation: the same plan, ring, thresholds and state machines as a real one, without sockets.",
    ),
    "sweep": (
        "sweep:sweep",
        "Simulate every combination of some settings over several seeds, and compare their accuracy.",
    ),
    "compare": (
        "compare:compare",
        "Compare methods over partitions and seeds: accuracy, bytes, seconds, epsilon, and which protection ran.",
    ),
    "tune": (
        "tune:tune",
        "Find settings for a method that trains, while it trains: simulate FedPop over secure sums of scores.",
    ),
    "predict": (
        "predict:predict",
        "Say each record's class and probabilities, and how good they are on records that have labels.",
    ),
    "adapt": ("adapt:adapt_head", "Train a received head on the member's own records; nothing leaves."),
    "generate": (
        "generate:generate_pictures",
        "Make pictures from a session's slot means with a diffusion model, and train a classifier on them.",
    ),
    "verify": (
        "verify:verify",
        "Check transcripts offline: chain, signatures, every step, and what they prove of the published sum.",
    ),
    "audit": ("audit:audit", "Measure what an adversary could have learnt from what it really saw."),
    "status": (
        "status:status",
        "Say where each session of a server stands: who was heard, who is waited for, until when, or how it ended.",
    ),
    "purge": (
        "purge:purge",
        "Delete members' protected vectors of sessions that are over, and all sums and states but a plan's newest.",
    ),
    "attacks": (
        "attacks:attacks",
        "List the attacks: what each is after, what it needs to see, who published it, and which adversaries use it.",
    ),
    "canaries": (
        "canaries:canaries",
        "Make canaries, throw a fair coin for each, and put those with heads into a copy of a member's data.",
    ),
    "epsilon": ("epsilon:epsilon", "Say which epsilon an amount of noise gives, or how much noise an epsilon takes."),
    "pki": ("pki:app", "Consortium CA, certificate requests and changes of keys, member certificates, roster."),
    "join": ("join:join_by_kit", "Join a consortium by a start kit, or go on after its roster has changed."),
    "plan": ("plan:app", "Write, explain, check and countersign the plan of a session."),
    "schema": ("schema:app", "Say what the columns of a table are, in public; look at one's own."),
    "methods": (
        "methods:app",
        "List the methods and the baselines: what is summed, what a baseline lets out, and the parameters of each.",
    ),
    "backbone": ("backbone:app", "Export a pre-trained network to a .pt2 program; show digests."),
    "ledger": ("ledger:app", "What was released about this member's data sets."),
}
"""Module and name within `secagg.cli`, and the first sentence of the command's own help."""


class Loading(Mapping[str, Any]):
    """The commands by name, each made from its module when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        place, _ = COMMANDS[name]
        module, _, function = place.partition(":")
        found = getattr(import_module(f"secagg.cli.{module}"), function)
        whole = typer.Typer(rich_markup_mode=None, add_completion=False)
        if isinstance(found, typer.Typer):
            whole.add_typer(found, name=name)
        else:
            whole.command(name)(found)
        return get_group(whole).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """The group `secagg`, whose help names every command and loads none."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": Loading()})

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command's name and sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


class _Unread:
    """A text stream that goes on when its reader has gone; in everything else the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or drop the text where nobody reads it."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what is left where nobody reads it."""
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
    """Inside, both streams can be written to, even those that were closed or whose reader goes.

    What their encoding lacks is written as an escape.
    """
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        inside = [_usable(stream or nowhere) for stream in before]
        sys.stdout, sys.stderr = inside
        try:
            yield
        finally:
            for stream in inside:
                with suppress(OSError):  # of a full disk, which was said where the result was written
                    stream.flush()
            sys.stdout, sys.stderr = before


def _usable(stream: TextIO) -> Any:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return _Unread(stream)


_WORDS = (
    ("Input should be a valid integer, unable to parse string as an integer", "it should be a whole number"),
    ("Input should be a valid number, unable to parse string as a number", "it should be a number"),
    ("Input should be", "it should be"),
    ("Value error, ", ""),
)
"""What typer's parser says of a value, and how we say it."""
app = typer.Typer(
    name="secagg",
    cls=Commands,
    help="Build a classifier head from many members' records; the server learns only their sum.",
    epilog=ExitCode.explain(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    """Print what a report of a fault should name, and end."""
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


def main() -> None:
    """Run one command, on one thread; turn every failure into one line and an exit code."""
    begin_with_one_thread()
    with streams_without_readers():
        code = _run(sys.argv[1:])
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """The exit code of one command."""
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
        return _say_misuse(error.format_message(), debug)
    except (typer.Abort, KeyboardInterrupt):
        return _complain(
            "interrupted; run the same command again: it goes on from what it keeps (simulate: with --keep DIR)",
            ExitCode.INTERRUPTED,
            debug,
        )
    except MemoryError:
        return _complain("this machine has too little memory for that; give less data", ExitCode.BAD_INPUT, debug)
    except OSError as error:
        return _complain(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), ExitCode.BAD_INPUT, debug)
    except Exception as error:  # noqa: BLE001 (the last resort: one line instead of a traceback)
        return _complain(f"internal error: {type(error).__name__}; --debug shows where", ExitCode.INTERNAL_ERROR, debug)
    return code if isinstance(code, int) else ExitCode.DONE


def _say_misuse(text: str, debug: bool) -> int:
    """Say what is wrong with the words of a command; where a group stands alone, what it has."""
    if text.startswith("Usage:"):
        print(text, file=sys.stderr)
        return ExitCode.BAD_INPUT
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    return _complain(f"{text.rstrip('.')}; try --help", ExitCode.BAD_INPUT, debug)


def _complain(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"secagg: {escaped(' '.join(text.split()))}", file=sys.stderr)
    return code
