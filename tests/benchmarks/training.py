"""Every table of training in rounds in methods/ACCURACY.md: accuracy of `fedavg` under three promises, and its cost.

`python -m tests.benchmarks.training --data D --out F [--only mnist,usps,members,cost,secure]`

D holds the data sets of `tests.benchmarks.accuracy` and `usps.npz`. F receives a folder of runs for each table of
accuracy (what has ended is not repeated) and `training.md`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from secagg.agreement.roster import Member, Roster
from secagg.crypto.signatures import SigningKey
from secagg.data import Dataset, open_dataset
from secagg.experiments.results import Run
from secagg.experiments.session import run_session
from secagg.experiments.settings import SimulationSettings
from secagg.experiments.sweep import Execution, combinations, runs_of
from secagg.experiments.tables import ResultTable
from secagg.plan_facts.planning import PublicData, make_plan
from secagg.privacy import discrete_gaussian
from secagg.randomness import OperatingSystem
from secagg.session import RoundSetup
from tests.benchmarks.accuracy import DELTA, NOISE_SEED, TASKS, open_task, say
from tests.benchmarks.cpu import user_seconds
from tests.benchmarks.fashion_mnist import DATA
from tests.benchmarks.scenario import LENGTH, RING, placed, roles, setup_of
from tests.benchmarks.streams import measure_streams

ROUNDS = 20
SHARED = {"method": "fedavg", "rounds": ROUNDS, "every": ROUNDS, "delta": DELTA, "adjacency": "add-remove"}
SHARED |= {"noise_seed": NOISE_SEED, "reference": False}
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """A row of a table: its settings beside `SHARED`, the ε above its columns, and how many seeds."""

    title: str
    settings: Settings
    epsilons: tuple[float, ...]
    seeds: int = 3

    def asked(self, epsilon: float) -> list[dict[str, Any]]:
        """The settings of its runs at this ε, by seed."""
        grid = {name: (value,) for name, value in {**SHARED, **self.settings, "epsilon": epsilon}.items()}
        return [dict(each) for each in combinations(grid, self.seeds)]


PRIVATE = (2.0, 8.0)
CNN: Mapping[str, Form] = {
    "exact": Form(
        "no noise", {"clients": 10, "unit": "client", "parameters": "model=cnn rate=0.1 clip=10"}, (math.inf,)
    ),
    "dp-sgd": Form(
        "DP-SGD inside the member",
        {
            "clients": 10,
            "noise": "member",
            "parameters": "model=cnn sampling=0.25 steps=2 batch=125 gradient_clip=1 rate=0.25 clip=10 server=momentum",
        },
        PRIVATE,
        seeds=1,
    ),
    "gradients": Form(
        "gradients of records, noise in the sum",
        {"clients": 10, "parameters": "model=cnn gradients=1 clip=1 rate=1 server=momentum"},
        PRIVATE,
        seeds=1,
    ),
}
"""Ten members train the built-in CNN. Constants were chosen on a fifth of the training records."""
DIGITS = {"mnist": ("MNIST, 10,000 records", "mnist_12k.npz"), "usps": ("USPS, 7,291 records", "usps.npz")}
CLIENT_LEVEL = {"unit": "client", "expand": 256, "parameters": "model=softmax rate=0.1 clip=0.3 server=momentum"}
TRUSTED = {"protection": "none", "noise": "aggregator"}
"""One noise of the size that a masked sum's shares have together, added by whoever opens: cheaper, as accurate."""
MEMBERS: Mapping[int, Settings] = {10: {}, 200: TRUSTED, 1000: TRUSTED}


def of_members(members: int) -> Form:
    """The row of the table of client level for so many."""
    return Form(f"{members:,}", {**CLIENT_LEVEL, "clients": members, **MEMBERS[members]}, (8.0, math.inf))


def measure(
    dataset: Dataset, forms: Sequence[Form], columns: Sequence[float], out: Path, workers: int | None
) -> list[tuple[str, ...]]:
    """A row for each form: its title, and at each ε of `columns` the accuracy, or nothing; `out` keeps the runs.

    What was refused is said on stderr and has no accuracy.
    """
    out.mkdir(parents=True, exist_ok=True)
    flat = [settings for form in forms for epsilon in form.epsilons for settings in form.asked(epsilon)]
    runs = iter(runs_of(dataset, flat, out, Execution.of(out, workers, say)).runs)
    rows = []
    for form in forms:
        cells = {epsilon: shown([next(runs) for _ in range(form.seeds)]) for epsilon in form.epsilons}
        rows.append((form.title, *(cells.get(epsilon, "") for epsilon in columns)))
    return rows


