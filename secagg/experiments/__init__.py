"""Experiments: simulated federations in one process, sweeps and comparisons of them, and their tables and figures."""
