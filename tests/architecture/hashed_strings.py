"""The literal strings of the installed packages that reach a hash, a signature or a key, wherever their code stands.

It begins with the functions that hash, sign and derive (`SINKS`). A function that hands one of its own parameters to
such a place is a sink at that parameter, and so on. Names of constants are followed to their values.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cache

from tests.architecture.source import Function, Module

SINKS = {
    "labelled": ("label", 0),
    "digest": ("label", 0),
    "derive": ("label", 2),
    "agree": ("label", 2),
    "sign": ("label", 0),
    "is_signed": ("label", 2),
}
"""Name of a function: the parameter that is a label, and its place (without `self`)."""
HASHES = {"sha256", "shake_256", "sha512", "HMAC", "HKDF", "digest_of"}


@dataclass(frozen=True)
class Sink:
    """A function that hashes one of its parameters."""

    function: str
    parameter: str
    place: int
    needed: int = 1
    """Arguments that every call of it has: a list's `append` is not a journal's."""

    def argument(self, call: ast.Call) -> ast.expr | None:
        """What a call of the function gives for the parameter."""
        if len(call.args) + len(call.keywords) < self.needed:
            return None
        named = [keyword.value for keyword in call.keywords if keyword.arg == self.parameter]
        return named[0] if named else call.args[self.place] if len(call.args) > self.place else None


def name_of(called: ast.expr) -> str:
    """The last part of a called name."""
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


@cache
def _calls(function: Function) -> tuple[tuple[str, ast.Call], ...]:
    """The calls within a function, with the last parts of their names."""
    return tuple((name_of(node.func), node) for node in ast.walk(function) if isinstance(node, ast.Call))


@cache
def sinks_of(modules: tuple[Module, ...]) -> dict[str, set[Sink]]:
    """The functions of `SINKS`, and those that pass a parameter on to one, by name."""
    known = {name: {Sink(name, *place)} for name, place in SINKS.items()}
    functions = [function for module in modules for function in module.functions()]
    while True:
        found = {sink for function in functions for sink in _passed_on(function, known)}
        if all(sink in known.get(sink.function, ()) for sink in found):
            return known
        for sink in found:
            known.setdefault(sink.function, set()).add(sink)


def _hashed(name: str, call: ast.Call, sinks: dict[str, set[Sink]], whole: Container[str]) -> list[ast.expr]:
    """The arguments of a call that are hashed; all of them where the function is one of `whole`."""
    found = [argument for sink in sinks.get(name, ()) if (argument := sink.argument(call)) is not None]
    return found + (call.args if name in whole else [])


def _passed_on(function: Function, known: dict[str, set[Sink]]) -> Iterator[Sink]:
    parameters = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
    for name, call in _calls(function):
        for argument in _hashed(name, call, known, SINKS):  # what stands beside a label is hashed as well
            for each in _names_in(argument):
                if each in parameters:
                    yield from _at(function, each, parameters)


def _names_in(argument: ast.expr) -> Iterator[str]:
    """The names whose text is an argument, or a part of it."""
    match argument:
        case ast.Name(id=name):
            yield name
        case ast.Call(func=ast.Attribute(value=inner, attr="encode")):
            yield from _names_in(inner)
        case ast.JoinedStr(values=parts):
            for part in parts:
                if isinstance(part, ast.FormattedValue):
                    yield from _names_in(part.value)
        case _:
            pass


def _at(function: Function, parameter: str, parameters: list[str]) -> Iterator[Sink]:
    """The sink, where the parameter is a string: bytes that are hashed are values and no words."""
    annotation = next(each.annotation for each in function.args.args if each.arg == parameter)
    if annotation is not None and ast.unparse(annotation) in ("str", "Kind"):
        needed = len(parameters) - len(function.args.defaults)
        yield Sink(function.name, parameter, parameters.index(parameter), needed)


@cache
def _assigned(function: Function) -> dict[str, list[ast.expr]]:
    """What a function assigns to each of its names."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _is_word(text: str) -> bool:
    return any(map(str.isalpha, text))


