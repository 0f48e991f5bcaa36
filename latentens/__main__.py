"""The command `latentens` as `python -m latentens`."""

from latentens.cli import main

main()
