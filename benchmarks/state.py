"""State per key: what an event costs as keys grow from 10 thousand to 10 million.

    python -m benchmarks.state
    python -m benchmarks.state --keys 10000,1000000,10000000 --variants state,before
    python -m benchmarks.state --keys 10000,1000000 --variants MapState

A fold that keeps a total per key. The state of all keys is made first; then batches of the same
number of events touch one key in a hundred, and then all. Three ways, each over the same events in
one session: the room `millstream.state`; the way before it, one value per shard that is read and
written as a whole; and Spark's own MapState in Python, with few events, since it takes so long (of 10
million keys, hours: see `--mapped`). "Flat" is how much more an event costs with the most expensive
number of keys than with the cheapest, if one key in a hundred is touched.

Seconds are those of Spark's micro-batches. CPU seconds are those of Spark and its Python workers:
they say more on a machine that others use too.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.common import folder, save, show
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everybody writes it)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import StructType

from millstream.spark.io.packed import PIECE, SHARD, from_bytes, packing
from millstream.spark.session.session import end_session, session
from millstream.spark.stages.coding import decode, encode
from millstream.spark.stages.fold import Folding
from millstream.spark.stages.ordered import dictionaries, ordered
from millstream.spark.stages.row_keys import RowKeys
from millstream.state import StateFiles
from millstream.storage import Folder

OUTPUT = "key string, total double"
SHARDS = 64
SCHEMA = pa.schema([("key", pa.string()), ("v", pa.float64())])
#: So many rows of the state that is made first come in one batch.
FILLED = 2_500_000


def step(state: dict[str, Any], row: dict[str, Any]) -> tuple[dict[str, Any], None]:
    state["total"] += row["v"]
    state["events"] += 1
    return state, None


INITIAL = {"total": 0.0, "events": 0}


# the ways


RULE = Folding("totals", ("key",), step, INITIAL, frozenset({"key", "total"}), None)


def with_room(frame: DataFrame, checkpoint: Path) -> DataFrame:
    files = StateFiles(Folder(checkpoint), "totals", 28)
    output = StructType.fromDDL(OUTPUT)
    stage: Any = SimpleNamespace(input="events", shards=SHARDS)
    parts = {"frame": lambda _: frame, "state_files": lambda _: files, "prompt": lambda _: False}
    builder: Any = SimpleNamespace(**parts, worked=None)
    return ordered(stage, builder, RULE, time=None, output=output, wait=False)


def by_shard(frame: DataFrame, processor: StatefulProcessor) -> DataFrame:
    hashed = F.expr(f"cast(pmod(xxhash64(cast(key as string)), {SHARDS}) as int)")
    packed = frame.withColumn(SHARD, hashed).mapInArrow(packing(None), f"{SHARD} int, rows binary")
    return packed.groupBy(SHARD).transformWithStateInPandas(
        processor, OUTPUT, outputMode="append", timeMode="none"
    )


class Whole(StatefulProcessor):
    """One value per shard, as it was before: decoded and encoded as a whole."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._keys = handle.getListState("keys", "data binary")

    def handleInputRows(
        self, _key: Any, rows: Iterator[Any], _timers: Any
    ) -> Iterator[pd.DataFrame]:
        fresh = pa.concat_tables([from_bytes(data) for frame in rows for data in frame["rows"]])
        data = b"".join(bytes(piece) for (piece,) in self._keys.get())
        state = dict(decode(data)) if data else {}
        for one, row in zip(RowKeys.of(fresh, ("key",)), dictionaries(fresh), strict=True):
            before = state[one] if one in state else dict(INITIAL)
            state[one], _ = step(before, row)
        data = encode(list(state.items()))
        self._keys.put([(data[at : at + PIECE],) for at in range(0, len(data), PIECE)])
        yield from ()

    def close(self) -> None:
        """Nothing to give back."""


