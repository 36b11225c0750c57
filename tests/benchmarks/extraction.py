"""What `--processes` costs and gains: CPU and wall seconds of one simulation whose features several processes extract.

`python -m tests.benchmarks.extraction --data D`

The records are the 12,000 pictures of mnist_12k.npz in D; the backbone is `scattering`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tests.benchmarks.cpu import user_seconds
from tests.benchmarks.fashion_mnist import DATA

PROCESSES = (1, 2, 4)


def main() -> None:
    """Run the simulation with each number of processes, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets")
    pictures = parser.parse_args().data / "mnist_12k.npz"
    print("| processes | wall s | user CPU s |\n| ---: | ---: | ---: |")
    for count in PROCESSES:
        begun = time.perf_counter()
        words = ("simulate", "--clients", "5", "--dataset", str(pictures), "--backbone", "scattering")
        used = user_seconds((*words, "--processes", str(count)))
        print(f"| {count} | {time.perf_counter() - begun:.1f} | {used:.1f} |", flush=True)


if __name__ == "__main__":
    main()
