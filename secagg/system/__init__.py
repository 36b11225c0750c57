"""Shared foundations of all packages: private files, limits on reading, printable text, threads, extras, plug-ins."""
