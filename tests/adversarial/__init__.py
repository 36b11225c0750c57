"""Attacks on the state machines, from the server and from clients."""
