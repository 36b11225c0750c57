"""Experiments: whole sessions in one process."""
