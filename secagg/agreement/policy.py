"""The policy: limits that one client's people write in TOML, and that a plan must keep before anything is computed."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from secagg.agreement.plan import NoiseFrom, Plan
from secagg.errors import BadInput, PlanRefused
from secagg.system.printable import first_unprintable, is_printable
from secagg.system.reading import instead_of, naming, parse_toml, read_document

_NO_NAME = ("", ".", "..")
_OF_ONE_PLAN = ("roster", "backbones", "programs")


def data_set(data_name: str) -> str:
    """Return the data set to which a data name belongs: `heart` for `heart/v2`, `heart/2024/clean` and `Heart`.

    However it is spelt: compatible characters are one (NFKC, case folding, NFKC again: Unicode, section 3.13), spaces
    too, and what shows nothing does not count. "" where nothing is left: `check_data_name` refuses such a name.
    """
    shown = "".join(each for each in data_name if is_printable(each) or each.isspace())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", shown).casefold())
    parts = (" ".join(part.split()) for part in folded.split("/"))
    return next((part for part in parts if part not in _NO_NAME), "")


def check_data_name(data_name: str) -> None:
    """Raise BadInput for a data name with invisible characters, or a path component that is empty, `.` or `..`.

    It could be confused with another name.
    """
    problem = ""
    if odd := first_unprintable(data_name):
        problem = f"holds the character {odd}, which cannot be seen"
    elif any(part.strip() in _NO_NAME for part in unicodedata.normalize("NFKC", data_name).split("/")):
        problem = "has an empty part, or one of dots"
    if problem:
        remedy = "write plain words, and a version after a slash: heart, or heart/v2"
        raise BadInput(f"the name of the data set {problem}: {data_name!r}", remedy=remedy)


@dataclass(frozen=True)
class Budget:
    """A privacy budget: the most that all plans about one data set may spend together.

    At δ = `delta`, in the unit and adjacency of the plan that is asked about, ε must not exceed `max_epsilon_total`.
    `may_repeat` concerns an infinite total only: whether it allows more than one plan.
    """

    max_epsilon_total: float
    delta: float
    may_repeat: bool


@dataclass(frozen=True)
class Effort:
    """The most work that a plan gives a member: rounds, epochs, DP-SGD steps, model parameters, programs to train.

    0 stands for none.

    The plan's method declares it (`methods.method.SumSpec`). `rounds` that the plan has; `programs` that it trains,
    SHA-256 (hex) of files of code. In a round: `epochs`, passes of training over all records; `steps` of DP-SGD, each
    with noise for every parameter; `parameters` of the model.
    """

    rounds: int = 1
    epochs: int = 0
    steps: int = 0
    parameters: int = 0
    programs: tuple[str, ...] = ()


NOTHING = Effort()
MEANING = {
    "roster": "SHA-256 of the roster whose members you have checked",
    "backbones": "SHA-256 of each backbone that you trust: a .pt2 file is code",
    "programs": "SHA-256 of each file of a model that you would train: a .pt2 file is code",
    "methods": "what may be summed; of code that others bring, NAME@SHA-256 of what you have read",
    "protections": "how your vector may be hidden",
    "results": "who may receive the head",
    "min_clients_in_sum": "fewest clients whose sum may be opened",
    "minimum_honest": "fewest of them beyond the colluders; with 2, each of two honest ones learns the other's sum",
    "minimum_colluders": "fewest colluding clients that the plan must withstand",
    "max_upload_mib": "largest vector that may leave, in MiB",
    "max_rounds": "most rounds of one plan that you take part in",
    "max_epochs": "most passes of training over your records in one round",
    "max_steps": "most steps of DP-SGD in one round; with 0 no plan trains so inside you",
    "max_parameters": "largest model that you train",
    "max_epsilon": 'most that one plan may cost; "inf" accepts an exact sum',
    "max_epsilon_total": "most that all plans about the data may cost together",
    "max_delta": "largest delta, of one plan and of the total",
    "units": "whom epsilon may protect: a record, or a client with all of its records",
    "adjacencies": "which neighbours count",
    "noise_from": "who may add the noise; an aggregator would be trusted",
    "repeat_sessions": "whether another exact sum about the same data may be opened (differences tell of records)",
    "refinement_without_noise": "whether one plan may open several exact sums about the same records: a lying server "
    "can then read your part exactly",
}
"""The comment that a policy file has at each key."""


@dataclass(frozen=True)
class Policy:
    """A client's policy: every key of the file's `[accept]` table, and `data_name` from `[data]`.

    `data_name` is a path: names with the same first part (`heart`, `heart/v2`) are versions of one data set and share
    what was spent on it, however they are spelt. `roster`, `backbones` and `programs` are SHA-256 digests (hex).
    `minimum_honest` bounds survivors minus colluders from below: with 2, each of two honest survivors learns the
    other's sum. `minimum_colluders` is the least number of colluding clients that the thresholds must withstand.

    `max_rounds`, `max_epochs`, `max_steps` and `max_parameters` bound what a plan has the member compute (`Effort`).
    They are all of its training that a member need bound: what leaves it is inside the plan's lengths and promise
    whatever its rate, batch, loss or optimiser are.

    `max_epsilon` and `max_delta` bound one plan; `max_epsilon_total` bounds all plans about the data set
    together, at δ = `max_delta`. Both ε must be written "inf" to accept a sum without noise. Where the total is
    infinite, `repeat_sessions` allows more than one plan; a finite total decides alone. `units` and `adjacencies`
    are the promises that count as one, `noise_from` who may add the noise. `refinement_without_noise` accepts a plan
    that opens several exact sums about the same records, whatever its method calls them: refinement, clustering, ….
    Raises BadInput like `check_data_name`.
    """

    data_name: str
    roster: str
    backbones: tuple[str, ...]
    programs: tuple[str, ...] = ()
    methods: tuple[str, ...] = ("fedcgs",)
    protections: tuple[str, ...] = ("masked",)
    results: tuple[str, ...] = ("server", "members")
    min_clients_in_sum: int = 3
    minimum_honest: int = 2
    minimum_colluders: int = 1
    max_upload_mib: int = 256
    max_rounds: int = 100
    max_epochs: int = 50
    max_steps: int = 1000
    max_parameters: int = 1_000_000
    max_epsilon: float = 1.0
    max_epsilon_total: float = 1.0
    max_delta: float = 1e-5
    units: tuple[str, ...] = ("record", "client")
    adjacencies: tuple[str, ...] = ("add-remove", "replace-one")
    noise_from: tuple[str, ...] = ("client",)
    repeat_sessions: bool = False
    refinement_without_noise: bool = False

    def __post_init__(self) -> None:
        check_data_name(self.data_name)

    @property
    def budget(self) -> Budget:
        """The policy's limits on the privacy cost of all plans about the data set together."""
        return Budget(self.max_epsilon_total, self.max_delta, self.repeat_sessions)

    def check(
        self, plan: Plan, clients: int, survivors: int, upload_bytes: int, record_sums: int, effort: Effort = NOTHING
    ) -> None:
        """Raise PlanRefused with a sentence for each limit that the plan breaks.

        The total budget is checked by the ledger.
        `clients` is the size of the roster, `survivors` the smallest set whose sum the plan lets be opened,
        `upload_bytes` the size of one protected vector, `record_sums` how many sums about records the plan opens,
        `effort` what it has the client compute.
        """
        honest = survivors - plan.colluders
        exact = math.isinf(plan.epsilon)
        further = record_sums - 1 if exact else 0
        checks = {
            f"roster: the plan is for the roster {plan.roster.hex()}, this policy accepts {self.roster[:12]}…: compare "
            "the new roster with the authority, then secagg plan policy --limits OLD-POLICY "
            "--out NEW-POLICY": plan.roster.hex() == self.roster,
            f"backbones: {plan.backbone} has another digest": plan.backbone_digest.hex() in self.backbones,
            f"methods: {plan.method}": plan.method in self.methods,
            f"protections: {plan.protection}": plan.protection in self.protections,
            f"results: the head would go to {plan.result}": plan.result in self.results,
            f"min_clients_in_sum: the sum of {survivors} of {clients} clients could be opened, fewer than "
            f"{self.min_clients_in_sum}": survivors >= self.min_clients_in_sum,
            f"minimum_honest: {honest} honest clients could be alone in the sum, fewer than "
            f"{self.minimum_honest}": honest >= self.minimum_honest,
            f"minimum_colluders: the plan withstands {plan.colluders}, fewer than "
            f"{self.minimum_colluders}": plan.colluders >= self.minimum_colluders,
            f"max_upload_mib: {upload_bytes} bytes would leave, more than {self.max_upload_mib} MiB": upload_bytes
            <= self.max_upload_mib << 20,
            **self._bounds_of(effort),
            f"max_epsilon: the plan spends {plan.epsilon}, more than {self.max_epsilon}": plan.epsilon
            <= self.max_epsilon,
            f"max_epsilon_total: the plan alone spends {plan.epsilon}, more than {self.max_epsilon_total}": plan.epsilon
            <= self.max_epsilon_total,
            f"max_delta: the plan spends {plan.delta}, more than {self.max_delta}": plan.delta <= self.max_delta,
            f"units: the plan protects one {plan.unit}": plan.unit in self.units,
            f"noise_from: the noise would come from the {plan.noise}": exact
            or plan.noise in (*self.noise_from, NoiseFrom.MEMBER),
            f"adjacencies: the plan's is {plan.adjacency}": exact or plan.adjacency in self.adjacencies,
            f"refinement_without_noise: {further} more exact {'sum' if further == 1 else 'sums'} about the same "
            "records would be opened, which a finite epsilon would cover together": further < 1
            or self.refinement_without_noise,
        }
        if broken := tuple(sentence for sentence, holds in checks.items() if not holds):
            raise PlanRefused(broken)

    def _bounds_of(self, effort: Effort) -> dict[str, bool]:
        """Map a sentence on each limit of the client's computing to whether the plan keeps the limit."""
        return {
            **dict.fromkeys(self._unlisted(effort.programs), False),
            f"max_rounds: a member can be in {effort.rounds} rounds, more than {self.max_rounds}": effort.rounds
            <= self.max_rounds,
            f"max_epochs: a round trains for {effort.epochs} epochs, more than {self.max_epochs}": effort.epochs
            <= self.max_epochs,
            f"max_steps: a round trains for {effort.steps} steps of DP-SGD, more than {self.max_steps}": effort.steps
            <= self.max_steps,
            f"max_parameters: the model has {effort.parameters} parameters, more than "
            f"{self.max_parameters}": effort.parameters <= self.max_parameters,
        }

    def require_listed(self, programs: Sequence[str]) -> None:
        """Raise PlanRefused unless the policy lists all these model programs (.pt2 files), given by SHA-256 (hex).

        Programs are parsed only afterwards.
        """
        if unlisted := self._unlisted(programs):
            raise PlanRefused(unlisted)

    def require_method(self, method: str) -> None:
        """Raise PlanRefused unless the policy lists this method.

        A plug-in's code runs only afterwards.
        """
        if method not in self.methods:
            raise PlanRefused((f"methods: the plan runs code of others, {method}",))

    def _unlisted(self, programs: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"programs: the plan trains {each}" for each in programs if each not in self.programs)

    def to_toml(self) -> str:
        """Return the policy as TOML text that a person can edit."""
        lines = ["[data]", "# what your ledger calls these records; another name has a budget of its own"]
        lines += [f"name = {_toml(self.data_name)}", "", "[accept]"]
        own = (field.name for field in fields(self) if field.name != "data_name")
        return _with_meanings(lines, {name: getattr(self, name) for name in own})