def shown(runs: Sequence[Run]) -> str:
    """The mean of the accuracies in per cent, the lowest and the highest of several; whether any run was refused."""
    if refused := {str(run.refusal) for run in runs if run.result is None}:
        print(*refused, sep="\n", file=sys.stderr)
        return "refused"
    values = [100 * run.result["accuracy"] for run in runs if run.result is not None]
    spread = f" ({min(values):.2f} to {max(values):.2f})" if len(values) > 1 else ""
    return f"{mean(values):.2f}{spread}"


def make_cnn(name: str, data: Path, out: Path, workers: int | None) -> str:
    """Three forms on one set of digits."""
    title, file = DIGITS[name]
    columns = (*PRIVATE, math.inf)
    rows = measure(open_dataset(str(data / file)), tuple(CNN.values()), columns, out / name, workers)
    seeds = ", ".join(f"{form.title} {form.seeds}" for form in CNN.values())
    caption = (
        f"{title}, the built-in CNN, ten members, {ROUNDS} rounds, masked: accuracy in per cent, the mean over seeds "
        f"(the lowest to the highest), {seeds} of them; δ = {DELTA:g}, add/remove of a record, c = 1, D = 0."
    )
    return ResultTable(caption, (title, *(f"ε = {each:g}" for each in PRIVATE), "ε = ∞"), tuple(rows)).markdown()


def make_members(data: Path, out: Path, workers: int | None) -> str:
    """Client level for more and more members, and how much noise their plans have."""
    folder = out / "members"
    folder.mkdir(parents=True, exist_ok=True)
    forms = [of_members(members) for members in MEMBERS]
    found = measure(open_task(TASKS["fashion"], data, folder), forms, forms[0].epsilons, folder, workers)
    rows = []
    for members, row in zip(MEMBERS, found, strict=True):
        masked, none = (f"{noise_to_signal(plan_of(members, each)):.3g}" for each in ("masked", "none"))
        rows.append((*row, masked, none))
    caption = (
        f"Fashion-MNIST, 256 random features, softmax regression (2,570 numbers), {ROUNDS} rounds, a promise about a "
        f"whole member: accuracy in per cent, the mean of {forms[0].seeds} seeds (the lowest to the highest); ε = 8, "
        f"δ = {DELTA:g}, c = 1, D = 0. Noise ÷ signal: the length of a round's noise against that of all updates where "
        "each is as long as it may be, under masks, and under none, where each share must hide its member alone. Ten "
        "members are masked; for 200 and 1,000 one noise as large as a masked sum's is added to the sum."
    )
    return ResultTable(caption, ("members", "ε = 8", "ε = ∞", "noise ÷ signal", "under none"), tuple(rows)).markdown()


def plan_of(members: int, protection: str) -> RoundSetup:
    """The plan at ε = 8 of a row of the table of client level under this protection, with noise by the members."""
    settings = {**SHARED, **CLIENT_LEVEL, "clients": members, "protection": protection, "epsilon": 8.0}
    return setup_for(settings, (28, 28))


def setup_for(settings: Settings, shape: tuple[int, ...], classes: int = 10) -> RoundSetup:
    """What everybody derives from the plan of such a run on images or features of this shape, 6,000 a member."""
    chosen = SimulationSettings(**settings)
    names = [("server", "server"), *((f"client-{place}", "client") for place in range(chosen.clients or 0))]
    members = [Member(*each, SigningKey.generate(OperatingSystem()).public) for each in names]
    roster = Roster.of("training", members)
    data = PublicData.of_shape(shape, tuple(map(str, range(classes))))
    return RoundSetup.of(make_plan(data, roster, chosen.plan_choices(None, 6000, 0), OperatingSystem()), roster)


def noise_to_signal(setup: RoundSetup) -> float:
    """The expected length of all members' noise in a round ÷ the length of their updates, each as long as it may be."""
    (noise,), (block,) = setup.plan.noises, setup.sum.spec.blocks
    members = len(setup.context.clients)
    length: float = setup.round.work.encoding.length  # type: ignore[attr-defined]
    return noise.sigma * math.sqrt(members * block.size) / (members * length)


