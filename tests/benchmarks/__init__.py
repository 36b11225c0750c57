"""What the masked sum costs in time, bytes and memory, measured on this machine: `python -m tests.benchmarks`."""
