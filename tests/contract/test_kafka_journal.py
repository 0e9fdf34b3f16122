"""The kind `kafka` keeps what every journal promises, on a real broker."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from contract.check_journal import JournalChecks
from millstream.brokers.connection import connection
from millstream.journal import Journal
from millstream.journal.kinds.kafka import KafkaJournal

pytestmark = pytest.mark.kafka


class TestKafka(JournalChecks):
    @pytest.fixture
    def empty(self, kafka: str, tmp_path: Path) -> Journal:
        return KafkaJournal(
            tmp_path / "some journal", connection(kafka), f"j-{uuid.uuid4().hex[:8]}"
        )
