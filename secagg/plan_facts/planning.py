"""Make a new plan from the data's public description, the roster, and a few choices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from methods import ROUNDS, method_named, method_of, parameters_of, planned_method, refuse_twice, split_method
from methods.declaration import check_declaration
from methods.gate import put_gate, without_gate
from methods.method import Fixed, SumSpec
from secagg.agreement.plan import PLAN_VERSION, DataKind, NoiseFrom, Plan, PlannedNoise, ResultAccess, canonical_json
from secagg.agreement.roster import Roster
from secagg.agreement.schema import Schema
from secagg.encoding import Kind, Normalisation
from secagg.encoding.grid import round_up
from secagg.errors import BadInput, MalformedMessage
from secagg.plan_facts.facts import FINE_LEVELS, PlanFacts
from secagg.plan_facts.noise_plan import (
    NoiseParties,
    charged,
    levels_for,
    noises_for,
    refuse_much_removal,
    refuse_training_alone,
    training_noise,
)
from secagg.plan_facts.records import PlannedFeatures, plan_features
from secagg.privacy import Adjacency, Mechanism, Unit
from secagg.privacy.calibration import read_shares
from secagg.privacy.claim import refuse_delta
from secagg.protection import PROTECTIONS, USUAL, protection_named
from secagg.randomness import RandomSource
from secagg.wire import Choice

BY_RULE = "auto"
"""Stands for a number of refinement rounds that follows from the plan's other fields."""


@dataclass(frozen=True)
class PublicData:
    """The public description of all members' data: kind, input shape, classes, schema, L2 `bound` of an input.

    `bound` None: unknown; `schema` None: no table.
    """

    kind: str
    input_shape: tuple[int, ...]
    classes: tuple[str, ...]
    schema: Schema | None
    bound: float | None

    @classmethod
    def of_schema(cls, schema: Schema) -> PublicData:
        """Return the public description of tables of this schema."""
        return cls("table", (schema.dimension,), schema.classes, schema, schema.bound)

    @classmethod
    def of_shape(cls, shape: tuple[int, ...], classes: tuple[str, ...]) -> PublicData:
        """Return the public description of images (2 or 3 dimensions, values in [0, 1]) or features (1 dimension)."""
        if len(shape) == 1:
            return cls("features", shape, classes, None, None)
        return cls("images", shape, classes, None, math.sqrt(math.prod(shape)))


def option(default: Any, help_text: str, **form: Any) -> Any:
    """Return a dataclass field with the metadata of its command-line option: help, `minimum`, `maximum`, `metavar`."""
    return field(default=default, metadata={"help": help_text, **form})


@cache
def kind_in(settings: type, name: str) -> tuple[type[Any], bool]:
    """Return a setting's type, without None, and whether it may be None. Raises BadInput for an unknown setting."""
    hints = get_type_hints(settings)
    if name not in hints:
        raise BadInput(f"there is no setting {name!r}", remedy=f"choose among {', '.join(hints)}")
    kinds = get_args(hints[name]) or (hints[name],)
    return next(kind for kind in kinds if kind is not NoneType), NoneType in kinds


class SurplusNoise(Choice):
    """The treatment of noise that only missing clients would make necessary, when they are there."""

    AUTO = "auto"
    """It is removed where that is worth its cost: from sums of up to 20 clients, under protection masked."""
    REMOVE = "remove"
    """It is removed, or the plan refused."""
    KEEP = "keep"


