"""`python -m secagg` is the same as the console script `secagg`."""

from secagg.cli import main

main()
