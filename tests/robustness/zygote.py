"""Runs the command line in forked children of one process that has everything imported: a tenth of a second each.

A child has bounded memory and time, streams that are files, and a folder of its own to stand in.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

MEMORY = 6 << 30
"""Bytes of address space of one command, of which torch takes much by itself."""
SECONDS = 60.0
WAITS = (b"listening on", b"asking again for up to")
"""What a party says that has accepted its files and waits for others: it is then asked to end."""
_HEAD, _TAIL = 2_000, 8_000


@dataclass(frozen=True)
class Ended:
    """How one command ended: its exit code, or minus the signal that killed it; `None`: it did not end in time.

    `waits`: it had accepted its files, and was asked to end while it waited for others.
    """

    code: int | None
    waits: bool
    out: str
    err: str
    seconds: float


class Zygote:
    """The process that forks. Start it once; it ends with its standard input."""

    def __init__(self) -> None:
        limits = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **limits, "SECAGG_CACHE": "off", "PYTHONHASHSEED": "0"},
        )

    def run(self, *arguments: object, folder: Path, **variables: str) -> Ended:
        """Run `secagg ARGUMENTS` in a folder, with further environment variables."""
        asked = {"arguments": [str(each) for each in arguments], "folder": str(folder), "variables": variables}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with self._process:
            self._process.wait()


def serve() -> None:
    """Answer one request after the other until standard input ends."""
    import torch.export

    import secagg.experiments.simulation
    import secagg.transport.server
    import threat_models.active
    import threat_models.evidence
    import threat_models.report

    assert all((secagg, threat_models, torch))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(_run(**json.loads(line))) + "\n")
        answers.flush()


def _run(arguments: list[str], folder: str, variables: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            _live(arguments, folder, variables, out.fileno(), err.fileno())
        code, waits = _wait(child, began, err.fileno())
        took = time.monotonic() - began
        said, complained = _text(out.fileno()), _text(err.fileno())
    return {"code": code, "waits": waits, "out": said, "err": complained, "seconds": took}


def _live(arguments: list[str], folder: str, variables: dict[str, str], out: int, err: int) -> None:
    """The child's whole life."""
    code = 255
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(variables)
        for stream, target in ((out, 1), (err, 2)):
            os.dup2(stream, target)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["secagg", *arguments]
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
        from secagg.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (what the interpreter would print)
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, began: float, err: int) -> tuple[int | None, bool]:
    """The child's exit code, or minus its signal; None when it has to be killed. One that waits is asked to end."""
    waits, pause = False, 0.002
    while time.monotonic() - began < SECONDS:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), waits
        said = os.pread(err, _HEAD, 0)
        if not waits and any(each in said for each in WAITS):
            waits = True
            os.killpg(child, signal.SIGTERM)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, waits


def _text(file: int) -> str:
    """Beginning and end of what a stream was told."""
    size = os.fstat(file).st_size
    head = os.pread(file, _HEAD, 0)
    tail = os.pread(file, _TAIL, max(len(head), size - _TAIL))
    return (head + tail).decode("utf-8", "replace")


if __name__ == "__main__":
    serve()