def read_policy(path: Path) -> Policy:
    """Read a policy strictly. Raises BadInput naming the file and every unknown, missing or mistyped key."""
    new = "write one with plan policy"
    with naming(path, "policy", "TOML", missing=new, damaged=f"mend that line, or {new}"):
        return _parse(parse_toml(read_document(path)))


def _parse(content: Mapping[str, Any]) -> Policy:
    data, accept = content.get("data", {}), content.get("accept", {})
    tables = isinstance(data, dict) and isinstance(accept, dict)
    if set(content) - {"data", "accept"} or not tables or set(data) != {"name"}:
        raise BadInput("a policy has the tables [data] (with name) and [accept]", remedy="write one with plan policy")
    values: dict[str, Any] = {**accept, "data_name": data["name"]}
    types = {field.name: str(field.type) for field in fields(Policy)}
    if unknown := sorted((set(values) - set(types)) | (set(accept) & {"data_name"})):
        raise BadInput(f"unknown keys: {', '.join(unknown)}", remedy=instead_of(unknown, set(types) - {"data_name"}))
    if missing := sorted({"roster", "backbones"} - set(values)):
        raise BadInput(f"missing keys: {', '.join(missing)}", remedy="write a policy with plan policy")
    return Policy(**{name: _read_typed(name, types[name], value) for name, value in values.items()})


