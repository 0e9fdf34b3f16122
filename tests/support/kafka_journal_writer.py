"""Appends to a journal in Kafka until it is killed, and prints what was acknowledged.

python -m support.kafka_journal_writer FOLDER SERVERS TOPIC
"""

from __future__ import annotations

import sys
from pathlib import Path

from contract.check_journal import rows
from millstream.brokers.connection import connection
from millstream.journal.kinds.kafka import KafkaJournal


def main(folder: str, servers: str, topic: str) -> None:
    journal = KafkaJournal(Path(folder), connection(servers), topic)
    with journal.writer(0) as writer:
        number = writer.highest("a") + 1
        while True:
            count = 1 + number % 3
            futures = [
                writer.append_nowait("a", number + n, rows(number + n)) for n in range(count)
            ]
            for future in futures:
                future.result()
            number += count
            print(number - 1, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
