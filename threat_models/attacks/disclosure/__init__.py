"""Attacks that read sums without a statistical test: of classes, of single records, of one client."""
