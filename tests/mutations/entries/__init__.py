"""Faults planted in the source of single functions: every module here lists its `ENTRIES`."""
