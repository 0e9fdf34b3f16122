"""A script beside each process that has programs: ends them when that process is gone.

It reads from standard input which programs there are, `+123` and `-123`. The end of that input is
the end of the process that held it. It imports nothing of ours.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Wait for the end, then kill the programs that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    programs = set()
    for line in sys.stdin.buffer:
        program = int(line[1:])
        if line[:1] == b"+":
            programs.add(program)
        else:
            programs.discard(program)
    for program in programs:
        end(program)


def end(program: int) -> None:
    """Kill a process, all that it has started, and its group."""
    # As long as it lives nothing that it has started can leave it, but what it starts meanwhile
    # has to be looked for again.
    killed: set[int] = set()
    while fresh := set(_descendants(program)) - killed:
        for one in fresh:
            with contextlib.suppress(OSError):
                os.kill(one, signal.SIGKILL)
        killed |= fresh
    with contextlib.suppress(OSError):
        os.killpg(program, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found


if __name__ == "__main__":
    main()
