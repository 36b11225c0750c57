"""The gate file: the conditions that a report must meet to pass, read strictly from TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

from secagg.errors import BadInput
from secagg.protection import PROTECTIONS
from secagg.system.reading import parse_toml, read_document
from threat_models.active.probe import PROBE, REFUSED_WAYS
from threat_models.adversary import adversary_named, names
from threat_models.attacks import ATTACKS
from threat_models.findings import Metric, covers
from threat_models.report.content import SESSION_RULES, GateOutcome

FORMAT = "secagg-gate/1"
Table = Mapping[str, Any]
"""A table of the TOML file."""
DEFAULT = Path(__file__).parent / "default_gate.toml"
ACTIVE = {"malicious_server": (REFUSED_WAYS, PROBE)}
"""Metrics of the probes by a cheating server, an attack that is no part of `ATTACKS`."""
REFERENCES = ("baseline", "ceiling")
"""Values of a threshold beside a number: the measure's own baseline or ceiling."""


def all_metrics() -> Mapping[str, tuple[Metric, ...]]:
    """Return each attack's metrics by its name, with the attacks that an auditor added."""
    return {**{name: attack.metrics for name, attack in ATTACKS.items()}, **ACTIVE}


@dataclass(frozen=True)
class Rule:
    """A gate's rule for one attack by one adversary ("*" for any); of several that fit, only the most specific apply.

    Without a `measure` the attack must not succeed. With one (an id, the part of ids before their dot, or * for all)
    its whole interval must lie on the right side of `at_most` or `at_least`: a number, "baseline" or "ceiling", moved
    outwards by `margin`. Where the threshold lies inside the interval the line comes out as `unclear`. A measure that
    is not there is inconclusive too, unless it is `optional`; where no rule finds a measure the attack must not
    succeed. `tolerated` lets the attack succeed.
    """

    attack: str
    reason: str
    adversary: str = "*"
    measure: str = ""
    at_most: float | str | None = None
    at_least: float | str | None = None
    margin: float = 0.0
    unclear: GateOutcome = GateOutcome.INCONCLUSIVE
    optional: bool = False
    tolerated: bool = False
    required: bool = True

    @property
    def limit(self) -> float | str | None:
        """The rule's threshold, which is either `at_most` or `at_least`; None for a rule without a measure."""
        return self.at_least if self.at_most is None else self.at_most

    def judges(self, metric: Metric) -> bool:
        """Return whether the rule's `measure` (an id, a part of one, or *) names this metric."""
        return covers(self.measure, metric)

    @property
    def names_several(self) -> bool:
        """Whether a finding may hold several measures that this rule names."""
        named = [metric for metric in metrics_of(self.attack) if self.judges(metric)]
        return len(named) != 1 or bool(named[0].each)


UNWAIVED = {
    ("promise", False): "less noise than promised",
    ("noise", False): "less noise than promised",
    ("inputs", False): "evidence that is not what it is called",
    ("inputs", True): "evidence that is not what it is called",
    ("audit", True): "an audit without any attack",
}
"""Lines about the sum itself that no waiver lets pass, by (attack, whether the waiver is for the inconclusive)."""
LONGEST_WAIVER = timedelta(days=366)


@dataclass(frozen=True)
class Waiver:
    """A waiver: it lets failures of one attack by one adversary pass, for a stated reason, up to and including a day.

    What is inconclusive it does not touch, of which nobody knows what it would let pass; one that is `inconclusive`
    touches nothing else: whoever writes it vouches for what could not be told, which no report then calls withstood.
    An empty `adversary` stands for the lines about the sum itself. Less noise than promised passes by no waiver.
    """

    attack: str
    adversary: str
    reason: str
    expires: date
    inconclusive: bool = False