def make_cost(data: Path, out: Path, workers: int | None) -> str:
    """User CPU seconds of a round and of what comes before the first, by the difference of a long and a short run."""
    spent = {protection: _line(data, protection) for protection in ("none", "masked")}
    (plain, begun), (masked, _) = spent["none"], spent["masked"]
    body = [
        ("a round, protection none", plain, 0.085),
        ("what masks add to it, all ten members", masked - plain, 0.15),
        ("from start to the first round, and one evaluation", begun, 3.0),
    ]
    caption = (
        "Ten members of 500 MNIST records train mlp:128 (101,770 parameters), an epoch a round in batches of 32: user "
        f"CPU seconds on one thread, medians of {REPEATS} runs of {LONG} rounds and of {SHORT}, and their difference."
    )
    rows = tuple((name, f"{value:.3f}", f"≤ {goal:g}") for name, value, goal in body)
    return ResultTable(caption, ("", "CPU s", "goal"), rows).markdown()


SHORT, LONG, REPEATS = 2, 42, 3
MLP = ("simulate", "--method", "fedavg", "--parameters", "model=mlp:128 rate=0.1 clip=10 batch=32", "--unit", "client")


def _line(data: Path, protection: str) -> tuple[float, float]:
    """CPU seconds of one round and of everything else."""
    half = ("--dataset", str(data / DIGITS["mnist"][1]), "--validate", "0.5", "--clients", "10")
    words = (*MLP, *half, "--protection", protection, "--every", "10000", "--no-reference", "--rounds")
    long, short = (median(user_seconds((*words, str(each))) for _ in range(REPEATS)) for each in (LONG, SHORT))
    each = (long - short) / (LONG - SHORT)
    return each, short - SHORT * each


ENTRIES, TEN, NOISE = 1 << 20, 10, 1000.0
"""Of the session whose members' own cost is measured; σ of a share's noise, in grid units."""


def make_secure(data: Path, out: Path, workers: int | None) -> str:
    """CPU of one member of a masked sum of a million entries, without training, beside its floor."""
    times = measure_streams()
    floor = TEN * (times.keystream + times.addition) * ENTRIES / LENGTH
    body = []
    for title, sigma, goal in (("without noise", 0.0, 0.15), ("with a share of noise", NOISE, 0.4)):
        cost = min(_member_cpu(sigma) for _ in range(REPEATS))
        body.append((title, f"{cost:.3f}", f"≤ {goal:g}", f"{cost / floor:.1f}"))
    caption = (
        f"A masked sum of {ENTRIES:,} entries in a {RING.bits}-bit ring, {TEN} members: CPU seconds of one, all steps, "
        f"the best of {REPEATS}. Floor: {TEN} key streams and additions at full speed, measured in the same run: "
        f"{1000 * floor:.1f} ms."
    )
    return ResultTable(caption, ("", "CPU s", "goal", "÷ floor"), tuple(body)).markdown()


def _member_cpu(sigma: float) -> float:
    """The median member's CPU seconds in a whole session in memory. Raises ValueError for a wrong sum without noise."""
    names = roles(TEN, "masked")
    keys = {index: SigningKey.generate(OperatingSystem()) for index in range(len(names))}
    roster = Roster.of("benchmark", [Member(*each, keys[index].public) for index, each in enumerate(names.items())])
    setup = setup_of(roster)
    setup = replace(setup, context=placed(setup.context, ENTRIES))
    vector = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, size=ENTRIES)

    def vector_of(_: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        return vector + discrete_gaussian([(sigma, ENTRIES)], OperatingSystem()) if sigma else vector

    opened = run_session(setup, keys, vector_of, {})
    if not sigma and not np.array_equal(opened.total, TEN * vector):
        raise ValueError("the opened sum is not the members' sum")
    return median(opened.measured.client_cpu.values())


MAKERS: Mapping[str, Callable[[Path, Path, int | None], str]] = {
    **{name: partial(make_cnn, name) for name in DIGITS},
    "members": make_members,
    "cost": make_cost,
    "secure": make_secure,
}


def main() -> None:
    """Make what was asked for and write the tables."""
    parser = argparse.ArgumentParser(description="Training in rounds, as in methods/ACCURACY.md")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; a run in it is not repeated")
    parser.add_argument("--only", default=",".join(MAKERS), help="tables, separated by commas")
    parser.add_argument("--workers", type=int, default=None, help="processes; default: one per core")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    made = []
    for name in chosen.only.split(","):
        print(name, file=sys.stderr)
        made.append(MAKERS[name](chosen.data, chosen.out, chosen.workers))
        (chosen.out / "training.md").write_text("\n".join(made), encoding="utf-8")
    print("\n".join(made))


if __name__ == "__main__":
    main()
