"""The command line: parsing and printing only."""

from st_extras.cli.app import main

__all__ = ["main"]