class Mapped(StatefulProcessor):
    """Spark's own state per key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._map = handle.getMapState("totals", "key binary", "data binary")

    def handleInputRows(
        self, _key: Any, rows: Iterator[Any], _timers: Any
    ) -> Iterator[pd.DataFrame]:
        fresh = pa.concat_tables([from_bytes(data) for frame in rows for data in frame["rows"]])
        touched: dict[bytes, dict[str, Any]] = {}
        for one, row in zip(RowKeys.of(fresh, ("key",)), dictionaries(fresh), strict=True):
            if one not in touched:
                found = self._map.getValue((one,))
                touched[one] = dict(INITIAL) if found is None else decode(bytes(found[0]))
            touched[one], _ = step(touched[one], row)
        for one, value in touched.items():
            self._map.updateValue((one,), (encode(value),))
        yield from ()

    def close(self) -> None:
        """Nothing to give back."""


VARIANTS = {
    "state": with_room,
    "before": lambda frame, _: by_shard(frame, Whole()),
    "MapState": lambda frame, _: by_shard(frame, Mapped()),
}


# the events


def write_events(place: Path, count: int, events: int, batches: int, whole: int) -> list[str]:
    """Write a file for each batch, and return what each is: "fill", "few" or "all"."""
    chance = np.random.default_rng(count)
    place.mkdir()
    kinds: list[str] = []

    def write(kind: str, numbers: Any) -> None:
        names = pa.array(np.char.add("key-", np.char.zfill(numbers.astype(str), 9)))
        table = pa.table([names, pa.array(np.ones(len(numbers)))], schema=SCHEMA)
        path = place / f"{len(kinds):05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (len(kinds), len(kinds)))  # Spark reads the oldest first
        kinds.append(kind)

    for begin in range(0, count, FILLED):
        write("fill", np.arange(begin, min(begin + FILLED, count)))
    few = max(1, count // 100)
    for _ in range(batches):
        write("few", chance.choice(chance.choice(count, few, replace=False), events))
    for _ in range(whole):
        write("all", chance.permutation(count))
    return kinds


@dataclass(frozen=True, slots=True)
class Cost:
    """What a batch took."""

    rows: int
    seconds: float
    cpu: float


def run(spark: SparkSession, variant: str, events: Path, place: Path) -> list[Cost]:
    """Run a way over the events, a batch per file, and return what each took."""
    checkpoint = place / "checkpoint"
    frame = spark.readStream.schema("key string, v double").option("maxFilesPerTrigger", 1)
    found = VARIANTS[variant](frame.parquet(str(events)), checkpoint)
    ends: list[float] = [cpu_seconds()]

    def sink(batch: DataFrame, _number: int) -> None:
        batch.write.format("noop").mode("append").save()
        ends.append(cpu_seconds())

    query = (
        found.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = [one for one in query.recentProgress if one["numInputRows"]]
    cpus = np.diff(ends).tolist()
    shutil.rmtree(place)
    return [
        Cost(one["numInputRows"], one["durationMs"]["triggerExecution"] / 1000, cpu)
        for one, cpu in zip(took, cpus, strict=True)
    ]


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has started."""
    total = 0.0
    mine = psutil.Process()
    for process in (mine, *mine.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(spark: SparkSession, place: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for variant in args.variants:
        # Java compiles what runs often.
        write_events(place / "events", 1_000, 1_000, args.batches, 0)
        run(spark, variant, place / "events", place / "run")
        shutil.rmtree(place / "events")
    for count in args.keys:
        for variant in args.variants:
            slow = variant == "MapState"
            if slow and count > args.mapped:
                continue
            events = args.events // 10 if slow else args.events
            kinds = write_events(place / "events", count, events, args.batches, args.whole)
            costs = run(spark, variant, place / "events", place / "run")
            shutil.rmtree(place / "events")
            for kind, touched in (("few", "1 %"), ("all", "all")):
                chosen = [cost for cost, one in zip(costs, kinds, strict=True) if one == kind]
                if chosen:
                    results.append(figures(variant, count, touched, chosen))
                    print(results[-1], flush=True)  # it takes long
    return results


def figures(variant: str, count: int, touched: str, costs: list[Cost]) -> dict[str, Any]:
    # The first ones still load classes and fill the page cache.
    costs = costs[1:] or costs
    rows = sum(cost.rows for cost in costs)
    return {
        "variant": variant,
        "keys": count,
        "touched": touched,
        "batches": len(costs),
        "events": rows,
        "us_per_event": round(sum(cost.seconds for cost in costs) / rows * 1e6, 2),
        "cpu_us_per_event": round(sum(cost.cpu for cost in costs) / rows * 1e6, 2),
        "median_batch_s": round(float(np.median([cost.seconds for cost in costs])), 3),
        "longest_batch_s": round(max(cost.seconds for cost in costs), 3),
    }


def flat(results: list[dict[str, Any]]) -> dict[str, float]:
    """Return for each way how much the cost of an event grows with the number of keys."""
    costs: dict[str, list[float]] = {}
    for one in results:
        if one["touched"] == "1 %":
            costs.setdefault(one["variant"], []).append(one["cpu_us_per_event"])
    return {way: round(max(found) / min(found), 2) for way, found in costs.items()}


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=numbers, default=[10_000, 100_000])
    parser.add_argument("--variants", type=lambda text: text.split(","), default=list(VARIANTS))
    parser.add_argument("--events", type=int, default=100_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--whole", type=int, default=1, help="how often all keys are touched")
    parser.add_argument("--mapped", type=int, default=1_000_000, help="most keys with a MapState")
    args = parser.parse_args()
    with folder("state") as place:
        conf = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        conf["spark.sql.streaming.stateStore.providerClass"] = rocks
        spark = session("benchmark", log=place / "spark.log", conf=conf)
        found = measure(spark, place, args)
        end_session(spark)
    names = ("variant", "keys", "touched", "us_per_event", "cpu_us_per_event", "longest_batch_s")
    show("State per key", names, [tuple(f"{one[name]}" for name in names) for one in found])
    print("flat:", ", ".join(f"{way} {times}" for way, times in flat(found).items()))
    save("state", vars(args), {"ways": found, "flat": flat(found)})


if __name__ == "__main__":
    main()
