"""The queries of Nexmark as flows: each takes the events, and returns the stream that answers.

Every result is final, so where the standard lets a row change as events come, the answer is the last one
of a window: of a day where it has none (`DAY`). Its joins without a bound in time have one here that the
generator keeps, so that the pairs are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.nexmark.generator import Config

import millstream as ms

LATENESS: Final = "4 seconds"
DAY: Final = "1 day"
CENTS: Final = 0.908


@dataclass(frozen=True, slots=True)
class Events:
    """What queries read: the source, the streams of each kind, and where the table of q13 is."""

    flow: ms.Flow
    all: ms.Stream
    config: Config
    side_input: str

    @property
    def persons(self) -> ms.Stream:
        return self.all.sql("persons", "SELECT person.*, date_time FROM events WHERE kind = 0")

    @property
    def auctions(self) -> ms.Stream:
        return self.all.sql("auctions", "SELECT auction.*, date_time FROM events WHERE kind = 1")

    @property
    def bids(self) -> ms.Stream:
        return self.all.sql("bids", "SELECT bid.*, date_time FROM events WHERE kind = 2")


Query = Callable[[Events], ms.Stream]


def flow_of(query: str, config: Config, source: Any, side_input: str, sink: Any) -> ms.Flow:
    """Return the flow of a query, from a source into a sink."""
    flow = ms.Flow("nexmark")
    events = flow.source("events", source, time="date_time", lateness=LATENESS)
    QUERIES[query](Events(flow, events, config, side_input)).sink("out", sink)
    return flow


# One row at a time


def q0(events: Events) -> ms.Stream:
    """Pass bids through: what a system costs that does nothing."""
    return events.bids.sql("same", "SELECT auction, bidder, price, date_time, extra FROM bids")


def q1(events: Events) -> ms.Stream:
    """Convert prices from dollars to euros."""
    return events.bids.sql(
        "euros", f"SELECT auction, bidder, {CENTS} * price AS price, date_time, extra FROM bids"
    )


def q2(events: Events) -> ms.Stream:
    """Select the bids of some auctions."""
    return events.bids.sql(
        "some", "SELECT auction, price, date_time FROM bids WHERE auction % 123 = 0"
    )


def q10(events: Events) -> ms.Stream:
    """Log bids into files, with the day and the minute that folders would be named after."""
    return events.bids.sql(
        "logged",
        "SELECT auction, bidder, price, date_time, extra, date_format(date_time, 'yyyy-MM-dd') AS day, "
        "date_format(date_time, 'HH:mm') AS minute FROM bids",
    )


def q13(events: Events) -> ms.Stream:
    """Look each bid's auction up in a table."""
    bids = events.bids.sql("bid", "SELECT auction, bidder, price, date_time FROM bids")
    table = ms.table(events.side_input, schema="key long, value string")
    return bids.join("named", table, on="auction % 10000 as key")


def q14(events: Events) -> ms.Stream:
    """Filter and compute: the time of the day, and how often a letter occurs."""
    return events.bids.sql(
        "computed",
        f"""
        SELECT auction, bidder, {CENTS} * price AS price,
               CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                    WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
                    ELSE 'otherTime' END AS bid_time_type,
               date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
        FROM bids WHERE {CENTS} * price > 1000000 AND {CENTS} * price < 50000000
        """,
    )


def q21(events: Events) -> ms.Stream:
    """Find the id of each bid's channel: by its name, or in its address."""
    found = events.bids.sql(
        "found",
        """
        SELECT auction, bidder, price, channel, date_time,
               CASE lower(channel)
                    WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                    WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                    ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bids
        """,
    )
    return found.sql("channels", "SELECT * FROM found WHERE channel_id <> ''")


def q22(events: Events) -> ms.Stream:
    """Take the folders out of each bid's address."""
    return events.bids.sql(
        "folders",
        "SELECT auction, bidder, price, channel, date_time, split_part(url, '/', 4) AS dir1, "
        "split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3 FROM bids",
    )


# Windows

