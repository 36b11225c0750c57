"""The command line. `main` is the console script."""

from secagg.cli.main import main

__all__ = ["main"]
