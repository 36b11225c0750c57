"""Plug-ins: methods, attacks and data formats by other authors, in a file or installed under an entry point.

A plug-in is named `FILE.py:NAME`, or by the name of an entry point of the group for its kind. What all members agree on
is `NAME@SHA-256`: such a name finds its code among the files that this process was given (`admit`) and among what is
installed, by the digest alone, and nothing of it runs before it has it. Whether it may run is for others to decide
first: whoever typed it, or a member's policy. Code that is loaded runs with the rights of the process.

A file's digest is what `sha256sum` says of it. That of an installed package covers its files but `__pycache__`, which
is never read: one line each, in order of their paths, as `sha256sum` prints them, and a last one with what the entry
point names. What a plug-in imports beside itself is the machine's, as numpy is.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from secagg.errors import BadInput, SecaggError, describe_error
from secagg.system.printable import escaped
from secagg.system.reading import DOCUMENT_BYTES, read_limited

METHODS, ATTACKS, FORMATS = "secagg.methods", "secagg.attacks", "secagg.formats"
"""The groups of entry points under which plug-ins are installed."""
LONGEST_NAME = 40
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{LONGEST_NAME - 1}}}")
_PLANNED = re.compile(rf"({_NAME.pattern})@([0-9a-f]{{64}})")

_admitted: dict[str, tuple[Path, bytes]] = {}
_from_source: set[str] = set()
_modules: dict[str, ModuleType] = {}


@dataclass(frozen=True, eq=False)
class Plugin:
    """A loaded plug-in: the object `value`, its name, the SHA-256 (hex) of its code, and its file or entry point."""

    name: str
    sha256: str
    source: str
    value: Any = field(repr=False)

    @property
    def planned(self) -> str:
        """The plug-in's name as a plan has it, NAME@SHA-256."""
        return f"{self.name}@{self.sha256}"


def is_planned(name: str) -> bool:
    """Return whether a name in a plan has the form NAME@SHA-256, and so stands for a plug-in's code."""
    return _PLANNED.fullmatch(name) is not None


def file_in(spec: str) -> Path | None:
    """Return the file in a name FILE.py:NAME; None for a name of another form. Raises BadInput for FILE.py alone."""
    path, _, name = spec.rpartition(":")
    if spec.endswith(".py"):
        raise BadInput(f"{spec} does not say what to take of the file", remedy=f"write {spec}:NAME")
    return Path(path) if path.endswith(".py") and name else None


def admit(path: Path) -> str:
    """Register a file as plug-in code that a plan may name, without running it; return its SHA-256 (hex)."""
    try:
        content = read_limited(path, DOCUMENT_BYTES)
    except OSError as error:
        raise BadInput(f"cannot read the plug-in {path} ({describe_error(error)})") from None
    digest = hashlib.sha256(content).hexdigest()
    _admitted[digest] = (path, content)
    return digest


def warning_of(file: object, digest: str) -> str:
    """Return the warning, with the SHA-256, to print before a file of code runs."""
    return escaped(f"WARNING: {file} is code, which runs now with your rights; its SHA-256 is {digest}")


def load(group: str, spec: str) -> Plugin | None:
    """Load a plug-in by running its code: FILE.py:NAME, NAME@SHA-256 or an entry point; None if it is unknown.

    Raises BadInput for code that is not here, is other code than was agreed on, or cannot be loaded.
    """
    if (path := file_in(spec)) is not None:
        return _from_file(spec.rpartition(":")[2], admit(path))
    if "@" not in spec:
        found = [each for each in entry_points(group=group) if each.name == spec]
        if len(found) > 1:
            raise BadInput(f"several installed packages bring {spec!r}", remedy="uninstall all but one, or give a file")
        return _from_entry(found[0], installed_sha256(found[0])) if found else None
    planned = _PLANNED.fullmatch(spec)
    if planned is None:
        raise BadInput(f"{spec!r} names no code", remedy="a plan says NAME@SHA-256")
    name, digest = planned.groups()
    if digest in _admitted:
        return _from_file(name, digest)
    for each in entry_points(group=group):
        if each.name == name and installed_sha256(each) == digest:
            return _from_entry(each, digest)
    others = [f"{path} has {other}" for other, (path, _) in _admitted.items()]
    others += [f"what is installed as {name} has {installed_sha256(each)}"
               for each in entry_points(group=group) if each.name == name]  # fmt: skip
    told = f"; {', '.join(others)}: it is other code" if others else ""
    problem = f"{name} is code with the SHA-256 {digest}, which is not here{told}"
    raise BadInput(problem, remedy="give the file that was agreed on with --plugin FILE.py, or install that version")


