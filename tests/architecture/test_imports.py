"""The import graph: each package sees only what stands before it."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.source import PACKAGES, ROOT, Module, installed, within

ORDER = (
    "secagg.errors",
    "secagg.randomness",
    "secagg.unsafe_for_tests",
    "secagg.system",
    "secagg.wire",
    "secagg.crypto",
    "secagg.encoding",
    "secagg.privacy",
    "secagg.agreement",
    "secagg.ledger",
    "secagg.protection",
    "secagg.transport",
    "secagg.transcript",
    "secagg.heads",
    "methods",  # the seam: method, round, gate, declaration, and a registry that loads by name
    "secagg.plan_facts",
    "secagg.session",
    "secagg.verification",
    "secagg.federation",
    "secagg.data",
    "secagg.features",
    "secagg.networks",
    "secagg.generation",
    "methods.closed_form",
    "methods.slots",
    "methods.training",
    "methods.own_models",
    "methods.search",
    "methods.baselines",
    "secagg.scoring",
    "secagg.experiments",
    "threat_models",
    "secagg.cli",
    "secagg",  # the public list
    "secagg.__main__",
)
NAMED_IN_TYPES = {
    ("methods.round", "secagg.features.FeatureMap"),
    ("secagg.plan_facts.records", "secagg.features.FeatureMap"),
}
"""What stands behind the seam from records to integers, by its type; `test_core.py` holds that it is never loaded."""
TOKEN, SEEDED = "secagg.unsafe_for_tests", "secagg.experiments.seeding"
PROTECTIONS = tuple(f"secagg.protection.{name}" for name in ("masking", "sharing", "encryption", "none"))
AUDITED = (
    "errors",
    "randomness",
    "system.reading",
    "wire",
    "encoding",
    "privacy",
    "agreement.plan",
    "transcript",
    "heads",
    "protection.PROTECTIONS",
)
FREE = ("threat_models.active", "threat_models.audit", "threat_models.evidence")
AUDITOR_SEES = (
    *(f"secagg.{name}" for name in AUDITED),
    "secagg.protection.PROTECTIONS",  # the facts about them
    "secagg.networks",  # whose gradients and losses attacks take
    "methods",
    "threat_models",
)


def place(name: str, order: tuple[str, ...] = ORDER) -> str | None:
    """The longest entry of the order that holds a dotted name; None for code of others."""
    return max((package for package in order if within(name, package)), key=len, default=None)


def out_of_order(module: Module) -> Iterator[str]:
    """Imports of what stands later in the order, and modules that have no place in it."""
    own = place(module.name)
    if own is None or (own == "secagg" and module.name != "secagg"):
        yield f"{module.name} has no place in the order"
        return
    for imported in module.imports():
        target = place(imported)
        if imported.startswith("."):
            yield f"{module.name} imports {imported} by a relative name"
        elif target is None or (module.name, imported) in NAMED_IN_TYPES:
            continue
        elif ORDER.index(target) > ORDER.index(own):
            yield f"{module.name} imports {imported}, which stands after it"


def crossing_protections(module: Module) -> Iterator[str]:
    """Imports from one protection into another."""
    own = place(module.name, PROTECTIONS)
    for imported in module.imports():
        target = place(imported, PROTECTIONS)
        if own and target and own != target:
            yield f"{module.name} imports {imported}, another protection"


def generated_outside_wire(module: Module) -> Iterator[str]:
    """Imports of generated code by anything but secagg.wire."""
    for imported in module.imports():
        if within(imported, "secagg.wire.generated") and not within(module.name, "secagg.wire"):
            yield f"{module.name} imports {imported}; only secagg.wire may"


def auditor_overreach(module: Module) -> Iterator[str]:
    """Imports by threat_models of more than formulas; what reads transcripts, rehearses or cheats is free."""
    if not within(module.name, "threat_models") or place(module.name, FREE):
        return
    for imported in module.imports():
        if place(imported, PACKAGES) and not place(imported, AUDITOR_SEES):
            yield f"{module.name} imports {imported}; it reads transcripts and formulas only"


def seeded_elsewhere(module: Module) -> Iterator[str]:
    """Imports of the token for predictable keys and noise by anything but the simulator's own option."""
    for imported in module.imports():
        if within(imported, TOKEN) and module.name != SEEDED:
            yield f"{module.name} imports {imported}; only {SEEDED} may"


