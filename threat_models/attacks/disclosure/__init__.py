"""Attacks that infer class counts, single records or one client's part from sums; none is a membership test."""
