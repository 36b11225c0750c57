"""Every command in one place."""

from __future__ import annotations

import logging
import platform
import sys
import traceback
from typing import Annotated

import typer

from secagg.cli.commands import Commands
from secagg.cli.streams import streams_without_readers
from secagg.errors import ExitCode, SecaggError
from secagg.system.printable import escaped
from secagg.system.threads import begin_with_one_thread

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
