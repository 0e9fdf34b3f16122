"""A script beside each process that has programs: ends them when that process is gone.

It reads from standard input which process groups there are, `+123` and `-123`. The end of that
input is the end of the process that held it. It imports nothing of ours.
"""

import os
import signal
import sys


def main() -> None:
    """Wait for the end, then kill the groups that are left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = set()
    for line in sys.stdin.buffer:
        group = int(line[1:])
        if line[:1] == b"+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    main()