class Strings:
    """Reads literals out of arguments."""

    def __init__(self, modules: tuple[Module, ...]) -> None:
        self.modules = modules
        self.sinks = sinks_of(modules)
        self._constants = {
            (module.name, target.id): node.value
            for module in modules
            for node in module.tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }

    def found(self) -> set[str]:
        """Every literal; `{}` stands for what is put in."""
        return {text for module in self.modules for text in self._of(module) if _is_word(text)}

    def _of(self, module: Module) -> Iterator[str]:
        for function in module.functions():
            for name, call in _calls(function):
                for argument in _hashed(name, call, self.sinks, SINKS.keys() | HASHES):
                    own = _assigned(function)
                    yield from self.read(argument, module, own)

    def read(self, node: ast.expr, module: Module, own: dict[str, list[ast.expr]]) -> Iterator[str]:
        """The literals of an expression; `own`: what its function assigns."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Constant(value=bytes(text)):
                yield text.decode("latin-1")
            case ast.JoinedStr():
                yield "".join(self._part(part, module, own) for part in node.values)
            case ast.BinOp(left=left, right=right):
                yield from (*self.read(left, module, own), *self.read(right, module, own))
            case ast.IfExp(body=first, orelse=second):
                yield from (*self.read(first, module, own), *self.read(second, module, own))
            case ast.Call(func=ast.Attribute(value=inner, attr="encode")):
                yield from self.read(inner, module, own)
            case ast.Name(id=name) if name in own:
                yield from (text for value in own[name] for text in self.read(value, module, {}))
            case ast.Name(id=name):
                value = self._constant(name, module)
                if value is not None:
                    yield from self.read(value, module, own)
            case _:
                pass  # a value, no literal

    def _part(self, part: ast.expr, module: Module, own: dict[str, list[ast.expr]]) -> str:
        if isinstance(part, ast.FormattedValue):
            return next(self.read(part.value, module, own), "{}")
        return next(self.read(part, module, own), "")

    def _constant(self, name: str, module: Module) -> ast.expr | None:
        """The value of a constant of this module, or of one that it imports."""
        places = ((module.name, name), *_imports(module).get(name, ()))
        return next((self._constants[place] for place in places if place in self._constants), None)


@cache
def _imports(module: Module) -> dict[str, list[tuple[str, str]]]:
    """Where each imported name of a module comes from."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                found.setdefault(each.asname or each.name, []).append((node.module or "", each.name))
    return found


def names(strings: Strings, modules: tuple[Module, ...]) -> set[str]:
    """What classes of some modules call themselves: `name`, a constant or what a property gives, or its `form`."""
    found = {text for module in modules for value in _own_names(module) for text in strings.read(value, module, {})}
    return {text for text in found if _is_word(text)}


def _own_names(module: Module) -> Iterator[ast.expr]:
    for owner in (node for node in module.nodes if isinstance(node, ast.ClassDef)):
        for node in owner.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id="name"), value=ast.expr() as value):
                    yield value
                case ast.Assign(targets=[ast.Name(id="name" | "form")], value=value):
                    yield value
                case ast.FunctionDef(name="name"):
                    yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
                case _:
                    pass


def tags(modules: tuple[Module, ...]) -> dict[str, str]:
    """The tag of each wire message by its protobuf message: what `@message` states, else the class's name."""
    found = {}
    for module in modules:
        for node in (each for each in module.nodes if isinstance(each, ast.ClassDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and name_of(decorator.func) == "message":
                    stated = [ast.literal_eval(each.value) for each in decorator.keywords if each.arg == "tag"]
                    found[ast.literal_eval(decorator.args[0])] = stated[0] if stated else node.name
    return found


def asked_by_name(modules: tuple[Module, ...]) -> set[str]:
    """The classes whose `__name__` is taken in the code."""
    nodes = (node for module in modules for node in module.nodes)
    return {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr == "__name__" and isinstance(node.value, ast.Name)
        if node.value.id[0].isupper()
    }
