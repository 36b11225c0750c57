"""What a secure sum costs in time, bytes and memory, measured on this machine: `python -m tests.benchmarks`."""
