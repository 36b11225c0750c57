"""What one source file looks like: short, documented, and free of what does not belong there."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.architecture.source import Documented, Function, Module, installed, modules, within

MODULE_LINES = 500
FUNCTION_LINES = 40
VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc"}
RUNS_PLUGINS = "secagg.system.plugins"
"""The one module whose work is to run code of others, by its digest."""
UNFINISHED = re.compile(r"\b(todo|fixme)\b", re.IGNORECASE)
RECORDS = ("local.examples", "local.inputs")
NOISED = re.compile(r"\b(dp_sgd|train_privately|_noisily_trained|then)\(")
"""What gives values that may leave, though it reads records: the accounted mechanism, and rules that are looked at."""
NO_NUMPY_RANDOM = (
    "secagg.crypto",
    "secagg.protection",
    "secagg.plan_facts",
    "secagg.session",
    "secagg.federation",
    "secagg.transport",
)


def lines_of_code(module: Module, node: ast.Module | Function) -> int:
    """The lines of a module or of a function's body that are neither blank nor in a docstring.

    A signature does not count: a command's parameters are the contract of the command line.
    """
    lines = module.text.splitlines()
    first, last = (1, len(lines)) if isinstance(node, ast.Module) else (node.body[0].lineno, node.end_lineno)
    filled = {number for number in range(first, last + 1) if lines[number - 1].strip()}
    for inner in ast.walk(node):
        if isinstance(inner, Documented) and ast.get_docstring(inner) is not None:
            filled -= set(range(inner.body[0].lineno, inner.body[0].end_lineno + 1))
    return len(filled)


def too_long(module: Module) -> Iterator[str]:
    """A module or function over its limit."""
    if (length := lines_of_code(module, module.tree)) > MODULE_LINES:
        yield f"{module.name} has {length} lines of code, at most {MODULE_LINES}"
    for function in module.functions():
        if (length := lines_of_code(module, function)) > FUNCTION_LINES:
            yield f"{module.name}.{function.name} has {length} lines of code, at most {FUNCTION_LINES}"


def vaguely_named(module: Module) -> Iterator[str]:
    """A module or package whose name says nothing."""
    for part in VAGUE_NAMES.intersection(module.name.split(".")):
        yield f"{module.name}: {part} says nothing about what is in it"


def undocumented(module: Module) -> Iterator[str]:
    """A module, public class, function or method without a docstring; an override may leave it to what it overrides."""
    return _undocumented(module.tree, module.name)


def _undocumented(node: Documented, name: str) -> Iterator[str]:
    if ast.get_docstring(node) is None:
        yield f"{name} has no docstring"
    if isinstance(node, Function):
        return
    inherited = _documented_in_bases(node, set()) if isinstance(node, ast.ClassDef) else set()
    for inner in node.body:
        if isinstance(inner, Documented) and not inner.name.startswith("_") and not _repeats(inner):
            yield from () if inner.name in inherited else _undocumented(inner, f"{name}.{inner.name}")


@cache
def _classes() -> dict[str, ast.ClassDef]:
    """Every class of the installed packages by its name, which stands once (`test_class_names`)."""
    return {node.name: node for module in installed() for node in module.nodes if isinstance(node, ast.ClassDef)}


def _documented_in_bases(node: ast.ClassDef, seen: set[str]) -> set[str]:
    """The names that a class's bases in the product document, and theirs."""
    names = set[str]()
    for base in (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases):
        if base in seen or base not in _classes():
            continue
        seen.add(base)
        inner = _classes()[base]
        names |= {each.name for each in inner.body if isinstance(each, Documented) and ast.get_docstring(each)}
        names |= _documented_in_bases(inner, seen)
    return names


def _repeats(node: Documented) -> bool:
    """Whether a definition is an overload or a setter, documented where the name is first defined."""
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in getattr(node, "decorator_list", ())}
    return not decorators.isdisjoint({"overload", "setter", "deleter"})


def forbidden(module: Module) -> Iterator[str]:
    """Predictable randomness, code from data, and unfinished business."""
    for imported in module.imports():
        if within(imported, "random") or within(imported, "pickle"):
            yield f"{module.name} imports {imported}"
    for node in module.nodes:
        runs = isinstance(node, ast.Call) and ast.unparse(node.func) in {"eval", "exec"}
        if runs and module.name != RUNS_PLUGINS:
            yield f"{module.name}:{node.lineno} calls eval or exec"
        if isinstance(node, ast.keyword) and ast.unparse(node) in {"allow_pickle=True", "weights_only=False"}:
            yield f"{module.name}:{node.lineno} loads pickles"
    for found in UNFINISHED.finditer(module.text):
        yield f"{module.name} says {found[0]}"


def named_culprits(module: Module) -> Iterator[str]:
    """Violations of the protocol whose culprit is a text: it is a place in the roster, which has the name."""
    for node in module.nodes:
        if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"ProtocolViolation", "Equivocated"}:
            continue
        if isinstance(node.args[0], ast.JoinedStr) or isinstance(getattr(node.args[0], "value", None), str):
            yield f"{module.name}:{node.lineno} blames {ast.unparse(node.args[0])}"


def numpy_random(module: Module) -> Iterator[str]:
    """numpy.random where keys, masks or noise are made."""
    if not any(within(module.name, package) for package in NO_NUMPY_RANDOM):
        return
    names = {ast.unparse(node) for node in module.nodes if isinstance(node, ast.Attribute)}
    for name in {*names, *module.imports()}:
        if name in {"np.random", "numpy.random"} or name.startswith("numpy.random."):
            yield f"{module.name} uses {name}"


