"""Faults put into the code on purpose, and the checks that must report them."""
