"""Attacks on sums that infer class counts, single records or one client's contribution (not membership tests)."""
