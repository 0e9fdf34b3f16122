"""The queries in PySpark, as its users write them: Structured Streaming over Parquet files, with the flows' answers.

Spark pushes a filter below a watermark, where the last row, which is of no kind and closes everything, would be
lost: `_kind` has a second condition that is never met and has the time in it, so that Spark cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pandas as pd
from benchmarks.nexmark.generator import DDL, Config
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

LATENESS: Final = "4 seconds"
CENTS: Final = 0.908
#: Queries whose state needs Spark's store on disk.
ON_DISK: Final = ("q4", "q6")
RANKS: Final = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


@dataclass(frozen=True, slots=True)
class Events:
    """What queries read: files of the events, so many to a batch, and the table of q13."""

    spark: SparkSession
    files: str
    files_per_batch: int
    config: Config
    side_input: str

    @property
    def persons(self) -> DataFrame:
        return self._kind(0, "person")

    @property
    def auctions(self) -> DataFrame:
        return self._kind(1, "auction")

    @property
    def bids(self) -> DataFrame:
        return self._kind(2, "bid")

    def _kind(self, number: int, name: str) -> DataFrame:
        reader = self.spark.readStream.schema(DDL)
        rows = reader.option("maxFilesPerTrigger", self.files_per_batch).parquet(self.files)
        timed = rows.withWatermark("date_time", LATENESS)
        return timed.where(f"kind = {number} OR date_time < '1970-01-01'").select(
            f"{name}.*", "date_time"
        )


# One row at a time


def q0(events: Events) -> DataFrame:
    return events.bids.select("auction", "bidder", "price", "date_time", "extra")


def q1(events: Events) -> DataFrame:
    return events.bids.selectExpr(
        "auction", "bidder", f"{CENTS} * price AS price", "date_time", "extra"
    )


def q2(events: Events) -> DataFrame:
    return events.bids.where("auction % 123 = 0").select("auction", "price")


def q10(events: Events) -> DataFrame:
    return events.bids.select(
        *("auction", "bidder", "price", "date_time", "extra"),
        f.date_format("date_time", "yyyy-MM-dd").alias("day"),
        f.date_format("date_time", "HH:mm").alias("minute"),
    )


def q13(events: Events) -> DataFrame:
    table = events.spark.read.schema("key long, value string").csv(events.side_input, header=True)
    bids = events.bids.select("auction", "bidder", "price", "date_time")
    joined = bids.join(f.broadcast(table), bids.auction % 10_000 == table.key)
    return joined.select("auction", "bidder", "price", "date_time", "value")


def q14(events: Events) -> DataFrame:
    hour = f.hour("date_time")
    bids = events.bids.where(f"{CENTS} * price > 1000000 AND {CENTS} * price < 50000000")
    return bids.select(
        *("auction", "bidder", f.expr(f"{CENTS} * price AS price"), "date_time", "extra"),
        f.when(hour.between(8, 18), "dayTime")
        .when((hour <= 6) | (hour >= 20), "nightTime")
        .otherwise("otherTime")
        .alias("bid_time_type"),
        (f.length("extra") - f.length(f.replace("extra", f.lit("c"), f.lit("")))).alias("c_counts"),
    )


def q21(events: Events) -> DataFrame:
    name = f.lower("channel")
    found = f.regexp_extract("url", "(&|^)channel_id=([^&]*)", 2)
    known = f.when(name == "apple", "0").when(name == "google", "1")
    known = known.when(name == "facebook", "2").when(name == "baidu", "3").otherwise(found)
    bids = events.bids.select("auction", "bidder", "price", "channel", known.alias("channel_id"))
    return bids.where("channel_id <> ''")


def q22(events: Events) -> DataFrame:
    folders = [f.split_part("url", f.lit("/"), f.lit(n + 3)).alias(f"dir{n}") for n in (1, 2, 3)]
    return events.bids.select("auction", "bidder", "price", "channel", *folders)


# Windows


def _counts() -> list[Column]:
    ranks = [f.expr(f"count_if({rule})").alias(f"{rank}_bids") for rank, rule in RANKS.items()]
    return [f.count("*").alias("total_bids"), *ranks]


def _different(column: str) -> list[Column]:
    """Return how many different values a column has; Spark has no count(DISTINCT) in a stream."""
    ranks = [
        f.expr(f"size(collect_set({column}) FILTER (WHERE {rule}))").alias(f"{rank}_{column}s")
        for rank, rule in RANKS.items()
    ]
    return [f.size(f.collect_set(column)).alias(f"total_{column}s"), *ranks]


def _day() -> Column:
    return f.window("date_time", "1 day")


def q5(events: Events) -> DataFrame:
    hops = f.window("date_time", "10 seconds", "2 seconds")
    counts = events.bids.groupBy("auction", hops).agg(f.count("*").alias("num"))
    tops = counts.groupBy("window").agg(
        f.max("num").alias("most"), f.collect_list(f.struct("auction", "num")).alias("counted")
    )
    hot = tops.selectExpr("window.end AS window_end", "most", "inline(counted)")
    return hot.where("num = most").drop("most")


def q7(events: Events) -> DataFrame:
    ten = f.window("date_time", "10 seconds")
    highest = events.bids.groupBy(ten).agg(f.max("price").alias("most"))
    # A stream has one time column: `ended` is a microsecond before the window's end.
    highest = highest.select("most", f.window_time("window").alias("ended"))
    bids = events.bids.select("auction", "bidder", "price", "date_time", "extra")
    near = "date_time >= ended - INTERVAL '9.999999' SECOND AND date_time <= ended"
    return bids.join(highest, f.expr(f"price = most AND {near}")).drop("most", "ended")


def q8(events: Events) -> DataFrame:
    ten = f.window("date_time", "10 seconds")
    persons = events.persons.groupBy("id", "name", ten).agg(f.count("*").alias("registered"))
    sellers = events.auctions.groupBy(f.col("seller").alias("id"), ten).agg(
        f.count("*").alias("opened")
    )
    return persons.join(sellers, ["id", "window"]).selectExpr(
        "id", "name", "window.start AS window_start"
    )


def q11(events: Events) -> DataFrame:
    sessions = f.session_window("date_time", "10 seconds")
    counts = events.bids.groupBy("bidder", sessions).agg(f.count("*").alias("bid_count"))
    return counts.selectExpr(
        *("bidder", "bid_count"),
        *("session_window.start AS window_start", "session_window.end AS window_end"),
    )


def q15(events: Events) -> DataFrame:
    found = events.bids.groupBy(_day()).agg(
        *_counts(), *_different("bidder"), *_different("auction")
    )
    return found.select("*", f.col("window.start").alias("window_start")).drop("window")


def q16(events: Events) -> DataFrame:
    minute = f.max(f.date_format("date_time", "HH:mm")).alias("minute")
    found = events.bids.groupBy("channel", _day())
    return found.agg(minute, *_counts(), *_different("bidder"), *_different("auction")).drop(
        "window"
    )


def q17(events: Events) -> DataFrame:
    prices = [
        getattr(f, how)("price").alias(f"{how}_price") for how in ("min", "max", "avg", "sum")
    ]
    return events.bids.groupBy("auction", _day()).agg(*_counts(), *prices).drop("window")


def q18(events: Events) -> DataFrame:
    bid = f.struct("price", "channel", "url", "date_time", "extra")
    last = events.bids.groupBy("bidder", "auction", _day())
    return last.agg(f.max_by(bid, "date_time").alias("bid")).select("auction", "bidder", "bid.*")


def q19(events: Events) -> DataFrame:
    earlier = (-f.unix_micros("date_time")).alias("earlier")
    bid = f.struct("price", earlier, "bidder", "channel", "url", "extra")
    grouped = events.bids.groupBy("auction", _day()).agg(f.collect_list(bid).alias("bids"))
    best = f.slice(f.sort_array("bids", asc=False), 1, 10)
    top = grouped.select("auction", f.posexplode(best).alias("place", "bid"))
    return top.select("auction", "bid.*", (f.col("place") + 1).alias("rank_number"))


# Joins


def _within(time: str, other: str, bound: timedelta) -> str:
    span = f"INTERVAL {round(bound.total_seconds() * 1000)} MILLISECONDS"
    return f"{time} BETWEEN {other} - {span} AND {other} + {span}"


def q3(events: Events) -> DataFrame:
    auctions = events.auctions.where("category = 10").select("id", "seller", "date_time")
    persons = events.persons.where("state IN ('OR', 'ID', 'CA')").selectExpr(
        "id AS person", "name", "city", "state", "date_time AS registered"
    )
    near = _within("date_time", "registered", events.config.people_apart)
    return auctions.join(persons, f.expr(f"seller = person AND {near}")).select(
        "name", "city", "state", "id"
    )


def _opened(events: Events) -> DataFrame:
    return events.auctions.withColumnsRenamed({"date_time": "opened", "extra": "auction_extra"})


def q20(events: Events) -> DataFrame:
    auctions = _opened(events).where("category = 10")
    near = _within("date_time", "opened", events.config.auctions_apart)
    return events.bids.join(auctions, f.expr(f"auction = id AND {near}")).drop("id")


def _winners(events: Events) -> DataFrame:
    """Return the winning bids, with the end of the session of an auction's bids, when all are known."""
    longest = events.config.longest_auction
    bids = events.bids.select(
        "auction", "bidder", "price", f.col("extra").alias("bid_extra"), "date_time"
    )
    near = f"{_within('date_time', 'opened', longest)} AND date_time BETWEEN opened AND expires"
    valid = bids.join(_opened(events), f.expr(f"auction = id AND {near}"))
    won = f.struct(
        *("item_name", "description", "initial_bid", "reserve", "opened", "expires", "seller"),
        *("category", f.col("auction_extra").alias("extra"), "bidder", "price"),
        *(f.col("date_time").alias("bid_at"), "bid_extra"),
    )
    first = f.struct("price", -f.unix_micros("date_time"))
    gap = f"{round(longest.total_seconds() * 1000)} milliseconds"
    sessions = valid.groupBy("id", f.session_window("date_time", gap).alias("bids"))
    closed = sessions.agg(f.max_by(won, first).alias("won"))
    return closed.select("id", "won.*", f.window_time("bids").alias("closed_at"))


