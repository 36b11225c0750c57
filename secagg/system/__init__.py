"""Foundations of every package: files on disk, limits on reading, printable text, threads, extras, plug-ins."""
