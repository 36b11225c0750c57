"""README and the guides as scripts: every ```console block is run in bash, in order, in one folder for each guide.

In a block `$ ` begins a command and `> ` goes on with it, as bash prompts; `# exit code 4` at its end says how it ends,
`# exit code 0 or 4` that chance decides.
Every other line is part of what it prints, in order, and … stands for anything. A ```python block is run too. A comment
before a block says that it is not for everyday: `<!-- long -->` takes minutes, `<!-- yours: REASON -->` needs what only
readers have.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.source import ROOT

FENCE = re.compile(
    r"(?:^(?P<remark><!--(?:(?!-->).)*-->)\n)?^```(?P<kind>console|python)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
REMARK = re.compile(r"<!-- (long|yours)(?:: (.+))? -->")
ENDING = re.compile(r"# exit code (\d+(?: or \d+)*)$")
PORT = re.compile(r"(?<=127\.0\.0\.1:)7\d\d\d")
LIMIT = 1200.0
"""Seconds after which a guide hangs."""


@dataclass(frozen=True)
class Command:
    """What is typed, how it ends, and some of the lines that it prints."""

    text: str
    codes: tuple[int, ...] = (0,)
    shown: tuple[str, ...] = ()

    def complaint(self, code: int | None, printed: str) -> str:
        """What is not as the guide says; empty where all is."""
        if code not in self.codes:
            return f"ends with {code}, not {' or '.join(map(str, self.codes))}"
        rest = iter(" ".join(line.split()) for line in printed.splitlines())
        for line in self.shown:
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("…"))
            if not any(re.search(pattern, each) for each in rest):
                return f"does not print {line!r}"
        return ""


@dataclass(frozen=True)
class Block:
    """The commands between two fences; `remark` is empty, long or yours."""

    commands: tuple[Command, ...]
    remark: str = ""


def blocks_in(text: str) -> list[Block]:
    """A guide's blocks. Raises ValueError for a remark that says nothing known, or an output without a command."""
    blocks = []
    for found in FENCE.finditer(text):
        remark = REMARK.fullmatch(found["remark"] or "<!-- long -->")
        if remark is None or (remark[1] == "yours") != bool(remark[2]):
            raise ValueError(f"neither long nor yours with a reason: {found['remark']}")
        if found["kind"] == "python":
            commands: tuple[Command, ...] = (Command(f"python - <<'END'\n{found['text']}END"),)
        else:
            commands = tuple(_commands(found["text"].splitlines()))
        blocks.append(Block(commands, remark[1] if found["remark"] else ""))
    return blocks


def _commands(lines: Iterable[str]) -> list[Command]:
    parts: list[tuple[list[str], list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            parts.append(([line[2:]], []))
        elif not parts:
            raise ValueError(f"before any command: {line}")
        elif line[:2] in ("> ", ">") and not parts[-1][1]:
            parts[-1][0].append(line[2:])
        else:
            parts[-1][1].append(line)
    found = []
    for typed, shown in parts:
        ending = ENDING.search(typed[-1])
        codes = tuple(map(int, ending[1].split(" or "))) if ending else (0,)
        found.append(Command("\n".join(typed), codes, tuple(shown)))
    return found


def complaints(commands: Iterable[Command], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Run the commands in one bash, and say what was not as they say; nothing is run after a wrong exit code."""
    listed = [*commands]
    ports: dict[str, str] = {}
    folder.joinpath("script").write_text(_script(listed, folder, ports), encoding="utf-8")
    run = ("bash", str(folder / "script"))
    with subprocess.Popen(run, cwd=folder / "work", env=environment, start_new_session=True) as shell:
        try:
            shell.wait(LIMIT)
        finally:
            _kill_all(shell.pid)
    found = []
    for number, command in enumerate(listed):
        ended = folder / f"{number}.code"
        said = "".join((folder / f"{number}.{stream}").read_text(errors="replace") for stream in ("out", "err"))
        code = int(ended.read_text()) if ended.exists() else None
        if complaint := command.complaint(code, said):
            found.append(f"{command.text}\n  {complaint}; it said:\n{said}")
        if code not in command.codes:
            break
    return found


def _script(commands: Iterable[Command], folder: Path, ports: dict[str, str]) -> str:
    """Every command with its own streams and exit code, in files; ports become free ones."""
    lines = ["umask 022"]
    for number, command in enumerate(commands):
        text = PORT.sub(lambda found: ports.setdefault(found[0], str(_free_port())), command.text)
        file = folder / str(number)
        lines += [f"{{ {text}\n}} >{file}.out 2>{file}.err </dev/null", f"code=$?; echo $code >{file}.code"]
        lines.append(f"case $code in {'|'.join(map(str, command.codes))}) ;; *) exit 0 ;; esac")
    return "\n".join([*lines, "exit 0", ""])


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _kill_all(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def environment_of(commands: Path) -> dict[str, str]:
    """What the commands see: those of this interpreter, behind the ones in a folder, and the checkout's packages."""
    path = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)}