def tainted_rules(module: Module) -> Iterator[str]:
    """A rule given to `Untainted.then` that names a member's records, or what was computed of them before."""
    for function in module.functions() if ".then(" in module.text else ():
        tainted = set[str]()
        for node in sorted(
            (each for each in ast.walk(function) if isinstance(each, ast.Assign)), key=lambda n: n.lineno
        ):
            value = ast.unparse(node.value)
            if _reads_records(node.value, tainted) and not value.endswith(".shape[1]") and not NOISED.search(value):
                tainted |= {
                    name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
                }
        for node in ast.walk(function):
            is_rule = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".then")
            if is_rule and any(_reads_records(rule, tainted) for rule in node.args):
                yield f"{module.name}:{node.lineno}: a rule of {ast.unparse(node)[:60]} reads a member's records"


def _reads_records(node: ast.AST, tainted: set[str]) -> bool:
    """Whether an expression names records or inputs of a member's, or what was computed of them."""
    return any(
        (isinstance(each, ast.Attribute) and ast.unparse(each) in RECORDS)
        or (isinstance(each, ast.Name) and each.id in tainted)
        for each in ast.walk(node)
    )


def unstated(module: Module) -> Iterator[str]:
    """A test without a docstring that states the property."""
    for function in module.functions():
        if function.name.startswith("test") and ast.get_docstring(function) is None:
            yield f"{module.name}.{function.name} does not state its property"


@pytest.mark.parametrize(
    "rule", [too_long, vaguely_named, undocumented, forbidden, numpy_random, named_culprits, tainted_rules]
)
def test_packages_keep_the_rule(rule):
    """No module of the installed packages breaks the rule."""
    assert [violation for module in installed() for violation in rule(module)] == []


@pytest.mark.parametrize("rule", [unstated, vaguely_named])
def test_tests_keep_the_rule(rule):
    """Each test states its property, and no test module has a name that says nothing."""
    assert [violation for module in modules("tests") for violation in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (too_long, "secagg.data", "x = 1\n" * 501),
        (too_long, "secagg.data", "def f():\n" + "    x = 1\n" * 41),
        (vaguely_named, "secagg.data.utils", ""),
        (vaguely_named, "secagg.common.shapes", ""),
        (undocumented, "secagg.data", "x = 1"),
        (undocumented, "secagg.data", '"""Doc."""\ndef f(): ...'),
        (undocumented, "secagg.data", '"""Doc."""\nclass C:\n    """Doc."""\n    async def f(self): ...'),
        (undocumented, "methods.x", '"""Doc."""\nclass C(Round):\n    """Doc."""\n    def f(self): ...'),
        (forbidden, "secagg.data", "import random"),
        (forbidden, "secagg.data", "from random import choice"),
        (forbidden, "secagg.data", "def lazy():\n    import pickle"),
        (forbidden, "secagg.data", "np.load(path, allow_pickle=True)"),
        (forbidden, "secagg.data", "eval('1')"),
        (forbidden, "secagg.data", "# todo: finish"),
        (named_culprits, "methods.closed_form.fedcgs", "raise ProtocolViolation('server', 'lies')"),
        (named_culprits, "secagg.session", "raise ProtocolViolation(f'member {one}', 'lies')"),
        (
            tainted_rules,
            "methods.training.fraug",
            "def f(local, flat):\n    flat.then(lambda w: w / len(local.examples))",
        ),
        (
            tainted_rules,
            "methods.training.fraug",
            "def f(local, flat):\n    n = len(local.inputs)\n    flat.then(lambda w: w / n)",
        ),
        (
            tainted_rules,
            "methods.training.fraug",
            "def f(local, w):\n    y = local.examples.y\n    n = len(y)\n    w.then(lambda w: w * n)",
        ),
        (numpy_random, "secagg.crypto", "import numpy.random"),
        (numpy_random, "secagg.session.client", "from numpy import random"),
        (numpy_random, "secagg.protection.masking", "from numpy.random import default_rng"),
        (numpy_random, "secagg.transport", "noise = np.random.default_rng().normal()"),
        (unstated, "tests.test_data", "def test_f(): ..."),
        (unstated, "tests.test_data", "class TestF:\n    async def test_f(self): ..."),
    ],
)
def test_rule_finds_the_violation(rule, name, text):
    """Each rule names exactly the one place that breaks it."""
    assert len(list(rule(Module(name, text)))) == 1


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (too_long, "secagg.data", '"""Doc.\n' + "more\n" * 500 + '"""\n' + "x = 1\n\n" * 500),
        (too_long, "secagg.data", 'def f():\n    """Doc.\n\n    More.\n    """\n' + "    x = 1\n" * 40),
        (undocumented, "secagg.data", '"""Doc."""\ndef _f(): ...\nclass _C:\n    def f(self): ...'),
        (forbidden, "secagg.data", "import secagg.randomness\nmodel.eval()"),
        (
            tainted_rules,
            "methods.f",
            "def f(local, w):\n    w = dp_sgd(w, local.examples)\n    w.then(lambda v: v - w.start)",
        ),
        (
            tainted_rules,
            "methods.f",
            "def f(local, w):\n    d = local.examples.records.shape[1]\n    w.then(lambda v: v[:d])",
        ),
        (numpy_random, "secagg.data", "np.random.default_rng(0)"),
    ],
)
def test_rule_allows(rule, name, text):
    """Docstrings and blank lines are free, private names need no docstring, public seeds may shuffle data."""
    assert list(rule(Module(name, text))) == []