class Rules(Choice):
    """The rule for a run's default normalisation and refinement: by its own ε, or always as for a finite ε."""

    BY_EPSILON = "by-epsilon"
    UNDER_NOISE = "under-noise"
    """The rules of a finite ε, for ε = ∞ too, so that runs with different ε are comparable."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The choices that a plan and a simulation share; None means that the value is derived.

    Each is an option of the command line (`secagg.cli.options`): `cohort` is --cohort, `class_gate` --class-gate.
    """

    method: str = option(
        "fedcgs",
        "The method, as in fedavg[rounds=5 rate=0.5]; FILE.py:NAME for one of your own, whose code runs.",
    )
    parameters: str | tuple[tuple[str, Any], ...] = option(
        "",
        'Parameters of the method, "slots=16 keep=0.9" say, or a file of them; secagg methods lists them.',
        metavar="NAME=VALUE …",
    )
    protection: str = option(USUAL, f"Protection that hides the clients' vectors: {', '.join(PROTECTIONS)}.")
    epsilon: float = option(math.inf, "ε of all sums of the plan together: a number above 0, or inf for no noise.")
    delta: float | None = option(
        None, "δ: probability with which the ε guarantee may fail, 1e-5 say; needed when epsilon is finite."
    )
    adjacency: Adjacency | None = option(
        None, "Neighbouring data sets: one unit added or removed, or replaced; needed when epsilon is finite."
    )
    unit: Unit = option(Unit.RECORD, "Whom epsilon protects: one record, or one client with all of its.")
    noise: NoiseFrom = option(
        NoiseFrom.CLIENT,
        "client: everyone adds a share. aggregator: whoever opens the sum adds all of it; each of several does "
        f"({', '.join(name for name, each in PROTECTIONS.items() if each.fewest_helpers > 1)}). "
        "member: every step of a client's own training.",
    )
    surplus_noise: SurplusNoise = option(
        SurplusNoise.AUTO,
        "Noise beyond the promise's when fewer clients are missing than may be: remove, keep, or auto (remove it from "
        "sums of up to 20 clients, where that can be done).",
    )
    shares: str | None = option(
        None, "Shares of the privacy budget (μ²) that the first sum's blocks take: moments, equal, or BLOCK=SHARE,…."
    )
    refine: int | None = option(
        None,
        "Rounds of private softmax gradients after the first sum; auto: where they pay, by the plan's fields.",
        metavar="K|auto",
    )
    rounds: int | None = option(
        None,
        "Sums of a method that trains, fedavg say: short for --parameters rounds=N. What refines: --refine.",
        minimum=1,
    )
    class_gate: int = option(
        0, "Leave out classes that fewer honest clients than this hold; 0: no census, no gate.", minimum=0
    )
    covariance: str = option("within", "Covariance of the head: within classes, or total (the paper's).")
    ridge: float | None = option(None, "Ridge of the covariance, in units of tr(covariance)/d; default by the method.")
    backbone: str | None = option(None, "pixels, scattering (small grey pictures), a .pt2, …; see backbone list.")
    expand: int = option(0, "Number of random ReLU features after the backbone; 0: none.", minimum=0)
    centre: float = option(0.0, "Public constant subtracted from every feature.")
    radius: float | None = option(None, "Public bound of the feature vectors' L2 length; a longer record is refused.")
    normalise: Normalisation | None = option(
        None, "Normalisation of each record's features; default none, with noise or refinement centred-unit."
    )
    pipeline: Rules = option(
        Rules.BY_EPSILON,
        "under-noise: normalise and refine at epsilon inf as under noise, to compare runs over epsilon.",
    )
    levels: int | None = option(None, "Grid steps in a record's length (resolution); default by rule.", minimum=1)
    max_records: int | None = option(
        None, "Most records of one client; a client with more refuses the plan.", minimum=1
    )
    at_least: int = option(0, "Fewest records of all members together, as you state; 0: not stated.", minimum=0)
    cohort: int = option(0, "Clients drawn for each round of a method that trains; 0: all.", minimum=0, metavar="K")
    colluders: int | None = option(
        None, "Clients assumed to collude with the server (default 1; 0 for one or two clients).", minimum=0
    )

    def __post_init__(self) -> None:
        """Move parameters in brackets after the method's name to `parameters`. Raises BadInput."""
        if isinstance(self.parameters, str):
            name, parameters = split_method(self.method, self.parameters)
            object.__setattr__(self, "method", name)
            object.__setattr__(self, "parameters", parameters)

    @property
    def method_parameters(self) -> dict[str, Any]:
        """The method's parameters by name, as they go into a plan. Raises BadInput for bad ones."""
        shared = {"covariance": self.covariance, "ridge": self.ridge, "refine": self._refinements, ROUNDS: self.rounds}
        if isinstance(self.parameters, str):
            if (self.refine or 0) >= 0:  # below 0: by the method's rule
                refuse_twice("refine", self.refine, self.parameters)
            return parameters_of(self.method, shared, self.parameters)
        return parameters_of(self.method, shared) | dict(self.parameters)

    @property
    def _refinements(self) -> int | None:
        """The method's rounds of refinement; None for the method's default."""
        return self.refine