@dataclass(frozen=True)
class Gate:
    """The conditions that a report must meet to pass.

    `adversaries` must be asked about, whoever else is. `protections` are those a plan may have. `records_per_dimension`
    is the least number of records per feature dimension in a sum without noise. `controls` demands of each attack a
    positive and a negative control that hold, `measured` a measured lower bound for every finite ε. `sha256` is the
    digest of the file.
    """

    protections: tuple[str, ...]
    records_per_dimension: float
    controls: bool
    measured: bool
    rules: tuple[Rule, ...]
    waivers: tuple[Waiver, ...]
    sha256: str
    adversaries: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path = DEFAULT, today: date | None = None) -> Gate:
        """Read a gate file, as `parse` does. Raises BadInput with the file's name and the key at fault."""
        try:
            return cls.parse(read_document(path), today)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}", remedy="give a gate file that can be read") from None
        except UnicodeDecodeError:
            raise BadInput(f"{path}: not UTF-8", remedy="a gate is a TOML file") from None
        except BadInput as error:
            raise BadInput(f"{path}: {error.problem}", remedy=error.remedy) from None

    @classmethod
    def parse(cls, text: str, today: date | None = None) -> Gate:
        """Read a gate from TOML text, for an audit made on the date `today` (by default the current one in UTC).

        Raises BadInput for anything missing, of a wrong type, or unknown: keys, attacks, measures, threat models; and
        for waivers of what cannot be waived, or for longer than a year.
        """
        today = today or datetime.now(UTC).date()
        try:
            content = parse_toml(text)
        except ValueError as error:
            raise BadInput(f"no valid TOML: {error}") from None
        if content.pop("format", None) != FORMAT:
            raise BadInput("the format is missing or unknown", remedy=f'write format = "{FORMAT}"')
        rules = tuple(_rule(table, number) for number, table in _enumerate_tables(content.pop("rule", [])))
        waivers = tuple(_waiver(table, number, today) for number, table in _enumerate_tables(content.pop("waiver", [])))
        asked = _names(content, "adversaries", names(), "threat model") if "adversaries" in content else ()
        needed = {field.name for field in fields(cls)} - {"rules", "waivers", "sha256", "adversaries"}
        _require_keys(content, needed, "the gate", needed | {"adversaries"})
        return cls(
            protections=_names(content, "protections", tuple(PROTECTIONS), "protection"),
            records_per_dimension=_number(content, "records_per_dimension", "the gate"),
            controls=_flag(content, "controls", "the gate"),
            measured=_flag(content, "measured", "the gate"),
            rules=rules,
            waivers=waivers,
            sha256=sha256(text.encode()).hexdigest(),
            adversaries=asked,
        )

    def rules_for(self, attack: str, adversary: str) -> tuple[Rule, ...]:
        """Return the most specific rules for an attack by an adversary; without any, one that it must not succeed."""
        for name in ((attack, adversary), ("*", adversary), (attack, "*"), ("*", "*")):
            if found := tuple(rule for rule in self.rules if (rule.attack, rule.adversary) == name):
                return found
        return (Rule(attack, ""),)


def metrics_of(attack: str) -> tuple[Metric, ...]:
    """Return the metrics of one attack, or of all attacks for "*", each once."""
    groups = all_metrics().values() if attack == "*" else [all_metrics()[attack]]
    return tuple(dict.fromkeys(metric for group in groups for metric in group))


def _rule(table: Table, number: int) -> Rule:
    where = f"rule {number}"
    _require_keys(table, {"attack", "reason"}, where, {field.name for field in fields(Rule)})
    rule = Rule(**{key: read(table, key, where) for key, read in _READERS.items() if key in table})
    if (rule.at_most is not None) + (rule.at_least is not None) != bool(rule.measure):
        raise BadInput(f"{where}: a measure needs one of at_most and at_least, and these need a measure")
    if set(table) & ({"tolerated"} if rule.measure else {"margin", "unclear", "optional"}):
        raise BadInput(f"{where}: margin, unclear and optional go with a measure, tolerated goes without one")
    _require_known(rule.attack, ("*", *all_metrics()), f"{where}: there is no attack")
    _require_known(rule.adversary, ("*", *names()), f"{where}: there is no threat model")
    if rule.adversary != "*":
        its = adversary_named(rule.adversary).attacks
        _require_known(rule.attack, ("*", *its), f"{where}: {rule.adversary} has no attack")
    if rule.measure and not any(map(rule.judges, metrics_of(rule.attack))):
        metrics = {metric.id: metric.label for metric in metrics_of(rule.attack)}
        words = {word: metric for metric, label in metrics.items() for word in (metric, label)}
        near = words[get_close_matches(rule.measure, words, n=1, cutoff=0.0)[0]]
        raise BadInput(
            f"{where}: {rule.attack} has no measure {rule.measure!r}; a gate names measures by their ids",
            remedy=f"did you mean {near!r} ({metrics[near]})? There are {', '.join(metrics)}; * stands for all",
        )
    return rule


