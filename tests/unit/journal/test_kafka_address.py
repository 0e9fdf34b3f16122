"""A file in a journal's folder says whether the journal is in Kafka. No broker is asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millstream.errors import InvalidOption, SchemaConflict
from millstream.journal import journal_at, journal_kept, journals_in, keep_journals
from millstream.journal.kinds.files import FilesJournal
from millstream.journal.kinds.kafka import KafkaJournal, marker

SCHEMA = pa.schema([("v", pa.int64())])


def topic(journal: object) -> str:
    assert isinstance(journal, KafkaJournal)
    return journal.topic


def test_a_url_is_a_journal_with_a_copy_of_its_own() -> None:
    journal = journal_at("kafka://b:9092/orders")
    assert isinstance(journal, KafkaJournal)
    assert (journal.topic, journal.connection.servers) == ("orders", "b:9092")
    assert journal == journal_at(journal.address)
    assert journal.path != KafkaJournal.at("kafka://b:9092/other").path


def test_a_folder_is_of_the_journal_that_its_marker_names(tmp_path: Path) -> None:
    kept = journal_kept(tmp_path / "orders", "kafka://b:9092/shop")
    assert topic(kept) == "shop"
    assert isinstance(kept, KafkaJournal)
    marker.mark(kept._topics)
    assert journal_at(tmp_path / "orders") == kept
    assert journal_kept(tmp_path / "orders", None) == kept
    assert topic(journal_kept(tmp_path / "orders@2", "kafka://b:9092/shop")) == "shop.2"


def test_new_journals_of_a_folder_are_where_it_says_and_old_ones_stay(tmp_path: Path) -> None:
    old = journal_at(tmp_path / "old")
    old.create(SCHEMA)
    keep_journals(tmp_path, "kafka://b:9092/site", "shop")
    assert journal_at(tmp_path / "old") == old
    assert topic(journal_at(tmp_path / "orders")) == "site.shop.orders"
    assert topic(journal_at(tmp_path / "orders@2")) == "site.shop.orders.2"
    assert topic(journal_kept(tmp_path / "other", "kafka://c:9092/mine")) == "mine"
    assert list(journals_in(tmp_path)) == ["old"]
    assert isinstance(journal_at(tmp_path / "old" / "dead"), FilesJournal)


def test_an_address_without_a_beginning_gives_topics_of_the_flow(tmp_path: Path) -> None:
    keep_journals(tmp_path, "kafka://b:9092", "shop")
    assert topic(journal_at(tmp_path / "orders")) == "shop.orders"


def test_a_wrong_address_is_refused_before_anything_is_kept_there(tmp_path: Path) -> None:
    for address in ("b:9092", "s3://bucket", "kafka://b"):
        with pytest.raises(InvalidOption):
            keep_journals(tmp_path, address, "shop")
    assert list(tmp_path.iterdir()) == []


def test_a_journal_in_files_does_not_move_to_kafka(tmp_path: Path) -> None:
    journal_at(tmp_path / "orders").create(SCHEMA)
    kept = journal_kept(tmp_path / "orders", "kafka://b:9092/shop")
    with pytest.raises(SchemaConflict, match="is kept in files"):
        kept.create(SCHEMA)