def again(name: str, default: Any) -> Any:
    """Return a copy of the `Choices` field `name` with another default."""
    return field(default=default, metadata=Choices.__dataclass_fields__[name].metadata)


@dataclass(frozen=True, kw_only=True)
class PlanChoices(Choices):
    """The choices of the party that writes the plan; None means that the value is derived."""

    purpose: str = option("", "What the head is for, in a sentence; shown to the members.")
    contact: str = option("", "Who answers questions about the plan: name, telephone, mail.")
    retention: str = option("", 'How long the parties keep what the plan leaves with them, "90 days" say.')
    max_records: int = again("max_records", 1 << 16)
    security: int = option(128, "Bits that the encryption must have: 128, 192 or 256.")
    dropouts: int | None = option(
        None, "Clients that may drop out; default: a tenth, rounded up, if so many can.", minimum=0
    )
    min_clients_in_sum: int = option(1, "Fewest clients whose sum may be opened.", minimum=1)
    join_seconds: int = option(600, "Seconds that the server waits for members to join.", minimum=1)
    step_seconds: int = option(60, "Seconds that the server waits at every later step.", minimum=1)
    round_seconds: int | None = option(
        None,
        "Seconds that the server waits for members to join a later round, for which they compute first.",
        minimum=1,
    )
    result: ResultAccess = option(ResultAccess.MEMBERS, "Parties that receive the head.")


STATED = ("purpose", "contact", "retention")
"""The choices that a plan takes as they are, for people to read."""
MOST_BY_DEFAULT = 20
"""The most clients in a sum from which surplus noise is removed unless a plan asks for it: with more there is less."""
LIKE_NOISE = 1.0
"""A stand-in for any finite ε: the rules depend on whether there is noise, not on how much."""


def make_plan(data: PublicData, roster: Roster, choices: PlanChoices, randomness: RandomSource) -> Plan:
    """Make a new plan. Raises BadInput for choices that clash, or a method that contradicts its own declaration."""
    if math.isfinite(choices.epsilon) and choices.delta is not None:
        refuse_delta(choices.delta)
    try:
        ruling = LIKE_NOISE if choices.pipeline is Rules.UNDER_NOISE else choices.epsilon
        plan = _settled(_without_noise(data, roster, choices, randomness), ruling, len(roster.clients))
        if math.isfinite(choices.epsilon):
            plan = with_noise(plan, roster, choices)
        facts = PlanFacts.of(plan, roster)
        claim = facts.sum_claim
    except MalformedMessage as error:
        raise BadInput(f"there can be no such plan: {error.problem}", remedy="choose smaller numbers") from None
    if claim is not None and not claim.holds_against_members and choices.colluders is None:
        raise BadInput(
            f"a head for the server from {len(roster.clients)} clients, none of which may collude, has noise that "
            "would not hold against the members: each knows its own share",
            remedy="ask for that with --colluders 0, or let the result go to members",
        )
    refuse_drowned_scores(facts)
    _check_declaration(plan)
    return plan


_CHECKED: set[tuple[object, ...]] = set()
"""Methods, with parameters and sizes, that passed `check_declaration` in this process: simulations repeat them."""


def _check_declaration(plan: Plan) -> None:
    """Run `check_declaration` unless the same method has passed it in this process. Raises BadInput."""
    method = without_gate(method_of(plan))
    named = plan.method, *sorted(plan.method_parameters.items())
    tried = type(method), named, plan.dimension, len(plan.classes), plan.grid
    if tried not in _CHECKED:
        check_declaration(method, plan.dimension, len(plan.classes), plan.grid)
        _CHECKED.add(tried)


