"""What an auditor brings beside transcripts, named so that a report can be repeated: digests of files and folders."""

from __future__ import annotations

from hashlib import file_digest, sha256
from pathlib import Path

from threat_models.report.content import Input


def input_of(role: str, source: str, records: int) -> Input:
    """Name, digest and number of records of a file, a folder or a bundled data set.

    A path below the working folder is named from there, any other by its last two parts. A folder's digest is that of
    a line for each of its files, in order: digest, two spaces, path within (as `sha256sum` prints them).
    """
    path = Path(source)
    if not path.exists():
        return Input(role, source, "", records)
    return Input(role, _name_of(path), _digest(path), records)


def _name_of(path: Path) -> str:
    whole, here = path.resolve(), Path.cwd().resolve()
    if whole.is_relative_to(here) and whole != here:
        return whole.relative_to(here).as_posix()
    return "/".join(whole.parts[1:][-2:])


def _digest(path: Path) -> str:
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        lines = [f"{_digest(each)}  {each.relative_to(path).as_posix()}\n" for each in files]
        return sha256("".join(lines).encode()).hexdigest()
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
