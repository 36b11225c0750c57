"""The policy: every line can refuse, all refusals are listed at once, and the defaults are careful."""

import json
import math
import re
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods import METHODS, method_named
from methods.closed_form.prototypes import Prototypes
from methods.method import Parameters, SumSpec, effort_of
from secagg.agreement.policy import Budget, Effort, Policy, data_set, parse_limits, read_policy
from secagg.errors import BadInput, PlanRefused
from secagg.session import RoundSetup
from tests.agreement.federation_files import fewest, small_plan, small_roster
from tests.agreement.federation_files import policy_for as policy_in_part

ROSTER = small_roster()
PLAN = small_plan(ROSTER)
FEWEST = fewest(PLAN, ROSTER)
UPLOAD_BYTES = 5_000_000


@dataclass(frozen=True)
class NoisyPlan:
    """A plan with noise: what differs from `PLAN`."""

    epsilon: float = 0.5
    delta: float = 1e-6
    unit: str = "record"
    adjacency: str = "replace-one"
    noise: str = "client"

    def __getattr__(self, name: str) -> Any:
        return getattr(PLAN, name)


def policy_for(plan: Any, **changes: Any) -> Policy:
    """A policy that accepts the plan without noise, but for the changes."""
    return policy_in_part(plan, **{"max_epsilon_total": math.inf, **changes})


def refused(policy: Policy, plan: Any = PLAN, survivors: int = FEWEST, record_sums: int = 1) -> tuple[str, ...]:
    """The violated lines."""
    with pytest.raises(PlanRefused) as refusal:
        policy.check(plan, 4, survivors, UPLOAD_BYTES, record_sums)
    return refusal.value.violations


def test_fitting_policy_accepts() -> None:
    """A policy written for the plan accepts it."""
    policy_for(PLAN).check(PLAN, 4, FEWEST, UPLOAD_BYTES, 1)


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("roster", {"roster": "00" * 32}),
        ("backbones", {"backbones": ()}),
        ("backbones", {"backbones": ("11" * 32,)}),
        ("methods", {"methods": ("other",)}),
        ("protections", {"protections": ("shared",)}),
        ("results", {"results": ("server",)}),
        ("min_clients_in_sum", {"min_clients_in_sum": 4}),
        ("minimum_honest", {"minimum_honest": 4}),
        ("minimum_colluders", {"minimum_colluders": 3}),
        ("max_upload_mib", {"max_upload_mib": 4}),
        ("max_epsilon", {"max_epsilon": 8.0}),
        ("max_epsilon_total", {"max_epsilon_total": 8.0}),
        ("units", {"units": ("client",)}),
        ("units", {"units": ()}),
    ],
)
def test_each_line_refuses(line: str, change: dict[str, Any]) -> None:
    """A plan that breaks one line is refused with that line's name, and no other."""
    (violation,) = refused(policy_for(PLAN, **change))
    assert violation.startswith(f"{line}: ")


@pytest.mark.parametrize(
    ("line", "border", "step"),
    [
        ("min_clients_in_sum", FEWEST, 1),
        ("minimum_honest", FEWEST - PLAN.colluders, 1),
        ("minimum_colluders", PLAN.colluders, 1),
        ("max_upload_mib", -(-UPLOAD_BYTES >> 20), -1),
        ("max_epsilon", 0.5, -0.25),
        ("max_epsilon_total", 0.5, -0.25),
        ("max_delta", 1e-6, -1e-7),
    ],
)
def test_each_number_is_a_border(line: str, border: float, step: float) -> None:
    """What is exactly the policy's number is accepted, the next one beyond it is refused."""
    plan: Any = NoisyPlan()
    policy_for(PLAN, **{line: border}).check(plan, 4, FEWEST, UPLOAD_BYTES, 1)
    (violation,) = refused(policy_for(PLAN, **{line: border + step}), plan)
    assert violation.startswith(f"{line}: ")


@pytest.mark.parametrize("kind", ["rounds", "epochs", "steps", "parameters"])
def test_each_bound_of_training_is_a_border(kind: str) -> None:
    """As much as the policy says is accepted; a plan with one more is refused, with both numbers."""
    policy = policy_for(PLAN, **{f"max_{kind}": 7})
    policy.check(PLAN, 4, FEWEST, UPLOAD_BYTES, 1, Effort(**{kind: 7}))
    with pytest.raises(PlanRefused) as refusal:
        policy.check(PLAN, 4, FEWEST, UPLOAD_BYTES, 1, Effort(**{kind: 8}))
    (violation,) = refusal.value.violations
    assert re.fullmatch(rf"max_{kind}: .* 8 .*, more than 7", violation)


