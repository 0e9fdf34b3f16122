"""The events of Nexmark, each made from its number alone, so that any slice can be made by itself.

Of 50 events one is a person who registers, three are auctions that open, 46 are bids. Half of the
bids go to a hot auction, three quarters come from a hot bidder, three quarters of the auctions are
a hot seller's. Ids grow with the events, and refer to people and auctions of late, also to a few
that are yet to come, as the public benchmark has it. Times are in microseconds, so that no two
events have the same one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray

PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE: Final = PERSONS + AUCTIONS + BIDS
PERSON, AUCTION, BID = 0, 1, 2
FIRST_ID: Final = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
#: Every hundredth person or auction may be hot.
HOT_STEP: Final = 100
#: How many ids ahead of the last one may be referred to.
LEAD: Final = 10
CHANNELS: Final = 10_000
HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES: Final = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
LAST_NAMES: Final = (
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
)
#: Average sizes of events, in bytes, that `extra` fills up to.
PERSON_SIZE, AUCTION_SIZE, BID_SIZE = 200, 500, 100
TIME: Final = pa.timestamp("us", "UTC")

PERSON_DDL: Final = "id long, name string, email string, credit_card string, city string, state string, extra string"
AUCTION_DDL: Final = (
    "id long, item_name string, description string, initial_bid long, reserve long, "
    "expires timestamp, seller long, category long, extra string"
)
BID_DDL: Final = "auction long, bidder long, price long, channel string, url string, extra string"
DDL: Final = (
    f"kind int, person struct<{PERSON_DDL}>, auction struct<{AUCTION_DDL}>, "
    f"bid struct<{BID_DDL}>, date_time timestamp"
)


@dataclass(frozen=True, slots=True)
class Config:
    """What the events are like; the defaults are the standard's."""

    #: Events in a second of event time.
    rate: int = 10_000
    seed: int = 1
    start_us: int = 1_700_000_000_000_000 // 86_400_000_000 * 86_400_000_000
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4
    in_flight: int = 100
    active_people: int = 1_000

    def at(self, number: Numbers) -> Numbers:
        """Return the times of events, in microseconds."""
        return self.start_us + number * 1_000_000 // self.rate

    @property
    def horizon_us(self) -> int:
        """How long an auction is open on average: until as many others have opened as are in flight."""
        return self.in_flight * CYCLE // AUCTIONS * 1_000_000 // self.rate

    @property
    def longest_auction(self) -> timedelta:
        """No auction is open for longer."""
        return timedelta(microseconds=2 * self.horizon_us)

    @property
    def auctions_apart(self) -> timedelta:
        """No bid is further from the opening of its auction, before or after it."""
        return self._time_of(max(self.in_flight, HOT_STEP), AUCTIONS)

    @property
    def people_apart(self) -> timedelta:
        """No auction is further from the registration of its seller, before or after it."""
        return self._time_of(max(self.active_people, HOT_STEP), PERSONS)

    def _time_of(self, many: int, proportion: int) -> timedelta:
        events = math.ceil((many + LEAD + 1) / proportion) * CYCLE
        return timedelta(milliseconds=math.ceil(events * 1_000 / self.rate))


def blocks(config: Config, events: int, size: int, *, first: int = 0) -> Iterator[pa.RecordBatch]:
    """Yield the events from number `first` on, in blocks of `size`."""
    for start in range(first, first + events, size):
        yield block(config, start, min(size, first + events - start))


def block(config: Config, first: int, count: int) -> pa.RecordBatch:
    """Return the events with the numbers from `first` on."""
    number = np.arange(first, first + count, dtype=np.int64)
    offset = number % CYCLE
    kind = np.where(offset < PERSONS, PERSON, np.where(offset < PERSONS + AUCTIONS, AUCTION, BID))
    parts = [
        _spread(make(config, number[kind == which]), kind == which)
        for which, make in ((PERSON, _persons), (AUCTION, _auctions), (BID, _bids))
    ]
    columns = [pa.array(kind.astype(np.int32)), *parts, pa.array(config.at(number)).cast(TIME)]
    return pa.RecordBatch.from_arrays(
        columns, names=["kind", "person", "auction", "bid", "date_time"]
    )