def q9(events: Events) -> DataFrame:
    return _winners(events).drop("closed_at")


class LastPrices(StatefulProcessor):
    """Averages the last prices of a key, `most` of them or all, whenever there is another one."""

    most: int | None = None
    columns: tuple[str, str] = ("category", "final")

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("kept", "total long, prices array<long>, count long")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002 - by Spark's name
    ) -> Iterator[pd.DataFrame]:
        total, prices, count = self._kept.get() or (0, [], 0)
        prices, averages = list(prices), []
        for price in pd.concat(rows).sort_values("closed_at")["price"]:
            if self.most is None:
                total, count = total + price, count + 1
                averages.append(total / count)
            else:
                prices = [*prices, int(price)][-self.most :]
                averages.append(sum(prices) / len(prices))
        self._kept.update((int(total), prices, count))
        yield pd.DataFrame({self.columns[0]: key[0], self.columns[1]: averages})

    def close(self) -> None:
        pass


class LastTen(LastPrices):
    most = 10
    columns = ("seller", "avg_price")


def _averages(events: Events, processor: LastPrices) -> DataFrame:
    key, value = processor.columns
    return (
        _winners(events)
        .select(key, "price", "closed_at")
        .groupBy(key)
        .transformWithStateInPandas(
            processor, f"{key} long, {value} double", outputMode="Append", timeMode="None"
        )
    )


def q4(events: Events) -> DataFrame:
    return _averages(events, LastPrices())


def q6(events: Events) -> DataFrame:
    return _averages(events, LastTen())


QUERIES: Final[dict[str, Callable[[Events], DataFrame]]] = {
    one.__name__: one
    for one in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10),
        *(q11, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    )
}