@pytest.mark.parametrize(
    ("parameters", "bounds"),
    [
        ({"rounds": 30, "epochs": 5}, {"max_rounds": 30, "max_epochs": 5, "max_parameters": 2 * 3, "max_steps": 0}),
        ({"rounds": 30, "gradients": 1, "epochs": 5}, {"max_rounds": 30, "max_epochs": 1, "max_parameters": 2 * 3}),
        ({"model": "mlp:7"}, {"max_rounds": 20, "max_epochs": 1, "max_parameters": 7 * 3 + 2 * 8}),
    ],
    ids=str,
)
def test_method_says_what_its_plan_costs_a_member(parameters: Parameters, bounds: dict[str, int]) -> None:
    """A plan fits a policy of exactly what its method says, and breaks one that allows less of any of it."""
    plan = small_plan(ROSTER, method="fedavg", parameters=tuple(parameters.items()), radius=None)
    setup = RoundSetup.of(plan, ROSTER)
    trusted = {"methods": ("fedavg",), "refinement_without_noise": True}
    setup.facts.check(policy_for(plan, **trusted, **bounds))
    for name, bound in bounds.items():
        if bound:
            with pytest.raises(PlanRefused, match=rf"^the plan is refused: \(1\) {name}: [^(]*$"):
                setup.facts.check(policy_for(plan, **trusted, **{**bounds, name: bound - 1}))


def test_steps_of_dp_sgd_and_what_they_pass_over_are_bounded() -> None:
    """35 steps that draw a tenth of the records each are 35 steps, and four epochs, rounded up."""
    effort = effort_of(method_named("fedavg", {"sampling": 0.1, "steps": 35}).sums(4, 3, 16))
    assert effort == Effort(rounds=20, epochs=4, steps=35, parameters=15)


def test_own_projections_are_bounded() -> None:
    """Members' own models count with all that is trained of them, whether it leaves or not."""
    methods = (method_named(name, {"width": 8, "epochs": 2}) for name in ("fedpcl", "fedproto"))
    efforts = [effort_of(method.sums(4, 3, 16)) for method in methods]
    assert efforts == [Effort(50, 2, 0, 8 * 4), Effort(50, 2, 0, 8 * 4 + 3 * 9)]


def test_all_violations_are_listed_at_once() -> None:
    """A plan that breaks every line is refused with every line, in one message."""
    policy = policy_for(PLAN, roster="00", backbones=(), methods=(), protections=(), results=(), min_clients_in_sum=9,
                        minimum_honest=9, minimum_colluders=9, max_upload_mib=1, max_epsilon=0.0,
                        max_epsilon_total=0.0, units=())  # fmt: skip
    violations = refused(policy)
    names = [violation.split(":")[0] for violation in violations]
    assert names == ["roster", "backbones", "methods", "protections", "results", "min_clients_in_sum", "minimum_honest",
                     "minimum_colluders", "max_upload_mib", "max_epsilon", "max_epsilon_total", "units"]  # fmt: skip
    with pytest.raises(PlanRefused) as refusal:
        policy.check(PLAN, 4, FEWEST, UPLOAD_BYTES, 1)
    assert all(violation in str(refusal.value) for violation in violations)
    assert str(refusal.value).endswith("nothing was sent")


def test_default_refuses_a_sum_without_noise() -> None:
    """Unless "inf" is written, a plan without noise is refused."""
    policy = Policy("mine", PLAN.roster.hex(), (PLAN.backbone_digest.hex(),))
    names = [violation.split(":")[0] for violation in refused(policy)]
    assert names == ["max_epsilon", "max_epsilon_total"]


def test_default_refuses_no_protection() -> None:
    """Unless it is written, a plan without protection is refused."""
    plan = small_plan(ROSTER, protection="none")
    (violation,) = refused(policy_for(plan), plan)
    assert violation.startswith("protections: none")
    policy_for(plan, protections=("none",)).check(plan, 4, FEWEST, UPLOAD_BYTES, 1)


@pytest.mark.parametrize("clients", [2, 3])
def test_default_refuses_a_small_cohort(clients: int) -> None:
    """The sum of two clients is refused by default."""
    roster = small_roster(clients)
    plan = small_plan(roster, colluders=0, dropouts=clients - 2)
    (violation,) = refused(policy_for(plan, minimum_colluders=0), plan, fewest(plan, roster))
    assert violation.startswith("min_clients_in_sum: ")


