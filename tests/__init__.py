"""Tests of secagg, in the order of its packages."""