def _waiver(table: Table, number: int, today: date) -> Waiver:
    where = f"waiver {number}"
    needed = {"attack", "adversary", "reason", "expires"}
    _require_keys(table, needed, where, needed | {"inconclusive"})
    untold = "inconclusive" in table and _flag(table, "inconclusive", where)
    adversary = "" if table["adversary"] == "" else _text(table, "adversary", where)
    attack = _text(table, "attack", where)
    if adversary:
        _require_known(adversary, names(), f"{where}: there is no threat model")
        own = adversary_named(adversary).attacks
        _require_known(attack, (*own, "audit") if untold else own, f"{where}: {adversary} has no attack")
    else:
        _require_known(attack, tuple(SESSION_RULES), f"{where}: without an adversary there is no")
        if what := UNWAIVED.get((attack, untold)):
            raise BadInput(
                f"{where}: {attack} without an adversary cannot be waived: that is {what}",
                remedy="delete the waiver: such an audit says nothing good of a session, whatever the reason",
            )
    value = table["expires"]
    if not isinstance(value, date) or isinstance(value, datetime):
        raise BadInput(f"{where}: expires is not a date", remedy="write it like 2027-01-31, without quotes")
    latest = today + LONGEST_WAIVER
    if value > latest:
        raise BadInput(
            f"{where}: expires is {value}, more than a year after this audit ({today})",
            remedy=f"write a day up to {latest}, and renew the waiver then if it is still wanted",
        )
    return Waiver(attack, adversary, _text(table, "reason", where), value, untold)


def _require_known(name: str, known: tuple[str, ...], problem: str) -> None:
    """Raise BadInput with the nearest known name and all known names, unless the name is known."""
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.0)
        raise BadInput(f"{problem} {name!r}", remedy=f"did you mean {near[0]!r}? There are {', '.join(known)}")


def _enumerate_tables(tables: Any) -> enumerate[Table]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput("rule and waiver are lists of tables", remedy="write [[rule]] and [[waiver]]")
    return enumerate(tables, start=1)


def _require_keys(table: Table, needed: set[str], where: str, allowed: set[str] | None = None) -> None:
    """Raise BadInput for a key that is missing or unknown."""
    wrong = {"lacks": needed - set(table), "has no key": set(table) - (allowed or needed)}
    if told := [f"{verb} {', '.join(sorted(keys))}" for verb, keys in wrong.items() if keys]:
        raise BadInput(f"{where} {', and '.join(told)}", remedy=f"copy {DEFAULT}, and change the copy")


def _text(table: Table, key: str, where: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{where}: {key} is no text")
    return value


def _number(table: Table, key: str, where: str) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise BadInput(f"{where}: {key} is no number from 0 up")
    return float(value)


def _flag(table: Table, key: str, where: str) -> bool:
    value = table[key]
    if not isinstance(value, bool):
        raise BadInput(f"{where}: {key} is neither true nor false")
    return value


def _names(table: Table, key: str, known: tuple[str, ...], kind: str) -> tuple[str, ...]:
    values = table[key]
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise BadInput(f"the gate: {key} is no list of names")
    for value in values:
        _require_known(value, known, f"the gate: there is no {kind}")
    return tuple(values)


def _threshold(table: Table, key: str, where: str) -> float | str:
    value = table[key]
    if value in REFERENCES:
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):
        raise BadInput(f"{where}: {key} is neither a number nor {' nor '.join(REFERENCES)}")
    return float(value)


def _outcome(table: Table, key: str, where: str) -> GateOutcome:
    try:
        return GateOutcome(table[key])
    except ValueError:
        raise BadInput(f"{where}: {key} is none of {', '.join(GateOutcome)}") from None


_READERS: dict[str, Callable[[Table, str, str], Any]] = {
    **dict.fromkeys(("attack", "reason", "adversary", "measure"), _text),
    **dict.fromkeys(("at_most", "at_least"), _threshold),
    "margin": _number,
    "unclear": _outcome,
    **dict.fromkeys(("optional", "tolerated", "required"), _flag),
}
"""Functions that read each key of a rule; the keys are read in this order."""
