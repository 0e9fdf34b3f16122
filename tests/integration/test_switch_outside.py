"""Switches as users do them, with commands, while engines and drivers are killed: the results are those of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pytest

import millstream as ms
from integration.test_service import Service
from millstream.errors import MillstreamError

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(7200)]

#: More of them with `make prove`.
STORMS: Final = int(os.environ.get("PROVE", "1"))
BEGIN: Final = datetime(2024, 5, 4, 9, tzinfo=UTC)
LIMIT_S: Final = 900.0
#: Event time goes so much faster than the clock.
SPEED: Final = 5
SHOPS: Final = 7
WINDOW: Final = timedelta(seconds=10)


# flows


@dataclass(frozen=True, slots=True)
class Edit:
    """What a version is: numbers that change all groups, or only windows, and more columns."""

    everywhere: int = 1
    windows: int = 1
    columns: int = 0
    lateness: str = "5 s"

    def text(self) -> str:
        more = "".join(f", more_{n} string" for n in range(self.columns))
        return FLOW.format(
            ddl=f"shop string, item long, amount long, at timestamp{more}",
            everywhere=self.everywhere,
            windows=self.windows,
            lateness=self.lateness,
        )


FLOW: Final = """
import millstream as ms

flow = ms.Flow("shop", switch_every="10 s")
sales = flow.source(
    "sales", ms.inbox("{ddl}"), time="at", key="shop", lateness="{lateness}", partitions=2, idle="2 s"
)
some = sales.sql("some", "SELECT shop, item, amount, at FROM sales WHERE amount > -{everywhere}")
some.sink("rows", ms.jsonl("out/rows"))

counted = sales.sql("counted", "SELECT shop, amount, at FROM sales WHERE amount > -{windows}")
counted.window("sums", every="10 s", by="shop", n="count(*)", amount="sum(amount)").sink(
    "sums", ms.jsonl("out/sums")
)

def add(total, row):
    total += row["amount"]
    return total, {{"shop": row["shop"], "at": row["at"], "total": total}}

some.fold("added", add, initial=0, output="shop string, at timestamp, total long").sink(
    "totals", ms.jsonl("out/totals")
)
some.distinct("once", by=["shop", "amount"], within="1 d").sink("once", ms.jsonl("out/once"))