def _without_noise(data: PublicData, roster: Roster, choices: PlanChoices, randomness: RandomSource) -> Plan:
    spec = choices.backbone or ("pixels" if data.kind == "images" else "features")
    features = plan_features(spec, data.input_shape, choices.expand, data.bound)
    clients = choices.cohort or len(roster.clients)
    colluders, dropouts = _find_tolerated(clients, choices)
    normalised = normalisation_for(choices)
    return Plan(
        version=PLAN_VERSION,
        session=randomness.bytes(32),
        **{name: getattr(choices, name) for name in STATED},
        method=planned_method(choices.method),
        parameters=_parameters(clients, colluders, dropouts, choices),
        data_kind=DataKind(data.kind),
        schema=data.schema.to_json() if data.schema else "",
        classes=data.classes,
        backbone=features.name,
        backbone_digest=bytes.fromhex(features.digest),
        input_shape=data.input_shape,
        expand=choices.expand,
        dimension=features.dimension,
        radius=1.0 if normalised is not Normalisation.NONE else _radius(features, choices),
        levels=choices.levels or FINE_LEVELS,
        centre=float(choices.centre),
        max_records=choices.max_records,
        at_least=choices.at_least,
        protection=choices.protection,
        colluders=colluders,
        dropouts=dropouts,
        min_clients_in_sum=max(choices.min_clients_in_sum, clients - dropouts if choices.class_gate else 1),
        epsilon=math.inf,
        delta=0.0,
        adjacency="",
        unit=choices.unit,
        roster=roster.digest,
        result=choices.result,
        normalisation=normalised,
        noise="",
        noises=(),
        security=choices.security,
        **_pace(choices),
    )


def _pace(choices: PlanChoices) -> dict[str, Any]:
    """Return the plan's fields for the cohort's size and the waiting times: to join, at a step, and in later rounds."""
    step = choices.step_seconds
    return {
        "cohort": choices.cohort,
        "join_seconds": choices.join_seconds,
        "step_seconds": step,
        "round_seconds": choices.round_seconds or step,
    }


def with_noise(plan: Plan, roster: Roster, choices: PlanChoices) -> Plan:
    """Return the plan with the least noise for the chosen (ε, δ), on the coarsest grid whose rounding the noise hides.

    Shares of clients are calibrated for all of them but the tolerated dropouts, and no smaller sum may be opened. Noise
    of members' own training hides no rounding: there the grid is a fine one.
    """
    if choices.delta is None or choices.adjacency is None:
        raise BadInput("a finite epsilon means nothing without its delta and adjacency", remedy="give both")
    survivors = max(plan.min_clients_in_sum, (plan.cohort or len(roster.clients)) - plan.dropouts)
    noise_levels: tuple[int, ...] = ()
    if choices.noise is NoiseFrom.MEMBER:
        sums, levels = _sums(plan, roster, plan.levels, choices), plan.levels
        noises = training_noise(sums, choices.unit, choices.adjacency, choices.epsilon, choices.delta)
    else:
        levels, noises, noise_levels = _noise_of_parties(
            plan, roster, survivors, choices, choices.adjacency, choices.delta
        )
    return replace(
        plan,
        levels=levels,
        min_clients_in_sum=survivors if choices.noise is NoiseFrom.CLIENT else plan.min_clients_in_sum,
        epsilon=float(choices.epsilon),
        delta=float(choices.delta),
        adjacency=choices.adjacency,
        noise=choices.noise,
        noises=noises,
        noise_levels=noise_levels,
    )


