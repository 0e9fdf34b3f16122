"""The process of a driver.

Its engine starts it with `python -m millstream.engine.driver.main` and sends it commands
(protocol.py). What it, Spark or the user's code print goes to stderr, which the engine writes to
the job's log. It ends with its engine: when stdin closes it takes its whole process group along.

Its Java starts first, and everything else is loaded meanwhile: a start waits for Java in the end.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import BinaryIO

from millstream.actions.parent import end_with_parent
from millstream.spark.session.start import SparkStart


def main() -> int:
    """Serve an engine: `--warm` starts Spark at once, with the master of `--master`.

    With `--begin`, only its Java starts. With `--storage`, checkpoints can be there.
    """
    end_with_parent()
    commands, reports = taken_over()
    # Ctrl-C on a terminal reaches the engine, which decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    arguments = sys.argv[1:]
    given = {name: arguments[n + 1] for n, name in enumerate(arguments[:-1])}
    start = SparkStart("driver", given.get("--master"), given.get("--storage"))
    warm, begun = "--warm" in arguments, "--begin" in arguments
    if warm or begun:
        start.begin()
    from millstream.engine.driver.driver import Driver
    from millstream.engine.driver.protocol import Line

    return Driver(Line(commands, reports), start).serve(warm=warm, begun=begun)


def taken_over() -> tuple[BinaryIO, BinaryIO]:
    """Take over stdin and stdout, so that nobody else reads or prints there."""
    commands, reports = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return commands, reports


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Threads of the user's, or Spark's, do not keep a driver that is done.
    os._exit(code)