left = some.sql("left", "SELECT shop, item, at FROM some WHERE item % 2 = 0")
right = some.sql("right", "SELECT shop, item AS other, at FROM some WHERE item % 3 = 0")
left.join("pairs", right, on="shop", within="3 s", how="full").sink("pairs", ms.jsonl("out/pairs"))
"""


# what comes in


def sale(n: int) -> dict[str, Any]:
    """Return a row; the times of a partition rise but for a second or two."""
    at = BEGIN + timedelta(milliseconds=100 * n - 900 * (n % 3))
    return {"shop": f"shop {n % SHOPS}", "item": n, "amount": 20 + n % 13, "at": at}


class Feeder:
    """Sends sales, under a name and numbers, whoever is killed meanwhile; also after a restart."""

    def __init__(self, where: Callable[[], str]) -> None:
        self.sent = 0
        self._where = where
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)

    def _feed(self) -> None:
        while not self._stop.is_set():
            with suppress(MillstreamError, OSError):
                self._send()
            self._stop.wait(0.2)

    def _send(self) -> None:
        address = self._where()
        with ms.connect(address, sender="feeder", timeout=20) as client:
            while not self._stop.wait(0.2) and self._where() == address:
                numbers = range(self.sent, self.sent + 2 * SPEED)
                client.send("shop.sales", [sale(n) for n in numbers], numbers=numbers)
                self.sent = numbers.stop

    @contextmanager
    def feeding(self) -> Iterator[Feeder]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(60)
            assert not self._thread.is_alive()


# what must come of it


def expected(rows: list[dict[str, Any]]) -> dict[str, Counter[tuple[Any, ...]]]:
    ordered = sorted(rows, key=lambda row: (row["at"], row["item"]))
    totals, seen = Counter[str](), set[tuple[str, int]]()
    sums: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    found: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for row in ordered:
        shop, amount, at = row["shop"], row["amount"], row["at"]
        found["rows"][shop, row["item"]] += 1
        sums[shop, BEGIN + (at - BEGIN) // WINDOW * WINDOW].append(amount)
        totals[shop] += amount
        found["totals"][shop, totals[shop]] += 1
        if (shop, amount) not in seen:
            found["once"][shop, amount] += 1
            seen.add((shop, amount))
    for (shop, at), amounts in sums.items():
        found["sums"][shop, f"{at:%H:%M:%S}", len(amounts), sum(amounts)] += 1
    found["pairs"] = Counter(pairs(ordered))
    return found


def pairs(rows: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    by_shop: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_shop[row["shop"]].append(row)
    for shop, mine in by_shop.items():
        met = set()
        others = [row for row in mine if row["item"] % 3 == 0]
        for left in (row for row in mine if row["item"] % 2 == 0):
            near = [row for row in others if abs(row["at"] - left["at"]) <= timedelta(seconds=3)]
            met |= {row["item"] for row in near}
            yield from ((shop, left["item"], row["item"]) for row in near)
            if not near:
                yield shop, left["item"], None
        yield from ((shop, None, row["item"]) for row in others if row["item"] not in met)


KEYS: Final = {
    "rows": ("shop", "item"),
    "totals": ("shop", "total"),
    "once": ("shop", "amount"),
    "pairs": ("shop", "item", "other"),
}


def published(folder: Path, sink: str) -> Counter[tuple[Any, ...]]:
    lines = [
        json.loads(line)
        for file in (folder / "out" / sink).glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    if sink == "sums":
        return Counter(
            (one["shop"], one["window_start"][11:19], one["n"], one["amount"]) for one in lines
        )
    return Counter(tuple(one.get(name) for name in KEYS[sink]) for one in lines)


# an engine that is killed


@dataclass
class Outside:
    """An engine, its job, and who kills them."""

    folder: Path
    chance: random.Random
    engine: Service = field(init=False)
    edit: Edit = field(default_factory=Edit)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = Service(self.folder)

    def restart(self) -> None:
        """Kill the engine with all that it runs, and start it again."""
        children = psutil.Process(self.engine.process.pid).children(recursive=True)
        self.close()
        psutil.wait_procs(children, timeout=120)
        self.engine = Service(self.folder)

    def close(self) -> None:
        process = self.engine.process
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.engine.url}/jobs/shop", timeout=240).json()
        return found

    def wait(self, true: Callable[[], object]) -> None:
        until = time.monotonic() + LIMIT_S
        while True:
            with suppress(httpx.HTTPError):
                if true():
                    return
            assert time.monotonic() < until, (self.log, self.status())
            time.sleep(0.3)

    def running(self) -> bool:
        return bool(self.status()["state"] == "running" and self.status()["pid"])

    def write(self, edit: Edit) -> str:
        name = f"flow_{len(list(self.folder.glob('flow*.py')))}.py"
        (self.folder / name).write_text(edit.text())
        return name

    # what users do

    def do(self, words: str, edit: Edit | None = None, kill: str = "nobody") -> bool:
        """Switch with a command, kill somebody meanwhile, and return whether it was done."""
        self.wait(self.running)
        self.log.append(f"{words or 'switch'} to {edit}, kills {kill}")
        flow = "" if edit is None else self.write(edit)
        before = self.status()["version"]
        self.engine.shell(f"millstream switch shop {flow} {words} --detach".replace("  ", " "))
        self.kill(kill)
        self.wait(lambda: self.over(words))
        switch = self.status()["switch"]
        done = switch["state"] in ("done", "compared") or switch["phase"] == "sharing"
        self.log.append(f"  {switch['state']}: {switch['why']}; {before} -> {switch['version']}")
        if done and edit is not None and "--shadow" not in words:
            self.edit = edit
        return bool(done)

    def over(self, words: str) -> bool:
        status = self.status()
        switch = status["switch"]
        if "--share" in words and switch["phase"] == "sharing":
            return bool(switch["share"] == switch["wanted"])
        return status["state"] == "running" and switch["state"] not in ("asked", "going on")

    def sharing(self) -> bool:
        return bool(self.status()["switch"]["phase"] == "sharing")

    def kill(self, who: str) -> None:
        name, _, when = who.partition(" ")
        if name == "nobody":
            return
        if when == "after the cut":
            # If it does not come to a cut, there is nothing to kill.
            self.wait(lambda: self.status()["switch"]["cut"] or self.over(""))
        else:
            time.sleep(self.chance.random() * 3)
        if name == "engine":
            self.restart()
            return
        self.wait(self.running)
        before = self.status()
        with suppress(ProcessLookupError):
            os.kill(before["pid"], signal.SIGKILL)
        self.wait(lambda: self.status()["restarts"] > before["restarts"])

    def delete_a_checkpoint(self) -> None:
        """Stop all, remove the checkpoint of a group and what it has published, and go on."""
        self.log.append("the checkpoint of sums is deleted")
        self.wait(self.running)
        self.engine.shell("millstream drain shop")
        (found,) = self.folder.glob(".millstream-engine/**/groups/sums*")
        shutil.rmtree(found)
        shutil.rmtree(self.folder / "out" / "sums")
        self.engine.shell("millstream resume shop")


@contextmanager
def outside(folder: Path, seed: int) -> Iterator[tuple[Outside, Feeder]]:
    world = Outside(folder, random.Random(seed))
    try:
        world.engine.shell(f"millstream deploy {world.write(world.edit)}")
        feeder = Feeder(lambda: world.engine.inbox)
        with feeder.feeding():
            world.wait(lambda: any(one["rows_in"] > 200 for one in world.status()["groups"]))
            yield world, feeder
        world.wait(world.running)
        assert world.engine.shell("millstream drain shop --flush") == "shop has finished\n"
    finally:
        world.close()
    right = expected([sale(n) for n in range(feeder.sent)])
    for sink, results in right.items():
        found = published(folder, sink)
        assert found == results, (sink, found - results, results - found, world.log)


KILLS: Final = (
    "nobody",
    "driver before the cut",
    "driver after the cut",
    "engine before the cut",
    "engine after the cut",
)


#: What a storm does, a kill each at most: few enough that every storm comes to its comparison.
DEEDS: Final = (
    ("switch", "evolve"),
    ("lateness", "shadow"),
    ("share", "switch"),
    ("from", "windows"),
    ("windows", "back"),
)


def storm(world: Outside, kinds: Iterable[str], kills: Iterator[str]) -> None:
    """Do things in an order, each with a kill; one that was aborted by it is done again."""
    for kind in kinds:
        kill, edit = next(kills), world.edit
        changed = {
            "switch": replace(edit, everywhere=edit.everywhere + 1),
            "evolve": replace(edit, columns=edit.columns + 1, everywhere=edit.everywhere + 1),
            "lateness": replace(edit, lateness="8 s" if edit.lateness == "5 s" else "5 s"),
        }.get(kind, replace(edit, windows=edit.windows + 1))
        match kind:
            case "back":
                world.do("--back", None, kill)
            case "share":
                if not world.do("--share 30%", changed, kill):
                    world.do("--share 30%", changed)
                world.do("--share 100%", None, next(kills))
                # Who dies before the cut gives up the larger share, and keeps the one that there is.
                if world.sharing():
                    world.do("--share 100%")
                assert not world.sharing(), world.log
            case "from":
                since = BEGIN + timedelta(seconds=20)
                # All that starts before it must be out.
                world.wait(lambda: published(world.folder, "sums").total() > 4 * SHOPS)
                world.do(f"--from {since:%Y-%m-%dT%H:%M:%S}", changed, kill)
            case "shadow":
                world.do('--shadow --for "15 s"', changed, kill)
            case _:
                if not world.do("", changed, kill):
                    assert world.do("", changed), world.log


@pytest.mark.parametrize("seed", range(STORMS))
@pytest.mark.parametrize("deeds", DEEDS, ids="-".join)
def test_switches_of_every_kind_under_kills_change_no_result(
    tmp_path: Path, deeds: tuple[str, ...], seed: int
) -> None:
    with outside(tmp_path, seed) as (world, _):
        # Each storm begins with another kill, and each seed moves them all on.
        first = DEEDS.index(deeds) + seed + 1
        storm(world, deeds, cycle((*KILLS[first % 5 :], *KILLS[: first % 5])))


def test_a_checkpoint_that_is_deleted_is_made_again_from_the_journal(tmp_path: Path) -> None:
    with outside(tmp_path, 1) as (world, _):
        assert world.do("", replace(world.edit, everywhere=2))
        world.delete_a_checkpoint()
        assert world.do("", replace(world.edit, windows=2), "driver after the cut")
