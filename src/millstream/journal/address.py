"""From an address to a journal: the scheme of a URL is the kind."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from millstream.errors import UnknownJournalKind
from millstream.journal.kind import Journal
from millstream.storage.disk import REAL, make_folder, write_whole

_URL: Final = re.compile(r"file:|([A-Za-z][A-Za-z0-9+.-]*)://")


#: In the folder of a journal that is in Kafka, and in a folder whose new journals shall be.
_MARKER: Final = "kafka.json"
_DEFAULT: Final = "journals.json"


def journal_at(address: Path | str) -> Journal:
    """Return the journal at a path or a URL, whether it exists or not.

    A plain path and a `file:` URL are folders: of files, or with the copy of what is in Kafka. For a
    `kafka:` URL this host keeps such a folder for itself.

    Raises:
        UnknownJournalKind: Journals of this kind cannot be read or written.

    Example:
        >>> journal_at("file:///data/shop/journals/orders").exists()
        False
    """
    # Imported late: what needs the types alone, or another kind, does not pay for this one.
    if isinstance(address, str) and address.startswith("kafka:"):
        from millstream.journal.kinds.kafka import KafkaJournal

        return KafkaJournal.at(address)
    folder = _folder(address)
    if (folder / _MARKER).exists():
        from millstream.journal.kinds.kafka import KafkaJournal

        return KafkaJournal.marked(folder)
    from millstream.journal.kinds.files import FilesJournal

    found = FilesJournal(folder)
    if not (folder.parent / _DEFAULT).exists() or found.exists():
        return found
    from millstream.journal.kinds.kafka import KafkaJournal

    default = json.loads((folder.parent / _DEFAULT).read_bytes())["address"]
    return KafkaJournal.in_folder(folder, _below(default, folder.name))


def journal_kept(folder: Path, address: str | None) -> Journal:
    """Return the journal of a folder, which is kept at an address if it is given one.

    A journal that is there stays where it is.
    """
    if address is None or (folder / _MARKER).exists():
        return journal_at(folder)
    from millstream.journal.kinds.kafka import KafkaJournal

    _, _, version = folder.name.partition("@")
    return KafkaJournal.in_folder(folder, _below(address, version) if version else address)


def keep_journals(folder: Path, address: str, flow: str) -> None:
    """Let the journals of a flow that are made from now on be topics below an address.

    Raises:
        InvalidOption: It is no address of topics.
    """
    from millstream.brokers.address import parse

    parse(_below(address, flow))
    make_folder(REAL, folder)
    body = {"address": _below(address, flow)}
    write_whole(REAL, folder / _DEFAULT, json.dumps(body).encode())


def _below(address: str, name: str) -> str:
    """Return the address of a topic whose name begins as that of another.

    Example:
        >>> _below("kafka://b:9092/shop?tls=true", "orders@2")
        'kafka://b:9092/shop.orders.2?tls=true'
    """
    url = urlsplit(address)
    words = [word for word in (url.path.strip("/"), *name.split("@")) if word]
    return url._replace(path="/" + ".".join(words)).geturl()


def _folder(address: Path | str) -> Path:
    if isinstance(address, Path) or not _URL.match(address):
        return Path(address)
    url = urlsplit(address)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        return Path(unquote(url.path))
    if url.scheme == "file":
        fact = f'is on another host: "{url.netloc}"'
    else:
        fact = f'is of the kind "{url.scheme}"'
    hint = "give a path or a URL like file:///data/orders or kafka://host:9092/orders"
    raise UnknownJournalKind(f'journal "{address}" {fact}', hint=hint)


def journals_in(folder: Path) -> dict[str, Journal]:
    """Return the journals that lie in a folder, by name."""
    found = (path for path in sorted(folder.glob("*")) if (path / "journal.json").exists())
    return {path.name: journal_at(path) for path in found}