def test_colluders_count_against_the_honest() -> None:
    """Survivors minus colluders must not fall below the policy's minimum of honest clients."""
    plan = small_plan(ROSTER, colluders=1)
    survivors = fewest(plan, ROSTER)
    policy_for(plan, minimum_honest=survivors - 1).check(plan, 4, survivors, UPLOAD_BYTES, 1)
    (violation,) = refused(policy_for(plan, minimum_honest=survivors), plan, survivors)
    assert violation.startswith("minimum_honest: ")


@pytest.mark.parametrize(
    ("line", "plan", "change"),
    [
        ("max_epsilon", NoisyPlan(epsilon=1.5), {"max_epsilon_total": 2.0}),
        ("max_epsilon_total", NoisyPlan(), {"max_epsilon_total": 0.25}),
        ("max_delta", NoisyPlan(delta=1e-4), {}),
        ("units", NoisyPlan(unit="client"), {"units": ("record",)}),
        ("adjacencies", NoisyPlan(), {"adjacencies": ("add-remove",)}),
        ("adjacencies", NoisyPlan(adjacency="add-remove"), {"adjacencies": ("replace-one",)}),
    ],
)
def test_each_promise_refuses(line: str, plan: Any, change: dict[str, Any]) -> None:
    """A noisy plan fits the defaults; one number or word outside the policy is refused with that line's name."""
    policy = Policy("mine", PLAN.roster.hex(), (PLAN.backbone_digest.hex(),))
    policy.check(NoisyPlan(), 4, FEWEST, UPLOAD_BYTES, 1)
    (violation,) = refused(replace(policy, **change), plan)
    assert violation.startswith(f"{line}: ")


def test_plan_without_noise_has_no_adjacency() -> None:
    """No adjacency is asked of a plan that promises nothing."""
    assert PLAN.adjacency == ""
    policy_for(PLAN, adjacencies=("add-remove",)).check(PLAN, 4, FEWEST, UPLOAD_BYTES, 1)


def test_further_sums_without_noise_are_refused() -> None:
    """Every exact sum after the first needs the policy's word, however many there are; noisy ones do not."""
    for sums in (2, 31):
        (violation,) = refused(policy_for(PLAN), PLAN, record_sums=sums)
        assert violation.startswith(f"refinement_without_noise: {sums - 1} more exact sum")
    policy_for(PLAN, refinement_without_noise=True).check(PLAN, 4, FEWEST, UPLOAD_BYTES, 31)
    policy_for(PLAN).check(PLAN, 4, FEWEST, UPLOAD_BYTES, 1)
    policy_for(PLAN).check(NoisyPlan(), 4, FEWEST, UPLOAD_BYTES, 31)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Stepping(Prototypes):
    """A method that sums the same records again in every step, whatever the parameter is called."""

    steps: int = 30

    @property
    def parameters(self) -> Parameters:
        """`steps`."""
        return {"steps": self.steps}

    def sums(self, dimension: int, classes: int, levels: int) -> tuple[SumSpec, ...]:
        """The same sum, `steps` times."""
        (once,) = super().sums(dimension, classes, levels)
        return (replace(once, times=self.steps),)


