"""The command `latentens`."""

__all__ = ["main"]


def main() -> None:
    """Run the command; a user's error ends it with one sentence and exit code 2, an interrupt with 130."""
    from latentens.cli.terminal import ending_on_signals

    with ending_on_signals():
        from latentens.cli.app import run  # takes a while, in which Ctrl-C already ends the command

        run()
