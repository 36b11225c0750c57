"""`secagg` for scripts and demos of many commands: forked from a process that has loaded it, and so there at once.

`python -m tests.cli.forks SOCKET` is that process. The script that `write_command` makes hands it words, folder and
streams, waits for the exit code, passes SIGTERM on, and takes the command with it when it is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import secagg.cli
from secagg.cli.main import main
from tests.architecture.source import ROOT

LOADED_LATE = (
    "cryptography.hazmat.backends.openssl.backend",
    "safetensors.numpy",
    "tenseal.sealapi",
    "torch.optim",
    "torch.utils.serialization.config",
    "typer._adapters",
)
"""What commands import while they run: torch alone takes longer than most of them."""

CALLER = """\
#!{python} -IS
import json, os, signal, socket, sys
words = sys.argv[1:]
if words[:2] == ["-m", "secagg"]:
    words = words[2:]
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(line.send(b"T")))
    socket.send_fds(line, [json.dumps([words, os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
    code = line.recv(1)
sys.exit(code[0] if code else 143 if stopped else 1)
"""


@contextlib.contextmanager
def forked_command(folder: Path) -> Iterator[None]:
    """Put `secagg` into a folder; it works until the context ends. In place of Python it takes `-m secagg`, too."""
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has at most 107 bytes
        address = str(Path(short) / "forks")
        script = folder / "secagg"
        script.write_text(CALLER.format(python=sys.executable, address=address), encoding="utf-8")
        script.chmod(0o755)
        run = (sys.executable, "-m", "tests.cli.forks", address)
        with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == b"ready\n"
                yield
            finally:
                process.kill()


def serve(address: str) -> None:
    """Load every command, and fork one for each caller."""
    for module in pkgutil.iter_modules(secagg.cli.__path__):
        import_module(f"secagg.cli.{module.name}")
    for name in LOADED_LATE:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(line)
            line.close()


def _become(line: socket.socket) -> None:
    """Be the command that a caller asks for, until its end or the caller's."""
    asked, streams, _, _ = socket.recv_fds(line, 1 << 18, 3)
    words, folder, environment = json.loads(asked)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # those of the server know of its own files whether they can seek
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    sys.argv = ["secagg", *words]
    code = 1
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        line.sendall(bytes([code]))
        os._exit(code)


def _end_with(line: socket.socket) -> None:
    """Pass the caller's SIGTERM on, and die as soon as it is gone."""
    while line.recv(1):
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1])
