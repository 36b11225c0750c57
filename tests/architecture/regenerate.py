"""Generate `secagg/wire/generated` from `protos/secagg/v1`, or check that it is what the protos give.

`python -m tests.architecture.regenerate` writes; with `--check` it names the files that differ and exits with 1.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "protos"
GENERATED = ROOT / "secagg" / "wire" / "generated"
PACKAGE = "secagg.wire.generated"
HEADER = f'"""Generated from protos/ by `make protos`; import as `{PACKAGE}.<name>_pb2`."""\n'


def generate(protos: Path) -> dict[str, bytes]:
    """The generated files by name: messages and their types, and stubs for the protos that hold a service."""
    sources = sorted(protos.glob("secagg/v1/*.proto"))
    services = [source for source in sources if re.search(rb"^service\s", source.read_bytes(), re.MULTILINE)]
    output = {"__init__.py": HEADER.encode()}
    with tempfile.TemporaryDirectory() as folder:
        _protoc(protos, [f"--python_out={folder}", f"--pyi_out={folder}"], sources)
        _protoc(protos, [f"--grpc_python_out={folder}"], services)
        for path in sorted(Path(folder).glob("secagg/v1/*")):
            output[path.name] = path.read_bytes().replace(b"from secagg.v1 import", f"from {PACKAGE} import".encode())
    return output


def differences(expected: dict[str, bytes], folder: Path) -> list[str]:
    """The names of the files that are missing from `folder`, differ there, or should not be there."""
    present = {path.name: path.read_bytes() for path in folder.glob("*.py*")}
    return sorted(name for name in expected | present if expected.get(name) != present.get(name))


def write(expected: dict[str, bytes], folder: Path) -> None:
    """Make the source files of `folder` exactly the expected ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in folder.glob("*.py*")} - set(expected):
        (folder / stale).unlink()
    for name, content in expected.items():
        (folder / name).write_bytes(content)


def _protoc(protos: Path, outputs: list[str], sources: list[Path]) -> None:
    """Compile in a process of its own: the compiler's protobuf and TenSEAL's cannot live in one."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{protos}", *outputs, *map(str, sources)]
    if sources and subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(1)


def main() -> int:
    """Write or check the generated code of this repository."""
    parser = argparse.ArgumentParser(description="Generate the protobuf code.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    expected = generate(PROTOS)
    if not check:
        write(expected, GENERATED)
        return 0
    stale = differences(expected, GENERATED)
    if stale:
        print(f"generated code is not what protos/ gives (run make protos): {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