def test_sums_are_counted_by_the_rounds_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that opens 30 exact sums is refused by the default policy, though no parameter has a known name."""
    monkeypatch.setitem(METHODS, "stepping", Stepping)  # type: ignore[arg-type]
    for steps, further in ((30, 29), (2, 1)):
        plan = small_plan(ROSTER, method="stepping", parameters=(("steps", steps),))
        with pytest.raises(PlanRefused) as refusal:
            RoundSetup.of(plan, ROSTER).facts.check(policy_for(plan, methods=("stepping",)))
        (violation,) = refusal.value.violations
        assert violation.startswith(f"refinement_without_noise: {further} more")
    once = small_plan(ROSTER, method="stepping", parameters=(("steps", 1),))
    RoundSetup.of(once, ROSTER).facts.check(policy_for(once, methods=("stepping",)))


@pytest.mark.parametrize(
    ("choices", "sums"),
    [
        ({}, 1),
        ({"class_gate": 1}, 1),
        ({"parameters": (("refine", 5),), "radius": None}, 6),
        ({"parameters": (("refine", 5),), "radius": None, "class_gate": 1}, 6),
        ({"method": "mpft", "parameters": (("sampling", "cluster"), ("slots", 2), ("rounds", 3)), "class_gate": 2}, 4),
        ({"method": "fedtc", "parameters": (("threshold", 0.5),)}, 2),
    ],
    ids=str,
)
def test_every_sum_about_records_counts(choices: dict[str, Any], sums: int) -> None:
    """First sums, refinement, clustering and thresholds are about records; a census counts clients."""
    assert RoundSetup.of(small_plan(ROSTER, **choices), ROSTER).facts.record_sums == sums


def test_budget_is_read_from_the_policy() -> None:
    """The total, the delta that it is taken at, and whether infinite totals may repeat."""
    policy = policy_for(PLAN, max_epsilon_total=3.0, max_delta=1e-7, repeat_sessions=True)
    assert policy.budget == Budget(3.0, 1e-7, may_repeat=True)
    assert not policy_for(PLAN).budget.may_repeat


def test_versions_are_of_one_data_set() -> None:
    """The first part of a name says which data set it is."""
    assert {data_set(name) for name in ("heart", "heart/v2", "heart/2024/clean", "heart/")} == {"heart"}
    assert data_set("hearts") != data_set("heart")


def test_file_gives_the_policy_back(tmp_path: Path) -> None:
    """The written file reads back to the same policy, with infinity and odd names."""
    path = tmp_path / "policy.toml"
    policies = (
        policy_for(PLAN, data_name='a "b" \\ ü'),
        policy_for(PLAN, max_epsilon=2.5, repeat_sessions=True),
        policy_for(PLAN, max_epsilon_total=4.5, units=("client",), adjacencies=(), refinement_without_noise=True),
    )
    for policy in policies:
        path.write_text(policy.to_toml(), encoding="utf-8")
        assert read_policy(path) == policy


@pytest.mark.parametrize(
    "name",
    [
        *(
            "line\nbreak",
            "tab\there",
            "nul\0",
            "bell\x07",
            "del\x7f",
            "esc\x1b[8m",
            "c1\x9b",
            "heart\u200b",
            "he\u00adart",
        ),
        *(
            "\u202etraeh",
            "heart\u2066",
            "\ufeffheart",
            "heart\ufe0f",
            "he\u034fart",
            "heart\u3164",
            "heart\u2800",
            "heart\ufffc",
            "heart\U00016fe4",
            "heart\U0001d159",
            "he\xa0art",
            "a\u2028b",
        ),
        *("", " ", ".", "./heart", "/heart", "heart/", "heart//v2", "heart/./v2", "../heart", "heart/..", "heart/ /v2"),
        *("\uff0fheart", "heart\uff0f\uff0e\uff0fv2"),
    ],
    ids=ascii,
)
def test_name_that_shows_otherwise_than_it_is_is_refused(tmp_path: Path, name: str) -> None:
    """A data set's name with what cannot be seen, or with empty or dotted parts, is refused with a remedy."""
    text = HEADER.replace('"x"', json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f"))
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    for attempt in (lambda: read_policy(tmp_path / "policy.toml"), lambda: policy_for(PLAN, data_name=name)):
        with pytest.raises(BadInput, match=r"the name of the data set .*; write plain words, and a version"):
            attempt()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Z\u00fcrich", "Zu\u0308rich"),
        ("Z\u00fcrich", "ZU\u0308RICH/v2"),
        ("heart", "\uff48\uff25art"),
        ("heart/v2", "heart\uff0fv3"),
        ("final", "\ufb01nal"),
        ("my heart", " My  Heart "),
        ("stra\u00dfe", "STRASSE"),
        ("\u03c3\u03c2", "\u03a3\u03a3"),
        ("\u1fb3", "\u1fbc"),
    ],
    ids=ascii,
)
def test_every_spelling_has_one_budget(one: str, other: str) -> None:
    """Composed or decomposed, wide or narrow, in capitals or not, spaced or not: it is the same data set."""
    assert data_set(one) == data_set(other) != ""
    assert policy_for(PLAN, data_name=one).data_name == one
    assert policy_for(PLAN, data_name=other).data_name == other


@pytest.mark.parametrize(
    "name", ["./heart", "/heart", "heart\u200b", "he\u00adart", "heart/", "//heart/v2", "../heart"], ids=ascii
)
def test_names_that_older_policies_took_are_of_the_same_data_set(name: str) -> None:
    """What a name of an old ledger row shows is the data set that it is charged to."""
    assert data_set(name) == "heart"


