"""The inboxes of an engine in a process of their own, for tests that kill it: `python landing_host.py FOLDER`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from millstream.clock import SystemClock
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.links.host import Listening


def main() -> None:
    folder = Path(sys.argv[1])
    inboxes = Inboxes(folder, Listening(), node=0, of=1, clock=SystemClock())
    inboxes.open("counts", folder / "job", {})
    inboxes.start()
    while inboxes.job("counts").status()[0].runtimes is None:
        threading.Event().wait(0.05)
        inboxes.tick()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
