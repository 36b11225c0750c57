"""Every planted fault makes the tests fail that are named beside it, and these pass without it.

A fault by name: `pytest -m long -k NAME tests/mutations/test_planted.py`.
"""

import importlib.util
from pathlib import Path

import pytest

from secagg import networks as models
from tests.mutations.planting import ROOT, FaultFinder, Outcome, PlantedFault, entries, run_tests

ENTRIES = entries()
DEADLY = [each for each in ENTRIES if not each.reason]


def named(fault: PlantedFault) -> str:
    """The fault's name, for the tests' names."""
    return fault.name


@pytest.mark.long
@pytest.mark.parametrize("fault", DEADLY, ids=named)
def test_fault_is_killed(fault: PlantedFault, tmp_path: Path) -> None:
    """One of the named tests fails with the fault planted."""
    outcome = run_tests(fault.tests, fault.name, tmp_path)
    assert outcome.is_killed, outcome.output


@pytest.mark.long
def test_named_tests_pass_without_a_fault(tmp_path: Path) -> None:
    """Without a fault every named test passes, so that it is the fault that fails them."""
    named_tests = sorted({each for fault in DEADLY for each in fault.tests})
    outcome = run_tests(named_tests, "", tmp_path)
    assert outcome.status == pytest.ExitCode.OK, outcome.output


@pytest.mark.parametrize("fault", ENTRIES, ids=named)
def test_entry_fits_the_source(fault: PlantedFault) -> None:
    """The function is there with every old text once, the changed module compiles, and the tests exist."""
    assert compile(fault.planted(), str(fault.path), "exec") is not None
    assert fault.planted() != fault.path.read_text()
    assert bool(fault.tests) != bool(fault.reason)
    for each in fault.tests:
        path, _, name = each.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / "tests" / path).read_text()


def test_every_fault_has_a_name_of_its_own() -> None:
    """`--plant NAME` names one fault."""
    assert len({each.name for each in ENTRIES}) == len(ENTRIES) > 0


@pytest.mark.parametrize(
    ("function", "old"),
    [
        ("secagg.networks.taint:gone", "value"),
        ("secagg.networks.taint:public", "a text that is not there"),
        ("secagg.networks.taint:require_untainted", "value"),
        ("secagg.networks.taint:Untainted.require_untainted", "isinstance"),
    ],
    ids=["function is gone", "text is gone", "text occurs twice", "function of another scope"],
)
def test_entry_that_no_longer_fits_is_refused(function: str, old: str) -> None:
    """An entry whose function is gone, or whose old text is not there exactly once, is an error."""
    with pytest.raises(LookupError):
        PlantedFault("stale", "", function, ((old, ""),)).planted()


def test_planted_module_runs_with_the_fault() -> None:
    """A module that is loaded after planting runs the changed method, and nothing else of it changes."""
    changes = (("Untainted(rule(self.value))", "Untainted(self.value)"),)
    finder = FaultFinder(PlantedFault("rule", "", "secagg.networks.taint:Untainted.then", changes))
    assert finder.find_spec("secagg.networks.trained_model", models.__path__) is None
    spec = finder.find_spec("secagg.networks.taint", models.__path__)
    assert spec is not None
    assert spec.loader is not None
    taint = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(taint)
    assert taint.public(1).then(lambda value: value + 1).value == 1
    assert taint.require_untainted(taint.public(1)) == 1


@pytest.mark.parametrize(
    ("status", "failures", "errors", "is_killed"),
    [
        (1, ("assert 1 == 2",), 0, True),
        (0, (), 0, False),
        (1, (), 1, False),
        (2, (), 1, False),
        (1, ("NameError: name 'x' is not defined",), 0, False),
        (4, (), 0, False),
    ],
)
def test_only_a_failed_test_kills(status: int, failures: tuple[str, ...], errors: int, is_killed: bool) -> None:
    """Tests that pass, that cannot be collected or set up, or that meet a fault written wrongly kill nothing."""
    assert Outcome(status, failures, errors, "").is_killed is is_killed