RULES = [out_of_order, crossing_protections, generated_outside_wire, auditor_overreach, seeded_elsewhere]


@pytest.mark.parametrize("rule", RULES)
def test_packages_keep_the_rule(rule):
    """No module of the installed packages breaks the rule."""
    assert [violation for module in installed() for violation in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (out_of_order, "secagg.errors", "import secagg.randomness"),
        (out_of_order, "secagg.crypto.sealing", "from secagg.agreement.plan import Plan"),
        (out_of_order, "secagg.crypto.sealing", "from secagg import plan"),
        (out_of_order, "secagg.crypto.sealing", "def lazy():\n    import secagg.cli.demo"),
        (out_of_order, "secagg.agreement.plan", "import methods.closed_form.fedcgs"),
        (out_of_order, "secagg.experiments.simulate", "import threat_models.views"),
        (out_of_order, "secagg.experiments.simulate", "from secagg import simulate"),
        (seeded_elsewhere, "secagg.cli.client", "from secagg.unsafe_for_tests import TOKEN"),
        (seeded_elsewhere, "secagg.experiments.session", "def late():\n    import secagg.unsafe_for_tests"),
        (out_of_order, "secagg.cli", "from . import demo"),
        (out_of_order, "secagg.leftovers", ""),
        (crossing_protections, "secagg.protection.masking.client", "from secagg.protection import sharing"),
        (crossing_protections, "secagg.protection.none", "import secagg.protection.masking.graph"),
        (generated_outside_wire, "secagg.transport.server", "from secagg.wire.generated import plan_pb2"),
        (auditor_overreach, "threat_models.views", "from secagg.session import client"),
        (auditor_overreach, "threat_models.attacks.reconstruction.inversion", "import secagg.protection.masking"),
    ],
)
def test_rule_finds_the_violation(rule, name, text):
    """Each rule names exactly the one import that breaks it."""
    assert len(list(rule(Module(name, text)))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("secagg.crypto.sealing", "import secagg.errors, secagg.crypto.keys, cryptography"),
        ("secagg.wire.plans", "from secagg.wire.generated import plan_pb2"),
        ("secagg.protection.masking.client", "from secagg.protection.interface import Protected"),
        ("secagg", "def simulate():\n    from secagg.experiments import simulate"),
        ("threat_models.active.server", "from secagg.session import server"),
        ("secagg.cli.audit", "from threat_models import views"),
        (SEEDED, "from secagg.unsafe_for_tests import TOKEN"),
    ],
)
def test_rules_allow_what_stands_before(name, text):
    """Imports along the order break no rule."""
    assert [violation for rule in RULES for violation in rule(Module(name, text))] == []


def loaded_by(statement: str) -> set[str]:
    """The modules in memory after one statement in a fresh interpreter."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


NOT_AT_START = {"torch", "grpc", "sklearn", "matplotlib", "secagg.unsafe_for_tests"}


def test_import_is_light_and_safe():
    """Importing secagg loads neither a heavy library nor the seeded randomness."""
    assert loaded_by("import secagg") & NOT_AT_START == set()


def test_simulator_loads_the_token_only_when_asked():
    """Neither the simulator nor a sweep brings the token with it, until somebody gives a seed for noise."""
    modules = "import secagg.experiments.sweep, secagg.cli.simulate, secagg.cli.client"
    source = "; from secagg.experiments.seeding import Randomness; Randomness({}, 0).source('')"
    assert TOKEN not in loaded_by(modules + source.format(None))
    assert TOKEN in loaded_by(modules + source.format(7))


def test_light_import_check_sees_what_is_loaded():
    """The check above notices a module that an import brings in."""
    assert loaded_by("import secagg.unsafe_for_tests") & NOT_AT_START == {"secagg.unsafe_for_tests"}