def _noise_of_parties(
    plan: Plan, roster: Roster, survivors: int, choices: PlanChoices, adjacency: Adjacency, delta: float
) -> tuple[int, tuple[PlannedNoise, ...], tuple[int, ...]]:
    """Return the grid's levels, the least noise, and the noise levels at which part of it is removed, if any."""
    noisers = NoiseParties.of(plan, choices.noise, roster, survivors)
    levels, noises = _least_noise(plan, roster, noisers, choices, adjacency, delta)
    is_asked, found = choices.surplus_noise is SurplusNoise.REMOVE, (levels, noises, ())
    is_kept = choices.surplus_noise is SurplusNoise.KEEP or noisers.mechanism is Mechanism.GAUSSIAN
    if is_kept or (noisers.parties > MOST_BY_DEFAULT and not is_asked):
        return found
    fixed, refusal = choices if is_asked else replace(choices, levels=levels), None
    for noise_levels in levels_for(noisers.parties - survivors):
        try:
            noisers = NoiseParties.of(plan, choices.noise, roster, survivors, noise_levels)
            refuse_much_removal(_sums(plan, roster, levels, choices), noisers.parties, survivors)
            return *_least_noise(plan, roster, noisers, fixed, adjacency, delta), noise_levels
        except BadInput as error:
            refusal = error
    if is_asked and refusal is not None:
        raise refusal
    return found


def _least_noise(
    plan: Plan, roster: Roster, noisers: NoiseParties, choices: PlanChoices, adjacency: Adjacency, delta: float
) -> tuple[int, tuple[PlannedNoise, ...]]:
    """Return the grid's levels and the least noise. Raises BadInput where no noise will do, or members must add it."""
    levels = choices.levels or coarsest_levels(plan.dimension)
    while True:
        sums = _sums(plan, roster, levels, choices)
        refuse_training_alone(sums)
        moved = [each.sensitivity(choices.unit, adjacency, plan.max_records) for each in sums]
        try:
            return levels, noises_for(sums, moved, noisers, choices.epsilon, delta)
        except BadInput:
            if choices.levels is not None or levels >= FINE_LEVELS:
                raise
            levels *= 2


def _sums(plan: Plan, roster: Roster, levels: int, choices: PlanChoices) -> tuple[SumSpec, ...]:
    """Return the sums that a member is charged for, with the chosen shares of μ² in the first one about records."""
    sums = list(method_of(plan).sums(plan.dimension, len(plan.classes), levels))
    first = next(place for place, kind in enumerate(sums) if kind.is_about_records)
    sums[first] = replace(sums[first], shares=read_shares(choices.shares) if choices.shares else sums[first].shares)
    return charged(plan, sums, len(roster.clients))


def coarsest_levels(dimension: int) -> int:
    """Return the grid levels (R_q) for normalised records with noise: the least power of two ≥ max(2¹⁰, 16·√dimension).

    A typical entry then is 16 grid units or more, so that rounding moves a record by at most 2 % of its length, at
    random; the sum's noise is tens of whole records at any ε of use.
    """
    return int(1 << max(10, math.ceil(math.log2(16 * math.sqrt(dimension)))))


def normalisation_for(choices: Choices) -> Normalisation:
    """Return the chosen normalisation; if none was chosen, the default for the plan's noise and the method.

    That is none without noise or refinement, else `centred-unit` or `unit`.
    It is `unit` for a chosen centre, or a method that keeps the mean. Raises BadInput where there is a radius too.
    """
    method = method_named(choices.method, choices.method_parameters)
    has_noise = math.isfinite(choices.epsilon)
    if choices.normalise is not None:
        chosen = choices.normalise
    elif not has_noise and choices.pipeline is Rules.BY_EPSILON and not method.traits.needs_unit_length:
        chosen = Normalisation.NONE
    else:
        by_unit = choices.centre or method.traits.keeps_mean
        chosen = Normalisation.UNIT if by_unit else Normalisation.CENTRED_UNIT
    if chosen is Normalisation.NONE and has_noise:
        raise BadInput("a plan with noise needs normalised records", remedy="choose centred-unit or unit")
    if chosen is not Normalisation.NONE and choices.radius not in (None, 1.0):
        raise BadInput("normalised records all have length 1", remedy="leave the radius out")
    return chosen


def usual_colluders(clients: int) -> int:
    """Return the default number of colluders: 1 for three clients or more, else 0.

    Where members see the result, the noise leaves one member's share out in any case.
    """
    return int(clients >= 3)


