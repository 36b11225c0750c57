"""Tests of the protections as state machines."""