def every(group: str) -> Iterator[Plugin]:
    """Yield every installed plug-in of an entry-point group, running its code. Raises BadInput as `load` does."""
    for each in entry_points(group=group):
        yield _from_entry(each, installed_sha256(each))


def installed_sha256(entry: EntryPoint) -> str:
    """Return the SHA-256 (hex) of the code of an entry point's package or module, without running it.

    Raises BadInput where it has no files, or links to folders, whose files are elsewhere.
    """
    top = entry.module.partition(".")[0]
    found = find_spec(top)
    if found is None or found.origin is None:
        problem = f"the entry point {entry.name} names {top}, which is no installed code"
        raise BadInput(problem, remedy="install it again")
    files = {Path(found.origin).name: Path(found.origin)}
    if found.submodule_search_locations:
        folder = Path(found.origin).parent
        paths = [path for path in folder.rglob("*") if "__pycache__" not in path.relative_to(folder).parts]
        if links := [path for path in paths if path.is_symlink() and path.is_dir()]:
            raise BadInput(f"{links[0]} is a link to a folder, of which no digest tells", remedy="install the files")
        files = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in sorted(files.items())]
    return hashlib.sha256("".join([*lines, f"{entry.value}\n"]).encode()).hexdigest()


def _from_file(name: str, digest: str) -> Plugin:
    path, content = _admitted[digest]
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name!r} is no name in {path}", remedy=f"give one of at most {LONGEST_NAME} plain characters")
    if digest not in _modules:
        _modules[digest] = _run(path, content, digest)
    if not hasattr(_modules[digest], name):
        raise BadInput(f"{path} has no {name}", remedy="write FILE.py:NAME, as it is called in the file")
    return Plugin(name, digest, str(path), getattr(_modules[digest], name))


def _run(path: Path, content: bytes, digest: str) -> ModuleType:
    """Return the module made by running these bytes: the digest is theirs, and the file may have changed since."""
    module = ModuleType(f"secagg_plugin_{digest}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)  # noqa: S102 (what a plug-in is)
    except Exception as error:
        del sys.modules[module.__name__]
        raise _unloadable(str(path), error) from error
    return module


def _from_entry(entry: EntryPoint, digest: str) -> Plugin:
    if not _NAME.fullmatch(entry.name):
        raise BadInput(f"an installed package brings {entry.name!r}, which is no name", remedy="rename its entry point")
    _from_source.add(entry.module.partition(".")[0])
    if _SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, _SourceFinder)
    try:
        return Plugin(entry.name, digest, entry.value, entry.load())
    except Exception as error:
        raise _unloadable(entry.value, error) from error


class _SourceFinder:
    """Import hook that compiles installed plug-ins' modules from the source files that the digest covers."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return another finder's result for a plug-in's module, with `_Uncached` as loader; None for other modules."""
        if name.partition(".")[0] not in _from_source:
            return None
        others = (each for each in sys.meta_path if each is not _SourceFinder and hasattr(each, "find_spec"))
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Uncached(name, spec.loader.path)
        return spec


class _Uncached(SourceFileLoader):
    """Loader that ignores __pycache__, where bytecode can lie that was not made from the source (PEP 552)."""

    def path_stats(self, path: str) -> dict[str, int]:
        """Raise OSError: without the source's size and time, Python neither reads nor writes cached bytecode."""
        raise OSError(path)


def _unloadable(source: str, error: Exception) -> BadInput:
    told = str(error) if isinstance(error, SecaggError) else f"{type(error).__name__}: {describe_error(error)}"
    return BadInput(f"the plug-in {source} cannot be loaded ({told})", remedy="mend it; --debug shows where")