def _find_tolerated(clients: int, choices: PlanChoices) -> tuple[int, int]:
    """Return the tolerated colluders and dropouts: as chosen, else defaults that the minimum of clients allows."""
    colluders = choices.colluders if choices.colluders is not None else usual_colluders(clients)
    if choices.dropouts is not None:
        return colluders, choices.dropouts
    usual = protection_named(choices.protection).usual_dropouts(clients, colluders)
    return colluders, max(0, min(usual, clients - choices.min_clients_in_sum))


def _parameters(clients: int, colluders: int, dropouts: int, choices: PlanChoices) -> str:
    """Return the method's parameters, with the class gate's threshold, as canonical JSON.

    Of the clients that hold a class in the census, `dropouts` may be missing later (every sum has all the others) and
    `colluders` are not honest: the threshold leaves `class_gate` honest ones in every sum. Raises BadInput.
    """
    honest = choices.class_gate
    threshold = honest + dropouts + colluders if honest else 0
    if honest < 0 or threshold > clients:
        raise BadInput(
            f"a class gate of {honest}, beyond {dropouts} dropouts and {colluders} colluders, lets no class of "
            f"{clients} clients pass",
            remedy="lower the class gate, dropouts or colluders",
        )
    return canonical_json(put_gate(method_named(choices.method, choices.method_parameters), threshold).parameters)


def _settled(plan: Plan, epsilon: float, clients: int) -> Plan:
    """Return the plan, which is to have this ε, with its method's open parameters derived from the other fields.

    Where the sums are of groups of members, nobody but the tolerated dropouts may be missing from one.
    """
    method = method_of(plan).resolve(fixed_by(plan, epsilon, clients))
    plan = replace(plan, parameters=canonical_json(method.parameters))
    if max(kind.groups for kind in method.sums(plan.dimension, len(plan.classes), plan.levels)) == 1:
        return plan
    return replace(plan, min_clients_in_sum=max(plan.min_clients_in_sum, clients - plan.dropouts))


def fixed_by(plan: Plan, epsilon: float, clients: int) -> Fixed:
    """Collect values, fixed before any record is read, from which a method derives the parameters left open."""
    stays = plan.result is ResultAccess.MEMBERS and not protection_named(plan.protection).speaks_once
    tolerated = clients, plan.colluders, plan.dropouts
    return Fixed(plan.dimension, len(plan.classes), plan.unit, epsilon, stays, *tolerated)


def _radius(features: PlannedFeatures, choices: PlanChoices) -> float:
    """Return the chosen radius, else the public bound of a record's distance from the centre: ‖f‖ + |c|·√d."""
    if choices.radius is not None:
        return float(choices.radius)
    if features.bound is None:
        raise BadInput("these features have no public bound", remedy="give a radius, a length that no record exceeds")
    return round_up(features.bound + abs(choices.centre) * math.sqrt(features.dimension))


DROWNED = 0.2
"""Noise on a mean score, as a fraction of the largest loss, above which scores no longer tell settings apart."""


def refuse_drowned_scores(facts: PlanFacts) -> None:
    """Raise BadInput, with the number of members needed, if noise drowns the mean scores that members report."""
    clients, spec = len(facts.roster.clients), facts.kinds[0].spec
    noise = facts.kinds[0].opened_noise(clients)
    scores = [block for block in spec.blocks if block.kind is Kind.SCORE]
    if noise is None or spec.per is not Unit.CLIENT or not scores:
        return
    lengths = {each.name: each.l2 for each in spec.sensitivity(Unit.CLIENT, Adjacency.ADD_REMOVE, 1).blocks}
    losses = scores[0]
    needed = math.ceil(noise[losses.name].of_record.sigma / lengths[losses.name] / DROWNED * losses.size)
    if clients < needed:
        raise BadInput(
            f"under a promise about members noise drowns the scores of {clients}: with {needed} it would be "
            f"{DROWNED:g} of the largest loss on each of {losses.size} mean scores",
            remedy="take so many members, fewer settings or rounds, or a promise about records (gradients=1, say)",
        )