RANKS: Final = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
COUNTS: Final = {
    "total_bids": "count(*)",
    **{f"{rank}_bids": f"count_if({condition})" for rank, condition in RANKS.items()},
}


def _different(column: str) -> dict[str, str]:
    """Return how many different values a column has, in all and by rank."""
    return {
        f"total_{column}s": f"size(collect_set({column}))",
        **{
            f"{rank}_{column}s": f"size(collect_set({column}) FILTER (WHERE {condition}))"
            for rank, condition in RANKS.items()
        },
    }


def q5(events: Events) -> ms.Stream:
    """Find the auctions with the most bids of the last 10 seconds, every 2 seconds."""
    counts = events.bids.window(
        "counts", size="10 seconds", every="2 seconds", by="auction", num="count(*)"
    )
    # Windows that end at the same moment fall into the same 2 seconds.
    tops = counts.window(
        "tops",
        every="2 seconds",
        by=[],
        most="max(num)",
        counted="collect_list(struct(auction, num))",
    )
    return tops.sql(
        "hot",
        "SELECT window_end, window_time, inline(filter(counted, one -> one.num = most)) FROM tops",
    )


def q7(events: Events) -> ms.Stream:
    """Find the highest bids of every 10 seconds."""
    bids = events.bids
    highest = bids.window("highest", every="10 seconds", by=[], price="max(price)")
    pairs = bids.join("pairs", highest, on="price", within="10 seconds")
    return pairs.sql(
        "best",
        "SELECT auction, bidder, price, date_time, extra FROM pairs "
        "WHERE date_time >= window_start AND date_time < window_end",
    )


def q8(events: Events) -> ms.Stream:
    """Find people who open an auction in the same 10 seconds in which they register."""
    persons = events.persons.window(
        "new", every="10 seconds", by=["id", "name"], registered="count(*)"
    )
    sellers = events.auctions.window(
        "sellers", every="10 seconds", by="seller as id", opened="count(*)"
    )
    both = persons.join(
        "both", sellers, on=["id", "window_start", "window_end"], within="0 seconds"
    )
    return both.sql("monitored", "SELECT id, name, window_start, window_time FROM both")


def q11(events: Events) -> ms.Stream:
    """Count the bids of each bidder's sessions."""
    return events.bids.window("sessions", gap="10 seconds", by="bidder", bid_count="count(*)")


def q15(events: Events) -> ms.Stream:
    """Count each day's bids, bidders and auctions, by how high bids are."""
    return events.bids.window(
        "days", every=DAY, by=[], **COUNTS, **_different("bidder"), **_different("auction")
    )


def q16(events: Events) -> ms.Stream:
    """Count each channel's bids, bidders and auctions of a day."""
    return events.bids.window(
        "channels",
        every=DAY,
        by="channel",
        minute="max(date_format(date_time, 'HH:mm'))",
        **COUNTS,
        **_different("bidder"),
        **_different("auction"),
    )


def q17(events: Events) -> ms.Stream:
    """Describe the prices of each auction's bids of a day."""
    return events.bids.window(
        "prices",
        every=DAY,
        by="auction",
        **COUNTS,
        min_price="min(price)",
        max_price="max(price)",
        avg_price="avg(price)",
        sum_price="sum(price)",
    )


def q18(events: Events) -> ms.Stream:
    """Find the last bid of each bidder in each auction."""
    last = events.bids.window(
        "last",
        every=DAY,
        by=["bidder", "auction"],
        bid="max_by(struct(price, channel, url, date_time, extra), date_time)",
    )
    return last.sql("bid", "SELECT auction, bidder, bid.*, window_time FROM last")


def q19(events: Events) -> ms.Stream:
    """Find the ten highest bids of each auction; of two equal ones the earlier."""
    highest = events.bids.window(
        "highest",
        every=DAY,
        by="auction",
        bids="collect_list(struct(price, -unix_micros(date_time) AS earlier, bidder, channel, url, extra))",
    )
    return highest.sql(
        "top",
        "SELECT auction, window_time, posexplode(slice(sort_array(bids, false), 1, 10)) "
        "AS (place, bid) FROM highest",
    ).sql("ranked", "SELECT auction, bid.*, place + 1 AS rank_number, window_time FROM top")


