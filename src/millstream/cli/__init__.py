"""The command line: `millstream plan | run | send | journal | checkpoint | keys | new`."""

from __future__ import annotations

import sys

from millstream.errors import MillstreamError


def main() -> None:
    """Run a command; say errors in a few words, without a traceback."""
    from millstream.cli.app import app

    try:
        app()
    except MillstreamError as error:
        report(error)
        sys.exit(1)


def report(error: MillstreamError) -> None:
    """Write an error to the terminal: the fact, the place, the hint."""
    print(f"error: {error}", file=sys.stderr)
    for note in getattr(error, "__notes__", []):
        print(f"  {note.strip()}", file=sys.stderr)
