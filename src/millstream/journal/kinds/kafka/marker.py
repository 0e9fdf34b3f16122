"""Which folders are those of journals in Kafka: a file in them names the topics and how to reach them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from millstream.brokers.connection import Connection, connection
from millstream.errors import JournalUnreadable, SchemaConflict
from millstream.journal.kinds.files.lines import checked, with_checksum
from millstream.journal.kinds.kafka.following import Topics
from millstream.secrets import Secret
from millstream.storage.disk import REAL, make_folder, write_whole

FILE: Final = "kafka.json"


def marked(path: Path) -> bool:
    """Return whether a folder is that of a journal in Kafka."""
    return (path / FILE).exists()


def mark(topics: Topics) -> None:
    """Let a folder be that of a journal in Kafka.

    Raises:
        SchemaConflict: It is that of another one.
    """
    make_folder(REAL, topics.path)
    body = {"kind": "kafka", "topic": topics.topic, "connection": topics.connection.described()}
    if marked(topics.path):
        before = read(topics.path)
        if before.topic != topics.topic:
            msg = f'journal "{topics.path}" is in topic "{before.topic}", not "{topics.topic}"'
            raise SchemaConflict(msg, hint="give the new journal another name")
        if before == topics:
            return
    elif (topics.path / "journal.json").exists():
        msg = f'journal "{topics.path}" is kept in files, not in topic "{topics.topic}"'
        raise SchemaConflict(msg, hint="give the new journal another name")
    write_whole(REAL, topics.path / FILE, json.dumps(with_checksum(body), indent=1).encode())


def read(path: Path) -> Topics:
    """Return the journal that a folder is of.

    Raises:
        JournalUnreadable: The file is damaged.
    """
    file = path / FILE
    try:
        body = checked(json.loads(file.read_bytes()))
        return Topics(path, _connection(body["connection"]), str(body["topic"]))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        msg = f'the address of journal "{path}" is damaged, in "{file}"'
        raise JournalUnreadable(msg, hint="restore the file from a backup") from exc


def _connection(body: dict[str, Any]) -> Connection:  # Any: JSON
    values: dict[str, Any] = {
        key: Secret(str(value["secret"]))
        if isinstance(value, dict) and "secret" in value
        else value
        for key, value in body.items()
    }
    servers = str(values.pop("servers"))
    return connection(servers, **values)
