"""A host of inboxes for tests, in this process or, run as a program that reads orders from stdin, in another."""

from __future__ import annotations

import json
import os
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
        self._client: Any = None
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
        from millstream.journal.kinds.files.log import PartitionLog
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

    # the other side: a client in that process

    def connect(self, where: str, **named: Any) -> None:
        from millstream.links.client import connect

        self._client = connect(where, **named)

    def send(self, begin: int, end: int) -> int:
        """Send rows, and return how many once they are acknowledged."""
        from support.links import batch

        return int(self._client.send("f.s", batch(begin, end)))

    def send_nowait(self, begin: int, end: int, step: int) -> None:
        from support.links import batch

        for n in range(begin, end, step):
            self._client.send_nowait("f.s", batch(n, n + step))

    def flush(self) -> None:
        self._client.flush()

    def outboxes(self) -> list[dict[str, Any]]:
        """Return the numbers of the client's outboxes."""
        from dataclasses import asdict

        return [asdict(one) for one in self._client.statistics()]

    def disconnect(self) -> None:
        self._client.close()

    # asking

    def statistics(self) -> list[dict[str, Any]]:
        """Return the numbers of the inboxes of f.s."""
        from dataclasses import asdict

        return [asdict(one) for one in self._host.statistics()["s"]]

    def refused_frames(self) -> int:
        return int(self._host._listener.refused_frames)

    def cpu(self) -> list[float]:
        from support.links import cpu

        return cpu()

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
        if self.process.returncode is None:
            self.process.kill()
            self.end()

    def end(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait(120)


def main() -> None:
    service = Service()
    for line in sys.stdin:
        order, args, named = json.loads(line)
        try:
            answer = [None, getattr(service, order)(*args, **named)]
        except Exception as error:
            answer = [f"{error!r} {getattr(error, 'hint', '')}"]
        print(json.dumps(answer), flush=True)
    service.close()


if __name__ == "__main__":
    main()
