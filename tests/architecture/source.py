"""The Python source of the installed packages, parsed but not imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("secagg", "methods", "threat_models")
GENERATED = ROOT / "secagg" / "wire" / "generated"

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file under its dotted name; a package bears the name of its folder."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Everything in the tree."""
        return tuple(ast.walk(self.tree))

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        return (node for node in self.nodes if isinstance(node, Function))

    def imports(self) -> Iterator[str]:
        """The dotted name of everything imported anywhere in the file; `from a import b` gives `a.b`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """The modules of some top-level folders, without generated code."""
    paths = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return tuple(Module(_name(path), path.read_text()) for path in paths if GENERATED not in path.parents)


def installed() -> tuple[Module, ...]:
    """The modules of every package that installs."""
    return modules(*PACKAGES)


def within(name: str, package: str) -> bool:
    """Whether a dotted name is a package or something inside it."""
    return name == package or name.startswith(f"{package}.")


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
