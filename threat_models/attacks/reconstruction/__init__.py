"""Attacks that reconstruct single records, or images of them, from sums, means and updates."""
