"""Servers that cheat real parties over real connections: what each party refuses, and why."""
