"""Tests of the masked protocol."""
