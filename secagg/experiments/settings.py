"""The settings of a simulation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from inspect import getdoc
from numbers import Integral, Real
from textwrap import fill, indent
from typing import Any

from methods import METHODS, ROUNDS, method_named, parameters_of
from methods.closed_form.refinement import AUTO
from secagg.agreement.plan import MOST_STATED
from secagg.data.partition import LeftOut
from secagg.errors import BadInput
from secagg.experiments.seeding import SEEDS, Randomness
from secagg.heads.adaptation import Adaptation
from secagg.plan_facts.planning import BY_RULE, Choices, PlanChoices, again, kind_in, option, usual_colluders
from secagg.privacy.claim import refuse_delta
from secagg.protection import protection_named
from secagg.wire import Choice

DEFAULT_CLIENTS = 5
_TAKEN: Mapping[type, tuple[type, str]] = {
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    bool: (bool, "True or False"),
}
"""The types that a setting of each type may be given as, and what messages call them."""


@dataclass(frozen=True, kw_only=True)
class SimulationSettings(Choices):
    """All settings of `simulate`, named as on the command line; each field holds its help text.

    `parameters` may also be a mapping, {"slots": 16, "keep": 0.9} say. `refine` None or "auto": rounds where they pay,
    as far as a plan's fields tell. With `cohort`, `dropouts` and `colluders` are of a cohort. `seed` moves the
    baselines' training, too; keys and masks are never seeded. Raises BadInput, naming the setting, for a value of
    another type and for what cannot be or does not go together.
    """

    parameters: str = again("parameters", "")
    clients: int | None = option(
        None, "Clients; default 5, for a folder one per table, with --partition column:NAME one per value.", minimum=1
    )
    partition: str = option(
        "iid", "How records are dealt to clients: iid, dirichlet:ALPHA, shards:K or column:NAME[:K]."
    )
    every: int | None = option(
        None,
        "In a plan of several sums: measure accuracy after every K; default: about 20 times.",
        minimum=1,
        metavar="K",
    )
    leave_out: str | None = option(
        None, "Records of this value are the test records, and no client has them.", metavar="COLUMN=VALUE"
    )
    validate: float = option(
        0.0,
        "Hold this fraction of the training records out and measure accuracy on it, to choose constants.",
        minimum=0,
        maximum=0.9,
    )
    adapt: str = option(
        "",
        "What each client trains after the sum: align:LAMBDA or distil:BETA, and :SHOTS of each class.",
        metavar="HOW",
    )
    dropouts: int = option(0, "Clients that drop out, at different steps of the protocol.", minimum=0)
    tolerate: int | None = option(
        None,
        "Dropouts that thresholds and noise allow for, whether they happen or not; default: those that do.",
        minimum=0,
    )
    seed: int = option(
        0,
        "Fixes the partition, the dropouts and the draw of cohorts. Not fixed: noise, keys, and what members draw to "
        "train (batches, start); --noise-seed fixes these, but keys.",
        minimum=0,
    )
    noise_seed: int | None = option(
        None,
        "Repeat noise and what members draw to train, bit for bit; with a finite epsilon the result is not private.",
        minimum=0,
    )
    reference: bool = option(True, "Also compute the same without noise, to compare with.")

    @classmethod
    def listed(cls) -> str:
        """Return the settings as a paragraph for a docstring, each with its default and its help."""
        each = [f"{each.name}={each.default!r}: {each.metadata['help']}" for each in fields(cls)]
        lines = [fill(line, 112, subsequent_indent="    ", break_on_hyphens=False) for line in each]
        return indent("\n".join(["Settings and their defaults:", *lines, "", getdoc(cls) or ""]), "    ")

    @classmethod
    def from_values(cls, settings: Mapping[str, Any]) -> SimulationSettings:
        """Return the settings with these values, converted by `as_setting`. Raises BadInput."""
        return cls(**{name: as_setting(name, value) for name, value in settings.items()})

    def __post_init__(self) -> None:
        for each in fields(self):
            (kind, _), value = kind_of(each.name), as_setting(each.name, getattr(self, each.name))
            if value is not None and issubclass(kind, Choice):
                value = kind.read(value, each.name)
            object.__setattr__(self, each.name, value)
        super().__post_init__()
        if self.leave_out is not None:
            LeftOut.read(self.leave_out)
        self._check_numbers()
        if not 0 <= self.validate < 1 or (self.validate and self.leave_out is not None):
            problem = f"validate cannot be {self.validate:g}" + (" with leave_out" if self.leave_out else "")
            raise BadInput(problem, remedy="give a fraction below 1 of the training records, and leave out no others")
        if self.adaptation is not None:
            self._check_adaptation(self.adaptation)
        if not self.epsilon > 0:
            raise BadInput(f"epsilon cannot be {self.epsilon}", remedy="give inf or a number above 0")
        if math.isfinite(self.epsilon) and (self.delta is None or self.adjacency is None):
            raise BadInput("a finite epsilon means nothing without its delta and adjacency", remedy="give both")
        if self.delta is not None:
            refuse_delta(self.delta)
        if (self.clients is not None and self.clients < 1) or self.dropouts < 0 or (self.colluders or 0) < 0:
            raise BadInput("give at least one client, and no negative number of dropouts or colluders")
        most_dropouts = protection_named(self.protection).most_dropouts
        if self.cohort < 0:
            raise BadInput(f"cohort cannot be {self.cohort}", remedy="give how many clients are drawn; 0: all")
        if self.tolerate is not None and self.tolerate < self.dropouts:
            problem = f"tolerate must be {self.dropouts} or more, as many as drop out (got {self.tolerate})"
            raise BadInput(problem, remedy="leave it out to tolerate those that drop out")
        if (clients := self.cohort or self.clients) is not None:
            self.refuse_dropouts(clients, most_dropouts(clients, self.colluders_of(clients)))

    def colluders_of(self, clients: int) -> int:
        """Return the number of colluders that the plan for `clients` clients withstands."""
        return usual_colluders(clients) if self.colluders is None else self.colluders

    def refuse_dropouts(self, clients: int, most: int) -> None:
        """Raise BadInput if more clients are to drop out than `most`, the number that a sum of `clients` tolerates."""
        if self.tolerated > most:
            colluders = self.colluders_of(clients)
            problem = f"{clients} clients tolerate at most {most} dropouts where {colluders} may collude"
            remedy = "give fewer, or more clients" + (", or fewer colluders" if colluders else "")
            raise BadInput(problem, remedy=remedy)

    @property
    def tolerated(self) -> int:
        """The number of dropouts that the plan allows for."""
        return self.dropouts if self.tolerate is None else self.tolerate

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on settings without effect: δ and adjacency where ε = ∞."""
        idle = [name for name in ("delta", "adjacency") if getattr(self, name) is not None]
        if math.isfinite(self.epsilon) or not idle:
            return ()
        verb = "promise" if len(idle) > 1 else "promises"
        return (f"{' and '.join(idle)} {verb} nothing at epsilon inf: there is no noise",)

    @property
    def randomness(self) -> Randomness:
        """The source of random numbers for noise, identities and local training."""
        return Randomness(self.noise_seed, self.seed)

    @property
    def has_known_noise(self) -> bool:
        """Whether the results have noise that anyone who knows its seed can remove."""
        return self.noise_seed is not None and math.isfinite(self.epsilon)

    @property
    def adaptation(self) -> Adaptation | None:
        """Each client's training after the sum, parsed from `adapt`; None if that is empty. Raises BadInput."""
        return Adaptation.read(self.adapt) if self.adapt else None

    def _check_numbers(self) -> None:
        if self.refine is not None and self.refine < 0:
            raise BadInput(f"refine cannot be {self.refine}", remedy='give a number of rounds, or "auto"')
        if self.every is not None and self.every < 1:
            raise BadInput(f"every cannot be {self.every}", remedy="give a number of rounds from 1 on")
        if self.rounds is not None and self.method in METHODS:
            parameters_of(self.method, {ROUNDS: self.rounds}, self.parameters)
        if not 0 <= self.at_least <= MOST_STATED:
            raise BadInput(f"at_least cannot be {self.at_least}", remedy=f"give a number from 0 to {MOST_STATED}")
        if self.noise_seed is not None and not 0 <= self.noise_seed < SEEDS:
            raise BadInput(f"the noise seed cannot be {self.noise_seed}", remedy="give 0 up to 2^63 - 1")

    def _check_adaptation(self, adaptation: Adaptation) -> None:
        """Raise BadInput for settings that adaptation could refuse only after the sum."""
        if self.refine:
            raise BadInput("a refined head cannot be adapted", remedy="leave out refine or adapt")
        if self.leave_out is not None:
            problem = "adapt measures clients on each other's domains, leave_out on one that none has"
            raise BadInput(problem, remedy="leave out one of them")
        weights = method_named(self.method).traits.weights if self.method in METHODS else "other"
        if adaptation.loss == "align" and weights == "other" and "personalise=1" not in self.parameters.split():
            remedy = 'give fedcgs --parameters "personalise=1", or use distil'
            raise BadInput(f"{self.method} hands out no class means to align with", remedy=remedy)

    @property
    def _refinements(self) -> int | None:
        if self.refine is not None or "refine" not in method_named(self.method).parameters:
            return self.refine
        return 0 if self.adapt else AUTO  # a head to be adapted is not refined

    def plan_choices(self, radius: float | None, max_records: int, dropouts: int) -> PlanChoices:
        """Return the choices that define a plan: these settings, completed by the arguments."""
        shared = {each.name: getattr(self, each.name) for each in fields(Choices)}
        decided = {"radius": radius, "max_records": max_records, "dropouts": dropouts}
        method = {"parameters": tuple(self.method_parameters.items()), "rounds": None, "refine": None}
        return PlanChoices(**{**shared, **decided, **method})


kind_of = partial(kind_in, SimulationSettings)


def as_setting(name: str, value: Any) -> Any:
    """Convert a value to the type of the setting `name`, as the command line would pass it.

    Choices become text, and numbers those of Python. Raises BadInput, naming the setting, for a value of another type
    and a name that is no setting.
    """
    kind, optional = kind_of(name)
    if optional and (value is None or (name == "refine" and value == BY_RULE)):
        return None
    if name == "parameters" and isinstance(value, Mapping):
        words = [f"{key}={each}" for key, each in value.items()]
        if any(len(word.split()) != 1 for word in words):
            raise BadInput(f"parameters cannot be {value!r}", remedy="give names and values without spaces")
        return " ".join(words)
    kind = str if issubclass(kind, Choice) else kind
    taken, wanted = _TAKEN[kind]
    if isinstance(value, bool) is not (kind is bool) or not isinstance(value, taken):
        more = f' or "{BY_RULE}"' if name == "refine" else " or None" * optional
        raise BadInput(f"{name} cannot be {value!r}", remedy=f"give {wanted}{more}")
    return kind(value)
