"""The shared protection: additive shares for aggregators that do not all collude; clients speak once."""
