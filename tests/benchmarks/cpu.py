"""User CPU seconds of whole commands on one thread, start to end, beside their goals.

`python -m tests.benchmarks.cpu --data D [--only demo,masked-100]`

D holds the data sets of `tests.benchmarks.accuracy`. Each command runs once, in a process of its own and an empty
folder; features and accounting that a machine keeps between runs are not kept.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from secagg.experiments.tables import ResultTable
from tests.benchmarks.fashion_mnist import DATA

CIFAR, PACS = "cifar10_resnet18_layer3_features.npz", "pacs_resnet18_layer3_features_64px.npz"
NOISE = ("--epsilon", "1", "--delta", "1e-5", "--adjacency", "add-remove")


@dataclass(frozen=True)
class Command:
    """What it does, its words, user CPU seconds before this release was sped up (none: not measured) and the goal."""

    title: str
    words: tuple[str, ...]
    goal: float
    before: float | None = None


def commands(data: Path) -> Mapping[str, Command]:
    """All of them, by name."""
    cifar, pacs = (("--dataset", str(data / each)) for each in (CIFAR, PACS))
    simulate = ("simulate", "--clients")
    return {
        "rounds": Command("CIFAR-10, ε = 1, 16 rounds", (*simulate, "10", *cifar, *NOISE), 6, 13.6),
        "dp-sgd": Command("dp-sgd on PACS, ε = 1", ("simulate", "--method", "dp-sgd", *pacs, *NOISE), 7, 48.6),
        "audit": Command(
            "audit of simulated digits by curious_server",
            ("audit", "--simulate", "--dataset", "digits", "--threat-model", "curious_server"),
            10,
            27,
        ),
        "masked-100": Command("digits, 100 masked clients", (*simulate, "100", "--dataset", "digits"), 4, 7.5),
        "masked-500": Command("CIFAR-10, 500 masked clients", (*simulate, "500", *cifar), 30, 62),
        "demo": Command("secagg demo: seven processes over gRPC, verified and audited", ("demo",), 40),
    }


def user_seconds(words: tuple[str, ...]) -> float:
    """User CPU seconds of `secagg` with these words, its processes included. Raises CalledProcessError."""
    begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with TemporaryDirectory() as folder:
        alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "XDG_CACHE_HOME": folder}
        result = subprocess.run(
            [sys.executable, "-m", "secagg", *words], cwd=folder, env=alone, capture_output=True, check=False
        )
    if result.returncode not in (0, 1, 4):  # 1, 4: an exact sum of so few records does not pass its audit
        raise subprocess.CalledProcessError(result.returncode, words, result.stdout, result.stderr)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun


def main() -> None:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description="User CPU seconds of whole commands")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    parser.add_argument("--only", default="", help="names, separated by commas; default: all")
    chosen = parser.parse_args()
    every = commands(chosen.data)
    rows = []
    for name in chosen.only.split(",") if chosen.only else every:
        print(name, file=sys.stderr)
        command = every[name]
        before = f"{command.before:g}" if command.before is not None else ""
        rows.append((command.title, before, f"{user_seconds(command.words):.1f}", f"≤ {command.goal:g}"))
    print(ResultTable("User CPU seconds, one thread.", ("", "before", "now", "goal"), tuple(rows)).markdown())


if __name__ == "__main__":
    main()
