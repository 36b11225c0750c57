"""What is known of a protection is known to the protection: nobody else asks for its name, and a new one just works."""

import ast
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

from secagg.agreement.roster import Member, Roster
from secagg.cli.options import ProtectionOption
from secagg.crypto.signatures import SigningKey
from secagg.data import open_dataset
from secagg.experiments.choosing import compare
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.simulation import simulate_dataset
from secagg.plan_facts.explanation import explain
from secagg.plan_facts.planning import PlanChoices, PublicData, make_plan
from secagg.plan_facts.policy_writing import policy_accepting
from secagg.protection import PROTECTIONS, Protection
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.architecture.source import Module, installed, within
from threat_models.report.gate import DEFAULT, Gate

NAMED = {"masked", "shared", "encrypted"}
MAY_NAME = {
    "secagg.protection": "they are made there",
    "secagg.agreement.policy": "what a member consents to unless it says otherwise; protections stand after policies",
    "methods.training.feddat": "another sense: the adapter that members share",
    "methods.training.fraug": "another sense: a normalisation that members share",
    "secagg.networks.adapted": "another sense: the tensors that members share",
    "threat_models.active": "each probe cheats in the messages of one protection",
    "threat_models.attacks.protocol.masked_uploads": "an attack on uploads that are masked",
    "threat_models.attacks.protocol.split_of_sum": "an attack on sums that are decrypted",
}
MAY_IMPORT = "threat_models.evidence.split_sessions"
"""Ciphertexts' parts are split as only the encrypted protection's own functions can."""


def names_protections(module: Module) -> Iterator[str]:
    """The lines outside of docstrings that spell the name of a protection."""
    if any(within(module.name, package) for package in MAY_NAME):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and node.value in NAMED:
            yield f"{module.name}:{node.lineno} knows {node.value!r} by its name"


def test_nobody_knows_a_protection_by_its_name() -> None:
    """No installed module spells a protection's name but those that may."""
    assert [found for module in installed() for found in names_protections(module)] == []


def imports_inside(module: Module) -> Iterator[str]:
    """What a module outside of the protections imports of one of them alone."""
    if any(within(module.name, package) for package in (*MAY_NAME, MAY_IMPORT)):
        return
    folders = ("encryption", "masking", "none", "sharing")
    for name in module.imports():
        if any(within(name, f"secagg.protection.{folder}") for folder in folders):
            yield f"{module.name} imports {name}"


def test_nobody_imports_from_inside_a_protection() -> None:
    """Only the registry, and those that attack one protection, know what is in its folder."""
    assert [found for module in installed() for found in imports_inside(module)] == []
    text = "from secagg.protection.sharing.aggregator import Collecting"
    assert list(imports_inside(Module("secagg.session.aggregator", text)))


def test_nobody_compares_with_the_name_of_no_protection() -> None:
    """Even the protection "none", whose name is a word of its own, is known by what it does."""
    held = [
        f"{module.name}:{node.lineno}"
        for module in installed()
        if not any(within(module.name, package) for package in MAY_NAME)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Compare) and "none" in map(_constant, (node.left, *node.comparators))
        if any("protection" in ast.unparse(each) for each in (node.left, *node.comparators))
    ]
    assert held == []


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


@pytest.mark.parametrize(
    "text", ["x = plan.protection == 'masked'", "HOW = {'shared': 1}", "f(protection='encrypted')"]
)
def test_a_spelt_name_is_found(text: str) -> None:
    """Spelling a name is found in a comparison, a table and a default, but where it may be."""
    assert len(list(names_protections(Module("secagg.federation.helper_party", text)))) == 1
    assert list(names_protections(Module("secagg.protection.sharing.client", text))) == []


@pytest.fixture(params=sorted(PROTECTIONS))
def fourth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of one more protection: another one under a new name, in the registry and nowhere else."""
    monkeypatch.setitem(PROTECTIONS, "veiled", replace(PROTECTIONS[request.param], name="veiled"))
    return str(request.param)


def a_roster(clients: int) -> Roster:
    """A server and clients, and no helper."""
    names = [("server", "server"), *((f"client-{number}", "client") for number in range(clients))]
    members = [Member(name, role, SigningKey.generate(OperatingSystem()).public) for name, role in names]
    return Roster.of("a consortium", members)


def test_one_more_protection_simulates(fourth: str) -> None:
    """It opens the same sum, to the bit, as the one that it is, with a client that leaves."""
    data = open_dataset("wine")
    one, other = (
        simulate_dataset(data, SimulationSettings(protection=name, dropouts=1, clients=4, seed=3))
        for name in ("veiled", fourth)
    )
    found, expected = one.to_json(), other.to_json()
    assert found["protection"] == "veiled"
    assert [found[name] for name in ("aggregate_sha256", "head_sha256", "survivors")] == [
        expected[name] for name in ("aggregate_sha256", "head_sha256", "survivors")
    ]


def test_one_more_protection_is_planned_and_explained(fourth: str) -> None:
    """`plan --explain` compares it, `plan show` explains it, a policy accepts it, a gate may ask for it."""
    data, roster = PublicData.of_shape((4,), ("a", "b")), a_roster(4)
    choices = PlanChoices(radius=1.0)
    shown = {each.protection: each for each in compare(data, roster, choices)}
    assert list(shown) == [*(name for name in PROTECTIONS if name != "veiled"), "veiled"]
    same = [replace(shown[name], protection="", seconds=0.0) for name in ("veiled", fourth)]
    assert same[0] == same[1]
    if PROTECTIONS[fourth].helper_role:
        return
    plan = make_plan(data, roster, replace(choices, protection="veiled"), OperatingSystem())
    setup = RoundSetup.of(plan, roster)
    assert dict(explain(setup.facts))["protection"] == "veiled"
    policy = policy_accepting(plan, "records")
    assert ("veiled" in policy.protections) is PROTECTIONS[fourth].hides_vectors
    text = DEFAULT.read_text(encoding="utf-8")
    assert "veiled" in Gate.parse(text.replace("protections = [", 'protections = ["veiled", ')).protections


def test_option_lists_every_protection() -> None:
    """The option's help is made from the registry."""
    help_of = ProtectionOption.__metadata__[0].help
    assert all(name in help_of for name in PROTECTIONS)


def test_every_field_of_a_protection_is_explained_below_it() -> None:
    """Each field of `Protection` is followed by a line that says what it is."""
    tree = ast.parse(inspect.getsource(Protection)).body[0]
    assert isinstance(tree, ast.ClassDef)
    explained = {
        field.target.id
        for field, below in itertools.pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
    assert explained == {each.name for each in fields(Protection)}
