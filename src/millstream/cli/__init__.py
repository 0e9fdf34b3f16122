"""The command line: `millstream plan | run | send | engine | deploy | jobs | ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from millstream.errors import EngineAway, MillstreamError

#: The exit status if an engine cannot be reached: trying again may help.
AWAY = 3


def main() -> None:
    """Run a command; no text of others controls the terminal."""
    arguments = sys.argv[1:]

    def run() -> None:
        from millstream.cli.app import called

        called(arguments)()

    guarded(run, f"millstream {arguments[0]}" if arguments else "millstream")


def is_command() -> bool:
    """Tell whether this process is the command's, and not one that calls it, such as a test's."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return bool(spec.name == "millstream.__main__")
    return str(getattr(main, "__file__", "")).rpartition("/")[2] == "millstream"


def guarded(run: Callable[[], None], name: str) -> None:
    """Run something; print errors in a few words, without a traceback or control characters."""
    from millstream import terminal

    with terminal.guarded():
        _run(run, name)


def _run(run: Callable[[], None], name: str) -> None:
    try:
        run()
    except MillstreamError as error:
        report(error)
        sys.exit(AWAY if isinstance(error, EngineAway) else 1)
    except ImportError as error:
        from millstream.extras import missing

        explained = missing(error, name)
        if explained is None:
            raise
        report(explained)
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        report(MillstreamError(f'"{error.filename}": {(error.strerror or str(error)).lower()}'))
        sys.exit(1)
    except KeyboardInterrupt:  # while loading; later, commands handle it
        sys.exit(130)


def report(error: MillstreamError) -> None:
    """Write an error to the terminal: the fact, the place, the hint."""
    print(f"error: {error}", file=sys.stderr)
    for note in getattr(error, "__notes__", []):
        print(f"  {note.strip()}", file=sys.stderr)
