"""The command line `secagg`: a module for each command, and `main`, which the console script calls."""

from secagg.cli.main import main

__all__ = ["main"]
