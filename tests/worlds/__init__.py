"""Federations for tests, from a roster with its keys to whole sessions and plans run in memory or as processes."""
