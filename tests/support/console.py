"""A real engine with a job that runs on Spark, for the console to show: in tests and in pictures."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from millstream.engine.jobs.package import pack

FLOW = """
import millstream as ms

flow = ms.Flow("shop")
orders = flow.source(
    "orders", ms.inbox("shop string, amount double, at timestamp"), time="at", key="shop", lateness="10 s"
)
paid = orders.sql("paid", "SELECT * FROM orders WHERE amount > 0")
paid.journal("payments")
minutes = flow.stream("payments").window("minutes", by="shop", every="1 min", total="sum(amount)", orders="count(*)")
minutes.sink("takings", ms.jsonl("takings"))
large = flow.stream("payments").sql("large", "SELECT shop, amount, at FROM payments WHERE amount > 90")
large.sink("alerts", ms.jsonl("alerts"))
"""


class EngineProcess:
    """`millstream engine`, which is killed and started again at the same place."""

    def __init__(self, folder: Path, command: Sequence[str] = ("-m", "millstream")) -> None:
        self._folder, self._command = folder, command
        self._port = "0"
        self.start()

    def start(self) -> None:
        how = ("engine", "--port", self._port, "--master", "local[2]")
        with (self._folder / "stderr").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, *self._command, *how],
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[1]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._ended()

    def _ended(self) -> None:
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def token(self) -> str:
        return (self._folder / ".millstream-engine" / "token").read_text().strip()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def deploy(self, text: str = FLOW, **more: Any) -> None:
        file = self._folder / "flow.py"
        file.write_text(text)
        package = base64.b64encode(pack(file)).decode()
        body = {"package": package, "root": str(self._folder), **more}
        answer = httpx.post(f"{self.url}/jobs", json=body, headers=self.headers, timeout=240)
        assert answer.status_code == 201, answer.text

    def job(self, name: str = "shop") -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.url}/jobs/{name}").json()
        return found

    def send(
        self, lines: str, sender: str = "till", first: int = 0, source: str = "orders"
    ) -> None:
        headers = {
            **self.headers,
            "Content-Type": "application/x-ndjson",
            "Millstream-Sender": sender,
            "Millstream-First-Number": str(first),
        }
        url = f"{self.url}/jobs/shop/sources/{source}/events"
        answer = httpx.post(url, content=lines, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text


def orders(count: int, first: int = 0, seconds: float = 60) -> str:
    """Return orders of the last seconds, as JSON lines."""
    begin, step = time.time() - seconds, seconds / count
    return "".join(
        f'{{"shop": "shop-{n % 7}", "amount": {n % 100}, "at": "{_iso(begin + (n - first) * step)}"}}\n'
        for n in range(first, first + count)
    )


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


@contextmanager
def engine_process(
    folder: Path, command: Sequence[str] = ("-m", "millstream")
) -> Iterator[EngineProcess]:
    folder.mkdir(parents=True, exist_ok=True)
    engine = EngineProcess(folder, command)
    try:
        yield engine
    finally:
        engine.stop()
