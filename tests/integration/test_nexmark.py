"""Nexmark's queries answer what DuckDB answers about the same events.

Three of them run with the other tests: a join, sessions, sliding windows, a fold and a lookup. The rest is
left to the soak tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.compute as pc
import pytest
from benchmarks.nexmark import answers, feed, ours
from benchmarks.nexmark.generator import AUCTION, BID, CYCLE, PERSON, Config, block
from benchmarks.nexmark.queries import QUERIES
from pyspark.sql import SparkSession

QUICK: Final = ("q5", "q13")
EVENTS: Final = 20_000
#: Slower than the standard's, so that few events span many windows: 200 seconds around midnight.
CONFIG: Final = Config(rate=100, start_us=Config().start_us + 86_400_000_000 - 100_000_000)
BATCH: Final = 5_000


class Fed(NamedTuple):
    """The same events in both forms, and the table of q13."""

    journal: Path
    files: Path
    side_input: Path


def test_a_slice_of_events_is_the_same_however_it_is_made() -> None:
    assert block(CONFIG, 0, 3_000).slice(1_234, 777).equals(block(CONFIG, 1_234, 777))
    assert not block(CONFIG, 0, CYCLE).equals(block(Config(rate=100, seed=2), 0, CYCLE))


def test_of_50_events_one_is_a_person_three_are_auctions_and_46_bids() -> None:
    kinds = block(CONFIG, 7 * CYCLE, CYCLE).column("kind").to_pylist()
    assert kinds == [PERSON, *[AUCTION] * 3, *[BID] * 46]


def test_half_of_the_bids_go_to_hot_auctions_and_three_quarters_come_from_hot_bidders() -> None:
    bids = pc.drop_null(block(CONFIG, 50_000, 10_000).column("bid"))
    auctions, bidders = bids.field("auction").to_numpy(), bids.field("bidder").to_numpy()
    assert (auctions % 100 == 0).mean() == pytest.approx(1 / 2, abs=0.03)
    assert (bidders % 100 == 1).mean() == pytest.approx(3 / 4, abs=0.03)


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Fed:
    place = tmp_path_factory.mktemp("nexmark")
    return Fed(
        feed.fill_journal(place / "journal", CONFIG, EVENTS),
        feed.write_files(place / "files", CONFIG, EVENTS, BATCH),
        feed.write_side_input(place / "side_input.csv"),
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    "query",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.soak) for name in QUERIES],
)
def test_a_query_answers_what_duckdb_answers(
    spark: SparkSession, fed: Fed, tmp_path: Path, query: str
) -> None:
    ours.run(spark, query, CONFIG, fed.side_input, tmp_path, BATCH, journal=fed.journal)
    expected, wrong = answers.differences(query, fed.files, fed.side_input, tmp_path / "out")
    assert wrong == []
    assert expected > 0
