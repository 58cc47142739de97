"""The command line: parse, call, print."""

from elr.cli.main import main

__all__ = ["main"]
