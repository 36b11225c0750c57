"""Plant a fault in the source of one function, in a fresh process, and run the tests that must fail.

As a pytest plugin (`-p tests.mutations.planting --plant NAME`) this module changes the source text of one function
before its module is compiled, so that every importer runs the changed function. It imports nothing of the product.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from xml.etree import ElementTree

import pytest

DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ROOT = Path(__file__).resolve().parents[2]
BROKEN_PLANTS = (
    "AttributeError",
    "ImportError",
    "ModuleNotFoundError",
    "NameError",
    "SyntaxError",
    "UnboundLocalError",
)
"""Errors of a fault that is written wrongly: such a failure proves nothing of the test."""
LONGEST_RUN = 600.0
"""Seconds after which a run of the named tests counts as hung."""


@dataclass(frozen=True)
class PlantedFault:
    """One fault in the source of one function, and the tests that must fail with it.

    `function` is `module:qualified.name`, or the name of a module alone for what stands outside functions. Each old
    text of `changes` must occur exactly once in that function when its turn comes. `tests` are paths below `tests/`,
    with `::name` where a file has more. A fault that changes nothing that counts has the `reason` in place of tests.
    """

    name: str
    says: str
    function: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...] = ()
    reason: str = ""

    @property
    def module(self) -> str:
        """The dotted name of the module."""
        return self.function.partition(":")[0]

    @property
    def path(self) -> Path:
        """The module's file."""
        path = ROOT / self.module.replace(".", "/")
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def planted(self) -> str:
        """Return the module's source with the fault. Raises LookupError where the function or an old text is gone."""
        lines = self.path.read_text().splitlines(keepends=True)
        first, last = self._range("".join(lines))
        text = "".join(lines[first:last])
        for old, new in self.changes:
            if (found := text.count(old)) != 1:
                raise LookupError(f"{self.name}: {old!r} occurs {found} times in {self.function}")
            text = text.replace(old, new)
        return "".join([*lines[:first], text, *lines[last:]])

    def _range(self, source: str) -> tuple[int, int]:
        """Return the lines from and to which the function stands, with its decorators."""
        node: ast.AST = ast.parse(source)
        _, _, qualified = self.function.partition(":")
        if not qualified:
            return 0, source.count("\n")
        for part in qualified.split("."):
            inner = [each for each in _definitions(node) if each.name == part]
            if len(inner) != 1:
                raise LookupError(f"{self.name}: {part} is defined {len(inner)} times for {self.function}")
            node = inner[0]
        decorated: list[ast.expr] = getattr(node, "decorator_list", [])
        return min(each.lineno for each in [node, *decorated]) - 1, node.end_lineno  # type: ignore[attr-defined]


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the functions and classes of a scope, and none of an inner one."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, DEFINITION):
            yield each
        else:
            yield from _definitions(each)


def entries() -> tuple[PlantedFault, ...]:
    """Return the faults of every module of `tests.mutations.entries`."""
    from tests.mutations import entries as package

    found = [
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    ]
    return tuple(fault for module in found for fault in module.ENTRIES)


class FaultLoader(SourceFileLoader):
    """Compile a module from the source with the fault, past every cache of bytecode."""

    def __init__(self, fault: PlantedFault) -> None:
        super().__init__(fault.module, str(fault.path))
        self.fault = fault

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled source with the fault."""
        return compile(self.fault.planted(), self.path, "exec", dont_inherit=True)


@dataclass
class FaultFinder:
    """Find the module of a fault before every other finder does."""

    fault: PlantedFault

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the module's spec with the changed source; None for every other module."""
        spec = PathFinder.find_spec(name, path) if name == self.fault.module else None
        if spec is not None:
            spec.loader = FaultLoader(self.fault)
        return spec


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the fault."""
    parser.addoption("--plant", default="", help="name of the planted fault to run with; none by default")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Plant the fault before any conftest imports its module."""
    name = early_config.known_args_namespace.plant
    if name:
        sys.meta_path.insert(0, FaultFinder({each.name: each for each in entries()}[name]))


@dataclass(frozen=True)
class Outcome:
    """What the named tests did: pytest's exit status, the first line of each failed test, and all that was printed."""

    status: int
    failures: tuple[str, ...]
    errors: int
    output: str

    @property
    def is_killed(self) -> bool:
        """Whether a test failed by the fault: neither an error of collection or set-up, nor a fault written wrongly."""
        genuine = self.failures and not any(line.startswith(BROKEN_PLANTS) for line in self.failures)
        return self.status == pytest.ExitCode.TESTS_FAILED and self.errors == 0 and bool(genuine)


def run_tests(tests: Sequence[str], fault: str, folder: Path) -> Outcome:
    """Run tests up to the first failure in a fresh process, with the fault of this name or with none ("")."""
    report = folder / "report.xml"
    planting = ["-p", "tests.mutations.planting", "--plant", fault]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *planting, *options, *(f"tests/{each}" for each in tests)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LONGEST_RUN,
        check=False,
    )
    cases = list(ElementTree.parse(report).iter()) if report.exists() else []  # noqa: S314  # a file of our own
    failures = tuple(each.get("message", "") for each in cases if each.tag == "failure")
    errors = sum(each.tag == "error" for each in cases)
    return Outcome(done.returncode, failures, errors, done.stdout + done.stderr)