def limits_text() -> str:
    """Return the default limits of a policy as TOML text, without the keys that concern a single plan.

    A consortium hands it out to its members.
    """
    lines = [
        "# What members of this consortium accept at the most: a starting point for each one's own policy.",
        "[accept]",
    ]
    own = (field for field in fields(Policy) if field.name in MEANING and field.name not in _OF_ONE_PLAN)
    return _with_meanings(lines, {field.name: field.default for field in own})


def _with_meanings(lines: list[str], values: Mapping[str, Any]) -> str:
    keys = (line for name, value in values.items() for line in (f"# {MEANING[name]}", f"{name} = {_toml(value)}"))
    return "\n".join((*lines, *keys)) + "\n"


def parse_limits(text: str) -> Mapping[str, Any]:
    """Parse policy limits, keys of a policy's [accept] table, from TOML; the key `roster` is dropped.

    A whole policy will do. Raises BadInput naming every unknown or mistyped key.
    """
    try:
        content = parse_toml(text)
    except ValueError as error:
        problem = f"these limits are not TOML: {error}"
        raise BadInput(problem, remedy="mend that line, or write limits with plan limits") from None
    accept = content.get("accept", {})
    if set(content) - {"data", "accept"} or not isinstance(accept, dict):
        raise BadInput("limits have the table [accept]", remedy="write them with plan limits")
    types = {field.name: str(field.type) for field in fields(Policy) if field.name != "data_name"}
    if unknown := sorted(set(accept) - set(types)):
        raise BadInput(f"unknown keys: {', '.join(unknown)}", remedy=instead_of(unknown, types))
    return {name: _read_typed(name, types[name], value) for name, value in accept.items() if name != "roster"}


def read_limits(path: Path) -> Mapping[str, Any]:
    """Read policy limits from a limits file or a policy file. Raises BadInput naming the file."""
    with naming(path, "limits", "TOML", missing="write them with plan limits", damaged="save it as UTF-8"):
        return parse_limits(read_document(path))


def _read_typed(name: str, expected: str, value: Any) -> Any:
    if expected == "tuple[str, ...]" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if expected == "float" and value == "inf":
        return math.inf
    if expected == "float" and isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if expected == type(value).__name__ == "int" and value >= 0:
        return value
    if expected == type(value).__name__ and expected in ("str", "bool"):
        return value
    raise BadInput(f"{name} cannot be {value!r}", remedy="see plan limits for a value of each key")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, float) and math.isinf(value):
        return '"inf"'
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML has no surrogate pairs
    return repr(value)
