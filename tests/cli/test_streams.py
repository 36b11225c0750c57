"""Streams that are closed early, full, or cannot spell what is said; and `--version`."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import secagg as package
from secagg.cli import main
from tests.cli.command import Command

EPSILON = ("epsilon", "--delta", "1e-5", "--noise-multiplier", "1")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs a command, one of whose streams is a pipe that nobody reads any more; returns the exit code."""
    opened: list[io.TextIOWrapper] = []

    def run(stream: str, *arguments: object) -> int:
        end, start = os.pipe()
        os.close(end)
        opened.append(io.TextIOWrapper(os.fdopen(start, "wb"), encoding="utf-8", write_through=True))
        with monkeypatch.context() as patch:
            patch.setattr(sys, stream, opened[-1])
            patch.setattr(sys, "argv", ["secagg", *map(str, arguments)])
            with pytest.raises(SystemExit) as end_of_command:
                main()
        assert isinstance(end_of_command.value.code, int)
        return end_of_command.value.code

    yield run
    for stream in opened:
        stream.close()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize(
    "arguments", [("--help",), ("attacks",), ("methods", "--json", "-"), EPSILON], ids=lambda arguments: arguments[0]
)
def test_reader_that_goes_is_no_failure(unread: Callable[..., int], stream: str, arguments: tuple[str, ...]) -> None:
    """A command whose reader goes ends with 0 when it has done its work."""
    assert unread(stream, *arguments) == 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_verdict_is_kept_without_a_reader(unread: Callable[..., int], tmp_path: Path, stream: str) -> None:
    """What was found is the exit code, whoever reads it: 3 for one of two transcripts, 2 for bad usage."""
    (tmp_path / "bad.log").write_text("hello")
    assert unread(stream, "verify", tmp_path / "bad.log", tmp_path / "missing.log") == 3
    assert unread(stream, "epsilon") == 2


def test_failed_gate_is_kept_without_a_reader(unread: Callable[..., int]) -> None:
    """The exit code of an audit is its gate's, whoever reads the report."""
    few = ("--dataset", "wine", "--clients", "3", "--protection", "none", "--threat-model", "curious_server")
    assert unread("stdout", "audit", "--simulate", *few) == 1


@pytest.mark.parametrize("buffered", ["", "1"])
def test_process_without_a_reader_ends_quietly(buffered: str) -> None:
    """A whole process, as a shell starts it, ends with 0 and says nothing when its pipe is closed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "secagg", "attacks", "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
    )
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_full_disk_is_one_line() -> None:
    """A result that cannot be written for lack of room is no success: exit 2, one line with the remedy."""
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "secagg", *EPSILON]
        told = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE)
    assert (told.returncode, told.stderr) == (2, b"secagg: No space left on device; free the disk and start again\n")


def test_streams_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was started without streams does its work."""
    monkeypatch.setattr(sys, "argv", ["secagg", "attacks", "--json", "-"])
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0


def test_names_that_cannot_be_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the terminal's encoding lacks is written as an escape, a file name that is no text among it."""
    found = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setattr(sys, "argv", ["secagg", "verify", "missing.log", os.fsdecode(b"\xff.log")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    found.seek(0)
    assert "\\udcff.log: the transcript does not verify" in found.read()


def test_version(secagg: Command) -> None:
    """`--version` names what a report of a fault needs, and does not load torch for it."""
    said = secagg("--version")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"secagg {package.__version__}, Python ")
    assert ", torch 2." in said.out
