"""Every refusal on a coordinator's and a member's way into a session says what to do about it."""

import ast

import pytest

from secagg.agreement.roster import check_name
from secagg.errors import BadInput
from tests.architecture.source import ROOT

FILES = (
    *(f"secagg/cli/{name}.py" for name in ("aggregator", "join", "key_holder", "pki", "plan")),
    *(f"secagg/cli/{name}.py" for name in ("plan_approval", "helper", "server", "status")),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "secagg" / "transport").glob("*.py")),
    "secagg/federation/endpoints.py",
    "secagg/plan_facts/countersigning.py",
    "secagg/plan_facts/planning.py",
    "secagg/agreement/plan.py",
    "secagg/agreement/policy.py",
    "secagg/agreement/roster.py",
)


def without_remedy(source: str) -> list[int]:
    """The lines of a module at which a BadInput is made without a remedy."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    refusals = (each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "BadInput")
    return [each.lineno for each in refusals if "remedy" not in {given.arg for given in each.keywords}]


@pytest.mark.parametrize("file", FILES)
def test_refusal_has_a_remedy(file: str) -> None:
    """No module on the way makes a BadInput that only says what is wrong."""
    assert without_remedy((ROOT / file).read_text()) == []


def test_missing_remedy_is_found() -> None:
    """The search tells a refusal with a remedy from one without."""
    assert without_remedy('raise BadInput("no")\nraise BadInput("no", remedy="yes")') == [1]


@pytest.mark.parametrize(
    ("name", "like"), [("Spital Köln", "spital-koln"), ("A & B", "a-b"), ("-x-", "x"), ("x" * 64, "x" * 63)]
)
def test_name_that_cannot_be_is_refused_with_one_that_can(name: str, like: str) -> None:
    """The remedy offers a name like the given one, and that one is accepted."""
    with pytest.raises(BadInput, match=f": {like}, say$"):
        check_name(name)
    check_name(like)


@pytest.mark.parametrize("name", ["", "---", "京都"])
def test_name_that_is_like_none_gets_no_proposal(name: str) -> None:
    """Where nothing of a name is left the rule alone is stated."""
    with pytest.raises(BadInput, match=r"at either end$"):
        check_name(name)
