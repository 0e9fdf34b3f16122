"""What the status of a job shows of producers with quotas."""

from __future__ import annotations

from millstream.cli.jobs import _producer
from millstream.engine.inboxes.producers import producer_statuses
from millstream.links.metering import ProducerStatistics
from millstream.links.quotas import Quota


def test_a_job_shows_the_producers_that_have_sent_to_it() -> None:
    found = [
        ProducerStatistics(
            "till", Quota(1000, None, 4), 2, 12_000, 77, 9, frozenset({"shop.sales"})
        ),
        ProducerStatistics("other", Quota(5), 0, 1, 1, 0, frozenset({"shops.sales"})),
    ]
    (one,) = producer_statuses(found, "shop")
    assert (one.name, one.rows_per_second, one.most_connections, one.waits) == ("till", 1000, 4, 9)
    assert _producer(one) == (
        "producer till  at most 1,000 rows/s, 4 connections  "
        "12,000 rows, 2 connections, waited 9 times"
    )
