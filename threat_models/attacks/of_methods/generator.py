"""Test membership by a shared generator of embeddings: records far from its embeddings are taken for members'.

FRAug's generator learns to make embeddings unlike those of the records that taught it (Chen et al.
2023, Eq. 5), and every member and the server get it. So a member's record lies, as the public classifier embeds it,
farther from the generator's embeddings of its class than public records of that class do. Pointing: the records
farthest from what it makes are taken for members'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from methods import method_named
from methods.method import Parameters
from methods.training.fraug import AugmentedUpdate, FRAug
from methods.training.training_round import TrainingRound
from secagg.encoding import Grid
from secagg.errors import BadInput
from secagg.networks.augmented import GENERATOR
from secagg.networks.programs import named_parameters
from threat_models.attacks.attack import Attack
from threat_models.attacks.membership import metrics
from threat_models.attacks.membership.blind_baseline import BLIND, Trial, make_controls, try_candidates
from threat_models.attacks.membership.metrics import Figures
from threat_models.attacks.updates import after, as_opened, count_rounds, inputs_for, may_move, play, rounds_in
from threat_models.findings import Control, Finding
from threat_models.session import AuditRecords, Floats

DISTANCES = Figures("generator", "by distances to the generator's embeddings")
POINTED = metrics.metric_pointed("generator", "the generator points")
NOTHING = "No rounds move a generator of embeddings."
DRAWS = 64
"""Number of embeddings that are generated of each class."""
MOST_ROUNDS = 4
"""Most rounds whose generators are used, evenly spread, the last among them."""
CONTROL: Parameters = {"model": "mlp:32", "hidden": 16, "latent": 8, "steps": 10, "rate": 0.1, "rounds": 2}
LIKE = ("norm", "generator_distance", "transfer_distance")
"""Parameters that the control takes from the plan: one kind of training says nothing of another."""
CONTROL_CHAINS = 32
SEED = 20_230_804


def distances(round_: TrainingRound, records: AuditRecords, grid: Grid) -> Floats:
    """Compute each record's distance (n,) from the embeddings that the generator makes for its class.

    The mean squared distance of the classifier's embedding to `DRAWS` of them.

    Raises BadInput for a round without a generator.
    """
    import torch

    whole = round_.work.whole if isinstance(round_.work, AugmentedUpdate) else None
    if whole is None or whole.augmentation is None:
        raise BadInput("the rounds have no generator")
    inputs, found = inputs_for(round_, records, grid), np.zeros(len(records))
    with torch.inference_mode():
        row = torch.zeros(whole.size)
        row[: round_.state.size] = torch.tensor(round_.state.flat)
        parameters = named_parameters(whole, row)
        embedded = whole.classifier.learn(parameters, torch.from_numpy(inputs))
        noise = np.random.default_rng(SEED).standard_normal((DRAWS, whole.augmentation.latent), dtype=np.float32)
        for label in np.unique(records.labels):
            own = np.flatnonzero(records.labels == label)
            made = whole.augmentation.generate(parameters, torch.from_numpy(noise), torch.full((DRAWS,), int(label)))
            found[own] = torch.cdist(embedded[own], made).square().mean(dim=1).numpy()
    return found


def score(rounds: Sequence[TrainingRound], records: AuditRecords, public: AuditRecords, grid: Grid) -> Floats:
    """Score records (n,) by `distances`, standardised by public records of their class, and averaged over rounds."""
    total = np.zeros(len(records))
    for round_ in rounds:
        own, others = (distances(round_, each, grid) for each in (records, public))
        for label in np.unique(records.labels):
            rows = records.labels == label
            usual = others[public.labels == label] if (public.labels == label).any() else others
            total[rows] += (own[rows] - usual.mean()) / max(float(usual.std()), 1e-12)
    return total / max(1, len(rounds))


def _score(rounds: list[TrainingRound], trial: Trial) -> Finding:
    view, plan, public = trial.view, trial.view.plan, trial.public
    taught = rounds[1:]
    if "release" in view.sees:
        taught += [after(rounds[-1], as_opened(view.release, view, len(view.members)))]
    taught = taught or rounds
    places = np.linspace(len(taught) - 1, 0, min(MOST_ROUNDS, len(taught))).round().astype(int)
    tested = trial.scored(score([taught[place] for place in places], trial.records, public, plan.grid))
    trial.progress(1, 2)
    controls = _make_controls(trial.outside, public, plan.grid, plan.method_parameters)
    trial.progress(2, 2)
    sentence = f"From the generators after {len(taught)} of {count_rounds(plan)} rounds: {{word}}.{{blind}}"
    is_whole, pointed = len(taught) == count_rounds(plan), metrics.measure_pointed(tested, POINTED)
    curve = "Membership, from the generator"
    return trial.find({DISTANCES: tested}, controls, sentence, curve, withstood=is_whole, pointed=pointed)


def _make_controls(
    outside: AuditRecords, public: AuditRecords, grid: Grid, plan: Parameters
) -> tuple[Control, Control]:
    """Make the controls from rounds of `CONTROL`, whose generator learns from one record of a random class alone.

    It learns as the plan's does (`LIKE`), must be told from others, and another called it must not.
    """
    generator = np.random.default_rng(SEED)
    chosen = CONTROL | {name: plan[name] for name in LIKE}
    first = method_named(FRAug.name, chosen).begin(outside.integers.shape[1], 2, grid.levels)
    if not isinstance(first, TrainingRound):
        raise BadInput("the rounds have no generator")
    halves = [replace(each, labels=generator.integers(0, 2, len(each))) for each in (outside, public)]

    def draw() -> Floats:
        mixed, states = halves[0].take(generator.permutation(len(outside))), [first]
        for _ in range(first.rounds):
            states.append(play(states[-1], mixed.take(slice(1)), 1, grid))
        return score(states[1:], mixed, halves[1], grid)

    names = f"{CONTROL_CHAINS} generators taught by one record each", "another record, called the one"
    return make_controls(names, (draw() for _ in range(CONTROL_CHAINS)), 1)


def _has_generator(round_: TrainingRound) -> bool:
    return GENERATOR in round_.state.groups


MEMBERSHIP_GENERATOR = Attack(
    "membership_generator",
    "Membership of a record, from a shared generator of embeddings",
    "Hayes, Melis, Danezis & De Cristofaro 2019, of generators; here of FRAug's (Chen et al. 2023)",
    (),
    try_candidates(
        "membership_generator", NOTHING, lambda view: list(filter(_has_generator, rounds_in(view))) or None, _score
    ),
    (*DISTANCES.metrics, BLIND, POINTED),
    tells_members=True,
    limits=8,
    meaning="Whether a record was used can be told from embeddings that the shared generator makes.",
    remedy="Plan with a finite epsilon, or with more members and records in each sum.",
    lacks=lambda session: "" if may_move(session, _has_generator) else NOTHING,
)