def _spread(rows: pa.StructArray, where: Numbers) -> pa.Array:
    """Return the rows at the places that are theirs, and nulls between."""
    place = np.cumsum(where) - 1
    return rows.take(pa.array(place, mask=~where))


# The three kinds of events


def _persons(config: Config, number: Numbers) -> pa.StructArray:
    draw = _Draw(config.seed, number)
    name = pc.binary_join_element_wise(
        draw.word(1, FIRST_NAMES), draw.word(2, LAST_NAMES), pa.scalar(" ")
    )
    mail = pc.binary_join_element_wise(draw.text(3, 3, 7), draw.text(4, 3, 5), pa.scalar("@"))
    card = pc.binary_join_element_wise(*(draw.word(5 + n, _fours()) for n in range(4)), " ")
    return pa.StructArray.from_arrays(
        [
            pa.array(_last_person(number) + FIRST_ID),
            name,
            pc.binary_join_element_wise(mail, pa.scalar("com"), pa.scalar(".")),
            card,
            draw.word(9, CITIES),
            draw.word(10, STATES),
            draw.extra(11, PERSON_SIZE - 70),
        ],
        names=_names(PERSON_DDL),
    )


def _auctions(config: Config, number: Numbers) -> pa.StructArray:
    draw = _Draw(config.seed, number)
    hot = draw.below(1, config.hot_sellers) > 0
    seller = np.where(
        hot, _last_person(number) // HOT_STEP * HOT_STEP, _any_person(config, draw, number)
    )
    initial = draw.price(3)
    # In milliseconds, as the standard's.
    open_us = (1 + draw.below(6, max(2 * config.horizon_us // 1_000 - 1, 1))) * 1_000
    return pa.StructArray.from_arrays(
        [
            pa.array(_last_auction(number) + FIRST_ID),
            draw.text(7, 3, 20),
            draw.text(8, 3, 100),
            pa.array(initial),
            pa.array(initial + draw.price(4)),
            pa.array(config.at(number) + open_us).cast(TIME),
            pa.array(seller + FIRST_ID),
            pa.array(FIRST_CATEGORY + draw.below(5, CATEGORIES)),
            draw.extra(9, AUCTION_SIZE - 110),
        ],
        names=_names(AUCTION_DDL),
    )


def _bids(config: Config, number: Numbers) -> pa.StructArray:
    draw = _Draw(config.seed, number)
    last = _last_auction(number)
    oldest = np.maximum(last - config.in_flight, 0)
    auction = np.where(
        draw.below(1, config.hot_auctions) > 0,
        last // HOT_STEP * HOT_STEP,
        oldest + draw.below(3, last - oldest + 1 + LEAD),
    )
    # The second of a hundred, so that hot bidders are no hot sellers.
    bidder = np.where(
        draw.below(4, config.hot_bidders) > 0,
        _last_person(number) // HOT_STEP * HOT_STEP + 1,
        _any_person(config, draw, number),
    )
    hot = len(HOT_CHANNELS)
    channel = np.where(draw.below(5, 2) > 0, draw.below(6, hot), hot + draw.below(7, CHANNELS))
    names, urls = _channels()
    return pa.StructArray.from_arrays(
        [
            pa.array(auction + FIRST_ID),
            pa.array(bidder + FIRST_ID),
            pa.array(draw.price(8)),
            names.take(pa.array(channel)),
            urls.take(pa.array(channel)),
            draw.extra(9, BID_SIZE - 32),
        ],
        names=_names(BID_DDL),
    )


def _names(ddl: str) -> list[str]:
    return [column.split()[0] for column in ddl.split(", ")]


# Ids, from 0


def _last_person(number: Numbers) -> Numbers:
    """Return the latest person at the time of an event."""
    return number // CYCLE * PERSONS + np.minimum(number % CYCLE, PERSONS - 1)


def _last_auction(number: Numbers) -> Numbers:
    """Return the latest auction at the time of an event; -1 before the first."""
    return number // CYCLE * AUCTIONS + np.clip(number % CYCLE - PERSONS, -1, AUCTIONS - 1)


def _any_person(config: Config, draw: _Draw, number: Numbers) -> Numbers:
    people = _last_person(number) + 1
    active = np.minimum(people, config.active_people)
    return people - active + draw.below(2, active + LEAD)


# Chance


class _Draw:
    """Numbers that look random, and are the same for the same seed, event and salt."""

    def __init__(self, seed: int, number: Numbers) -> None:
        with np.errstate(over="ignore"):
            self._base = _mixed(number.astype(np.uint64) + np.uint64(seed) * np.uint64(2**40))

    def bits(self, salt: int) -> Numbers:
        return _mixed(self._base + np.uint64(salt * 0x632BE59BD9B4E019 % 2**64))

    def below(self, salt: int, limit: int | Numbers) -> Numbers:
        """Return whole numbers from 0 up to a limit."""
        return ((self.bits(salt) >> np.uint64(11)) % np.asarray(limit, np.uint64)).astype(np.int64)

    def price(self, salt: int) -> Numbers:
        """Return prices in cents: each power of ten from 1 to a million dollars is as likely."""
        part = (self.bits(salt) >> np.uint64(11)) / 2**53
        return np.rint(10 ** (part * 6) * 100).astype(np.int64)

    def word(self, salt: int, words: tuple[str, ...]) -> pa.Array:
        return pa.array(words).take(pa.array(self.below(salt, len(words))))

    def text(self, salt: int, shortest: int, longest: int) -> pa.Array:
        """Return texts of letters, of at least and of less than these lengths."""
        length = shortest + self.below(salt, longest - shortest)
        return _cut(self.bits(salt) % np.uint64(_POOL - longest), length)

    def extra(self, salt: int, average: int) -> pa.Array:
        """Return texts that are a fifth longer or shorter than their average at most."""
        fifth = round(average / 5)
        return self.text(salt, average - fifth, average + fifth)


_POOL: Final = 2**20


@cache
def _pool() -> Numbers:
    """Return letters for texts to be cut from."""
    letters = _mixed(np.arange(_POOL, dtype=np.uint64)) % np.uint64(26)
    return (letters + np.uint64(ord("a"))).astype(np.uint8)


def _cut(start: Numbers, length: Numbers) -> pa.Array:
    """Return the pieces of the pool that start at places and have lengths."""
    ends = np.cumsum(length)
    total = int(ends[-1]) if len(ends) else 0
    place = np.arange(total) + np.repeat(start.astype(np.int64) - (ends - length), length)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(
        len(length), pa.py_buffer(offsets), pa.py_buffer(_pool()[place])
    )


@cache
def _fours() -> tuple[str, ...]:
    return tuple(f"{number:04}" for number in range(10_000))


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names and addresses of channels, hot ones first; one in ten lacks its id."""
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    draw = _Draw(0, np.arange(len(names), dtype=np.int64))
    folders = zip(*(draw.text(salt, 3, 5).to_pylist() for salt in (1, 2, 3)), strict=True)
    ids = draw.below(4, 2**31).tolist()
    marked = draw.below(5, 10) > 0
    marked[: len(HOT_CHANNELS)] = False
    urls = [
        f"https://www.nexmark.com/{'/'.join(path)}/item.htm?query=1"
        + (f"&channel_id={ids[place]}" if marked[place] else "")
        for place, path in enumerate(folders)
    ]
    return pa.array(names), pa.array(urls)


def _mixed(number: Numbers) -> Numbers:
    """Return numbers that look random (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = number * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
