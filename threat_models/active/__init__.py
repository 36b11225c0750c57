"""Servers that cheat real parties over real connections: which cheats each party refuses, and why."""
