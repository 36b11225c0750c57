"""What `--processes` costs and gains: wall and CPU seconds of a simulation whose features several processes extract.

`python -m tests.benchmarks.extraction`

The records are the handwritten digits that come with scikit-learn. The backbone is an exported network of four
convolutions with random weights: its features are useless, its time is that of a real one.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from secagg.experiments.tables import ResultTable
from tests.benchmarks.cpu import user_seconds

PROCESSES = (1, 2, 4)
SIDE, CHANNELS = 128, (1, 64, 128, 256, 256)


def export_network(path: Path) -> None:
    """Write the network for pictures of 8 × 8 pixels, which it first makes eight times as large."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Upsample(size=(SIDE, SIDE), mode="nearest")]
    for before, after in pairwise(CHANNELS):
        layers += [nn.Conv2d(before, after, 3, padding=1, stride=1 if before == 1 else 2), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    torch.export.save(torch.export.export(network, (torch.rand(1, 1, 8, 8),)), path)


def row_of(network: Path, processes: int) -> tuple[str, ...]:
    """One simulation's number of processes, wall seconds and user CPU seconds."""
    words = ("simulate", "--clients", "5", "--dataset", "digits", "--backbone", str(network))
    begun = time.perf_counter()
    used = user_seconds((*words, "--processes", str(processes)))
    return str(processes), f"{time.perf_counter() - begun:.1f}", f"{used:.1f}"


def main() -> None:
    """Run the simulation with each number of processes and print the table."""
    with TemporaryDirectory() as folder:
        network = Path(folder) / "network.pt2"
        export_network(network)
        rows = tuple(row_of(network, processes) for processes in PROCESSES)
    print(ResultTable("", ("processes", "wall s", "user CPU s"), rows).markdown())


if __name__ == "__main__":
    main()
