"""A host of inboxes for tests, in this process or, run as a program that reads orders from stdin, in another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TESTS = str(Path(__file__).parents[1])


class Service:
    """A host of inboxes, whose disk may be slow and whose inboxes small."""

    def __init__(self) -> None:
        self._host: Any = None
        self._undo: list[Any] = []

    def open(
        self,
        data: str,
        *,
        rows: int | None = None,
        slow_s: float = 0.0,
        keys: str | None = None,
        producers: str | None = None,
        network: str | None = None,
        without_ipc: bool = False,
    ) -> str:
        """Open the inboxes of flow "f", and return their address."""
        from millstream.links.host import Listening
        from millstream.links.keys import read_key
        from millstream.links.listener import Security
        from millstream.links.network import ipc_path
        from support.links import hosted

        self._make_small(rows, slow_s)
        security = None if keys is None else Security.read(read_key(keys), str(producers))
        self._host = hosted(Path(data), Listening(network=network, security=security))
        if without_ipc:  # so that a client in another process comes over TCP
            ipc_path(Path(data) / "f", self._host.address.port).unlink()
        return str(self._host.address)

    def _make_small(self, rows: int | None, slow_s: float) -> None:
        from millstream.journal.log import PartitionLog
        from millstream.links import inbox

        capacity, commit = inbox.Capacity, PartitionLog.commit

        def slowly(log: Any, items: Any) -> None:
            time.sleep(slow_s)
            commit(log, items)

        if rows is not None:
            inbox.Capacity = lambda: capacity(rows=rows)  # type: ignore[assignment,misc]
        if slow_s:
            PartitionLog.commit = slowly  # type: ignore[method-assign]
        self._undo = [(inbox, "Capacity", capacity), (PartitionLog, "commit", commit)]

    def statistics(self) -> list[dict[str, Any]]:
        """Return the numbers of the inboxes of f.s."""
        from dataclasses import asdict

        return [asdict(one) for one in self._host.statistics()["s"]]

    def refused_frames(self) -> int:
        return int(self._host._listener.refused_frames)

    def cpu(self) -> list[float]:
        """Return the seconds of CPU and the changes of context that this process has used."""
        import psutil

        own = psutil.Process()
        return [sum(own.cpu_times()[:2]), own.num_ctx_switches().voluntary, own.num_threads(), own.num_fds()]

    def close(self) -> None:
        if self._host is not None:
            self._host.close()
            self._host = None
        for owner, name, value in self._undo:
            setattr(owner, name, value)
        self._undo = []


class Other:
    """The same in a process of its own."""

    def __init__(self, prefix: tuple[str, ...] = ()) -> None:
        environment = {**os.environ, "PYTHONPATH": TESTS}
        self.log = b""
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "support.links_service"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def ask(self, order: str, *args: Any, **named: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([order, args, named]).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or b'["it died"]')
        assert len(answer) == 2, answer[0]
        return answer[1]

    def open(self, data: str, **named: Any) -> str:
        return str(self.ask("open", data, **named))

    def statistics(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("statistics")
        return found

    def refused_frames(self) -> int:
        return int(self.ask("refused_frames"))

    def cpu(self) -> list[float]:
        found: list[float] = self.ask("cpu")
        return found

    def close(self) -> None:
        self.ask("close")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait(20)


def main() -> None:
    service = Service()
    for line in sys.stdin:
        order, args, named = json.loads(line)
        try:
            answer = [None, getattr(service, order)(*args, **named)]
        except Exception as error:
            answer = [repr(error)]
        print(json.dumps(answer), flush=True)
    service.close()


if __name__ == "__main__":
    main()
