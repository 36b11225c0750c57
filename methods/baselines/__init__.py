"""Baselines: what a user would otherwise pick, on the same records and at the same ε. No secure sum is involved."""

from methods.baselines.dp_sgd import DpSgd

__all__ = ["DpSgd"]