@given(st.text(max_size=12))
def test_data_set_of_a_data_set_is_itself(name: str) -> None:
    """The key is stable: it, every normal form of the name, and its folded form have it too."""
    key = data_set(name)
    assert data_set(key) == key
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert data_set(unicodedata.normalize(form, key)) == key


HEADER = '[data]\nname = "x"\n[accept]\nroster = "00"\nbackbones = []\n'


def test_smallest_file_is_careful(tmp_path: Path) -> None:
    """A file with only what must be there accepts nothing without noise, unprotected, or small."""
    (tmp_path / "policy.toml").write_text(HEADER)
    policy = read_policy(tmp_path / "policy.toml")
    assert (policy.protections, policy.min_clients_in_sum, policy.minimum_honest) == (("masked",), 3, 2)
    assert (policy.max_epsilon, policy.max_epsilon_total) == (1.0, 1.0)
    assert not policy.repeat_sessions
    assert not policy.refinement_without_noise


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "tables"),
        ("x = 1", "tables"),
        ('[data]\nname = "x"\n', "missing keys: backbones, roster"),
        (HEADER + "max_epsilom = 1\n", r"unknown keys: max_epsilom; did you mean max_epsilon\?"),
        (
            HEADER + "training = 1\n",
            r"unknown keys: training; leave out training: the keys are adjacencies, backbones, ",
        ),
        (
            HEADER + "training = 1\nmax_epsilom = 1\n",
            r"max_epsilom, training; did you mean max_epsilon\? leave out training: the keys are ",
        ),
        (HEADER + "max_epsilon = -1\n", "max_epsilon"),
        (HEADER + "max_epsilon = nan\n", "max_epsilon"),
        (HEADER + "max_epsilon = -1.0\n", "max_epsilon"),
        (HEADER + 'max_epsilon = "lots"\n', "max_epsilon"),
        (HEADER + "max_epsilon = true\n", "max_epsilon"),
        (HEADER + "max_epsilon_total = nan\n", "max_epsilon_total"),
        (HEADER + "units = 'record'\n", "units"),
        (HEADER + "refinement_without_noise = 1\n", "refinement_without_noise"),
        (HEADER + "min_clients_in_sum = 2.5\n", "min_clients_in_sum"),
        (HEADER + "min_clients_in_sum = true\n", "min_clients_in_sum"),
        (HEADER + "min_clients_in_sum = -3\n", "min_clients_in_sum"),
        (HEADER + "min_clients_in_sum = []\n", "min_clients_in_sum"),
        (HEADER + "repeat_sessions = 1\n", "repeat_sessions"),
        (HEADER + 'protections = "none"\n', "protections"),
        (HEADER + "methods = [1]\n", "methods"),
        (HEADER.replace('"x"', "1"), "name"),
        (HEADER + "[other]\na = 1\n", "tables"),
        ("data = 1\naccept = 2\n", "tables"),
        (HEADER.replace("name", "nick"), "tables"),
        (HEADER + 'data_name = "y"\n', "unknown keys: data_name; leave out data_name: "),
        (HEADER + 'roster = "01"\n', "TOML"),
        ("{", "TOML"),
    ],
)
def test_file_that_is_no_policy_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """An unknown, missing or mistyped key is refused and named together with the file."""
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=words) as refusal:
        read_policy(path)
    assert str(path) in str(refusal.value)


def test_limits_with_an_unknown_key_say_what_to_do() -> None:
    """Limits that still have the removed key `training` are refused with what to leave out and what there is."""
    with pytest.raises(BadInput, match=r"leave out training: the keys are adjacencies, .*, units$"):
        parse_limits("[accept]\ntraining = 1\n")


def test_missing_and_binary_files_are_named(tmp_path: Path) -> None:
    """A policy that is missing, a folder, or not text is named."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for wrong in (tmp_path / "none", tmp_path, tmp_path / "binary"):
        with pytest.raises(BadInput, match=str(wrong)):
            read_policy(wrong)


@pytest.mark.parametrize(
    "name", ["heart \U0001fac0", "\u6771\u4eac \U00020bb7", "Z\u00fcrich", 'a "b" \\ c'], ids=ascii
)
def test_policy_in_a_transcript_names_its_data_set(tmp_path: Path, name: str) -> None:
    """A policy that is written out is read back with its name, in any script: a lost ledger is recovered from it."""
    written = Policy(name, "", ()).to_toml()
    (tmp_path / "policy.toml").write_text(written, encoding="utf-8")
    assert read_policy(tmp_path / "policy.toml").data_name == name
