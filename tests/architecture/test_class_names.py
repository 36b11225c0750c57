"""Class names: one meaning each, and an underscore where one module alone uses the class."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

from tests.architecture.source import Module, installed, modules

WORD = re.compile(r"\w+")
EXCEPTIONS = {"Interval": "it stands in the text of a search space, whose digest draws FedPop's first population"}
"""Names that break a rule, each with its reason; at most eight."""
MOST_EXCEPTIONS = 8


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """The public classes that a module defines at its top."""
    return (node for node in module.tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))


def twice(found: Iterable[Module]) -> Iterator[str]:
    """A public class name that stands in two modules."""
    places = defaultdict(list)
    for module in found:
        for node in classes(module):
            places[node.name].append(module.name)
    return (f"{name} stands in {' and '.join(of)}" for name, of in sorted(places.items()) if len(of) > 1)


def of_one_module(found: Iterable[Module], users: Iterable[Module]) -> Iterator[str]:
    """A public class that no other module names, tests included."""
    named = defaultdict(set)
    for module in users:
        for word in set(WORD.findall(module.text)):
            named[word].add(module.name)
    for module in found:
        for node in classes(module):
            if named[node.name] <= {module.name}:
                yield f"{module.name}.{node.name} is used by its own module alone: call it _{node.name}"


def kept(violations: Iterable[str]) -> list[str]:
    """The violations that are no exception."""
    return [each for each in violations if not any(re.search(rf"\b{name}\b", each) for name in EXCEPTIONS)]


def test_no_class_name_stands_twice():
    """A public class name has one meaning in the whole product."""
    assert kept(twice(installed())) == []


def test_classes_of_one_module_are_private():
    """A class that one module alone names begins with an underscore."""
    assert kept(of_one_module(installed(), modules("secagg", "methods", "threat_models", "tests"))) == []


def test_exceptions_are_few():
    """At most eight names are excepted."""
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (["class A: ...", "class A: ..."], twice),
        (["class A: ...", "x = 1"], lambda found: of_one_module(found, found)),
    ],
)
def test_rules_find_their_violations(texts, rule):
    """Each rule finds the fault that it is for; a name with an underscore, or one that is used elsewhere, is none."""
    found = [Module(f"secagg.m{place}", text) for place, text in enumerate(texts)]
    assert len(list(rule(found))) == 1
    private = [Module(module.name, module.text.replace("A", "_A")) for module in found]
    assert list(rule(private)) == []
    assert list(of_one_module([found[0]], [*found, Module("tests.t", "A()")])) == []
