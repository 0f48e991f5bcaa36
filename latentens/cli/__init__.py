"""The command `latentens`."""

from latentens.cli.app import main

__all__ = ["main"]
