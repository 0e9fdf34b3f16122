"""From an address to a journal: the scheme of a URL is the kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from millstream.errors import UnknownJournalKind
from millstream.journal.kind import Journal

_URL: Final = re.compile(r"file:|([A-Za-z][A-Za-z0-9+.-]*)://")


def journal_at(address: Path | str) -> Journal:
    """Return the journal at a path or a URL, whether it exists or not.

    A plain path and a `file:` URL are folders of files.

    Raises:
        UnknownJournalKind: Journals of this kind cannot be read or written.

    Example:
        >>> journal_at("file:///data/shop/journals/orders").exists()
        False
    """
    # Imported late: what needs the types alone, or another kind, does not pay for this one.
    from millstream.journal.kinds.files import FilesJournal

    return FilesJournal(_folder(address))


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
    hint = "give a path or a URL like file:///data/orders"
    raise UnknownJournalKind(f'journal "{address}" {fact}', hint=hint)


def journals_in(folder: Path) -> dict[str, Journal]:
    """Return the journals that lie in a folder, by name."""
    found = ((path.name, journal_at(path)) for path in sorted(folder.glob("*")))
    return {name: journal for name, journal in found if journal.exists()}
