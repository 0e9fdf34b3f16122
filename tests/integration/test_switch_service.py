"""A job on a real engine is switched while events come in: every result is there, and once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import millstream as ms
from integration.test_service import Service, same, service, write_files
from unit.docs.blocks import DOCS, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAGE = DOCS / "guide" / "switching.md"
CANARY = DOCS / "guide" / "canary.md"
BEGIN = datetime(2024, 5, 4, 9, tzinfo=UTC)
LIMIT_S = 600


class Feeder:
    """Sends sales until it is told to stop; event time passes some hundred times as fast as the clock's."""

    def __init__(self, address: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed)

    def _feed(self) -> None:
        with ms.connect(self._address, timeout=LIMIT_S) as client:
            while not self._stop.wait(0.1):
                n = len(self.sent)
                rows = [self._row(n + i) for i in range(10)]
                client.send("shop.sales", rows)
                self.sent += rows

    @staticmethod
    def _row(n: int) -> dict[str, Any]:
        # All are above the limits of both versions: which of them counts a sale makes no
        # difference.
        at = BEGIN + timedelta(seconds=6 * n)
        return {"shop": f"shop {n % 3}", "item": str(n), "amount": 20.0 + n % 7, "at": at}

    @contextmanager
    def feeding(self) -> Iterator[Feeder]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def expected(self) -> Counter[tuple[str, str, float]]:
        sums: Counter[tuple[str, str]] = Counter()
        for row in self.sent:
            sums[row["shop"], f"{row['at']:%d %H}"] += row["amount"]
        return Counter((shop, hour, amount) for (shop, hour), amount in sums.items())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in folder.glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]


def status(engine: Service) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{engine.url}/jobs/shop", timeout=240).json()
    return found


def wait_for(true: Callable[[], object]) -> None:
    until = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.3)


def processed(engine: Service, rows: int) -> bool:
    return any(group["rows_in"] >= rows for group in status(engine)["groups"])


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_job_is_switched_under_load_and_every_result_is_there_once(
    tmp_path: Path, killed: bool
) -> None:
    write_files(PAGE, tmp_path)
    shown = next(block for block in blocks(PAGE) if "service" in block.words)
    with service(tmp_path) as engine:
        engine.shell("millstream deploy flow.py")
        feeder = Feeder(engine.inbox)
        with feeder.feeding():
            wait_for(lambda: processed(engine, 200))
            if killed:
                switch_with_a_kill(engine)
            else:
                ((command, text),) = shown.commands
                same(shown, text, engine.shell(command))
            after = len(feeder.sent)
            wait_for(lambda: processed(engine, 200))
        switch = status(engine)["switch"]
        assert (switch["state"], switch["version"], status(engine)["version"]) == ("done", "2", "2")
        cut = datetime.fromisoformat(switch["cut"])
        assert BEGIN < cut < feeder.sent[after - 1]["at"], "both versions have had their part"
        assert engine.shell("millstream drain shop --flush") == "shop has finished\n"
    found = lines(tmp_path / "out/hourly")
    assert Counter(
        (one["shop"], one["window_start"][8:13].replace("T", " "), one["amount"]) for one in found
    ) == (feeder.expected())
    assert Counter(one["item"] for one in lines(tmp_path / "out/archive")) == Counter(
        row["item"] for row in feeder.sent
    )


@pytest.mark.soak
def test_a_job_gives_its_new_version_more_and_more_keys(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    (shown,) = [block for block in blocks(CANARY) if "service" in block.words]
    with service(tmp_path) as engine:
        engine.shell("millstream deploy flow.py")
        feeder = Feeder(engine.inbox)
        with feeder.feeding():
            wait_for(lambda: processed(engine, 200))
            for number, (command, text) in enumerate(shown.commands):
                same(shown, text, engine.shell(command))
                if number == 0:
                    assert "version 1, sharing 2, which has 10% of the keys" in engine.shell(
                        "millstream status shop"
                    )
                    os.kill(status(engine)["pid"], signal.SIGKILL)
                    wait_for(
                        lambda: (
                            status(engine)["restarts"] == 1 and status(engine)["state"] == "running"
                        )
                    )
        assert (status(engine)["switch"]["state"], status(engine)["version"]) == ("done", "2")
        assert engine.shell("millstream drain shop --flush") == "shop has finished\n"
    found = lines(tmp_path / "out/hourly")
    assert Counter(
        (one["shop"], one["window_start"][8:13].replace("T", " "), one["amount"]) for one in found
    ) == (feeder.expected())


def switch_with_a_kill(engine: Service) -> None:
    engine.shell("millstream switch shop flow_2.py --detach")
    wait_for(lambda: status(engine)["switch"]["cut"] is not None)
    os.kill(status(engine)["pid"], signal.SIGKILL)
    wait_for(lambda: status(engine)["restarts"] == 1)
    wait_for(lambda: status(engine)["switch"]["state"] == "done")


@pytest.mark.soak
def test_a_version_in_the_shadow_of_a_job_is_compared_from_the_command_line(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    with service(tmp_path) as engine:
        engine.shell("millstream deploy flow.py")
        feeder = Feeder(engine.inbox)
        with feeder.feeding():
            wait_for(lambda: processed(engine, 200))
            said = engine.shell('millstream switch shop flow_2.py --shadow --for "1 hour" --detach')
            assert said == "version 2 of shop runs in the shadow of version 1\n"
            wait_for(
                lambda: (
                    [one["equal"] > 5 for one in status(engine)["switch"]["shadow"]["outputs"]]
                    == [True]
                )
            )
            said = engine.shell("millstream switch shop --shadow --end")
            assert " results that were compared are the same; version 1 of shop runs on" in said
        ended = status(engine)
        assert (ended["version"], ended["switch"]["state"]) == ("1", "compared")
        assert engine.shell("millstream drain shop --flush") == "shop has finished\n"
    found = lines(tmp_path / "out/hourly")
    assert Counter(
        (one["shop"], one["window_start"][8:13].replace("T", " "), one["amount"]) for one in found
    ) == (feeder.expected())


@pytest.mark.soak
def test_a_switch_of_silent_sources_says_what_it_waits_for_and_ends_when_they_are_quiet(
    tmp_path: Path,
) -> None:
    write_files(PAGE, tmp_path)
    with service(tmp_path) as engine:
        engine.shell("millstream deploy flow.py")
        rows = [Feeder._row(n) for n in range(100)]
        with ms.connect(engine.inbox) as client:
            client.send("shop.sales", rows)
        wait_for(lambda: processed(engine, 100))
        engine.shell("millstream switch shop flow_2.py --detach")
        wait_for(lambda: status(engine)["switch"]["waits"])
        switch = status(engine)["switch"]
        assert switch["phase"] == "overlapping"
        assert switch["waits"].startswith('events of source "sales" from 2024-05-04 ')
        shown = " ".join(engine.shell("millstream status shop").split())
        assert 'waits for events of source "sales"' in shown
        said = engine.shell("millstream switch shop --until-quiet")
        assert said.startswith("shop runs version 2; cut at ")
        late = [{**rows[0], "item": "late"}]
        with ms.connect(engine.inbox) as client:
            client.send("shop.sales", late)
        wait_for(lambda: status(engine)["late"] == 1)
        assert engine.shell("millstream drain shop --flush") == "shop has finished\n"
    found = lines(tmp_path / "out/hourly")
    assert sum(one["amount"] for one in found) == sum(row["amount"] for row in rows)
