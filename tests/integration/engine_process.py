"""An engine in a process of its own, for tests that kill it: `python engine_process.py DATA FLOW`.

It deploys the flow if it has no job, says where it listens, and closes when it is told to by
SIGTERM. A line on stdin asks how the job is.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from millstream.engine.engine import Engine
from millstream.engine.jobs.package import pack


def main() -> None:
    data, flow = Path(sys.argv[1]), Path(sys.argv[2])
    engine = Engine(data, master="local[2]")
    signal.signal(signal.SIGTERM, lambda *_: engine.stopped.set())
    engine.start()
    if not engine.jobs():
        engine.deploy(pack(flow), root=str(flow.parent))
    print(engine.address, flush=True)
    threading.Thread(target=listen, args=(engine,), daemon=True).start()
    engine.stopped.wait()
    engine.close(drain_s=240)


def listen(engine: Engine) -> None:
    for _ in sys.stdin:
        status = engine.status("counts")
        print(status.pid or 0, status.restarts, flush=True)


if __name__ == "__main__":
    main()