# Joins


def q3(events: Events) -> ms.Stream:
    """Find who sells in a category and comes from certain states."""
    auctions = events.auctions.sql(
        "offers", "SELECT id AS auction, seller, date_time FROM auctions WHERE category = 10"
    )
    persons = events.persons.sql(
        "locals",
        "SELECT id AS seller, name, city, state, date_time FROM persons WHERE state IN ('OR', 'ID', 'CA')",
    )
    apart = events.config.people_apart
    pairs = auctions.join("pairs", persons, on="seller", within=apart)
    return pairs.sql("sold", "SELECT name, city, state, auction AS id, date_time FROM pairs")


def q20(events: Events) -> ms.Stream:
    """Add its auction to each bid in a category."""
    auctions = events.auctions.sql(
        "offers",
        "SELECT id AS auction, item_name, description, initial_bid, reserve, date_time AS opened, expires, "
        "seller, category, extra AS auction_extra, date_time FROM auctions WHERE category = 10",
    )
    return events.bids.join("pairs", auctions, on="auction", within=events.config.auctions_apart)


AUCTION_COLUMNS: Final = (
    "item_name, description, initial_bid, reserve, opened, expires, seller, category, extra"
)


def _winners(events: Events) -> ms.Stream:
    """Return the winning bid of each auction that had one: the highest, and the first of those.

    All bids of an auction are in one session: its gap is as long as the longest auction.
    """
    bids = events.bids.sql(
        "offers", "SELECT auction, bidder, price, extra AS bid_extra, date_time FROM bids"
    )
    auctions = events.auctions.sql(
        "opened", "SELECT id AS auction, *, date_time AS opened FROM auctions"
    )
    longest = events.config.longest_auction
    pairs = bids.join("pairs", auctions, on="auction", within=longest)
    valid = pairs.sql("valid", "SELECT * FROM pairs WHERE date_time BETWEEN opened AND expires")
    best = f"struct({AUCTION_COLUMNS}, bidder, price, date_time AS bid_at, bid_extra)"
    closed = valid.window(
        "closed",
        gap=longest,
        longest=2 * longest,
        by="auction",
        won=f"max_by({best}, struct(price, -unix_micros(date_time)))",
    )
    return closed.sql("winners", "SELECT auction AS id, won.*, window_time FROM closed")


def q9(events: Events) -> ms.Stream:
    """Find the winning bid of each auction."""
    return _winners(events)


def average(state: dict[str, int], row: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Add a price to the average of its category."""
    state = {"total": state["total"] + row["price"], "auctions": state["auctions"] + 1}
    return state, {
        "category": row["category"],
        "final": state["total"] / state["auctions"],
        "auctions": state["auctions"],
        "window_time": row["window_time"],
    }


def q4(events: Events) -> ms.Stream:
    """Average the winning bids of each category, again whenever an auction has closed.

    The journal makes the fold a group of its own, so that the join's state can stay in memory.
    """
    return (
        _winners(events)
        .journal("won")
        .fold(
            "averages",
            average,
            by="category",
            initial={"total": 0, "auctions": 0},
            output="category long, final double, auctions long, window_time timestamp",
        )
    )


def last_ten(prices: list[int], row: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """Average the last ten prices of a seller."""
    prices = [*prices, row["price"]][-10:]
    return prices, {
        "seller": row["seller"],
        "avg_price": sum(prices) / len(prices),
        "window_time": row["window_time"],
    }


def q6(events: Events) -> ms.Stream:
    """Average the winning bids of each seller's last ten auctions, in the order of their last bids.

    The journal is there as in q4.
    """
    return (
        _winners(events)
        .journal("won")
        .fold(
            "averages",
            last_ten,
            by="seller",
            initial=list,
            output="seller long, avg_price double, window_time timestamp",
        )
    )


QUERIES: Final[dict[str, Query]] = {
    one.__name__: one
    for one in (
        *(q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10),
        *(q11, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22),
    )
}
