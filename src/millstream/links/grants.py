"""What a key's own file lets its owner do: pure rules.

    may = "rows, end, watermark"        rows alone if there is no such line
    sources = "shop.sales, shop.*"      all of them if there is none
    senders = "orders/*"                names beside those that begin with the key's name
    rows_per_second = "1000"            no limit if there is none, as for the next two (quotas.py)
    bytes_per_second = "1000000"
    connections = "4"

A sender's name that begins with the name of a key belongs to that key, to the longest one if there
are several: "till-1" and "till-1/7" to "till-1", "till-2" to "till". Names that no key has:

    client:<32 digits>    a client without a name: nobody can guess it
    listed as `senders`   in the file of a key
    stored before         a sender of an earlier version belongs to the first key that uses it
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from millstream.links.quotas import UNLIMITED, Quota

RIGHTS: Final = ("rows", "end", "watermark")
QUOTAS: Final = ("rows_per_second", "bytes_per_second", "connections")
_PASSING: Final = re.compile(r"(client|send):[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key may do."""

    may: frozenset[str] = frozenset({"rows"})
    sources: tuple[str, ...] = ("*",)
    senders: tuple[str, ...] = ()
    quota: Quota = UNLIMITED

    def reaches(self, source: str) -> bool:
        """Tell whether the key may send to a source."""
        return any(fnmatchcase(source, one) for one in self.sources)


ROWS_ONLY: Final = Grant()
"""What a key may do whose file says nothing of it."""


def parse(fields: Mapping[str, str]) -> Grant:
    """Return the grant in the lines of a key's file.

    Raises:
        ValueError: A line is not known, or gives a right that there is not.
    """
    numbers = {name: _number(name, fields[name]) for name in QUOTAS if name in fields}
    fields = {name: text for name, text in fields.items() if name not in numbers}
    lists = {name: tuple(re.split(r"\s*,\s*", text.strip())) for name, text in fields.items()}
    unknown = lists.keys() - {"may", "sources", "senders"}
    if unknown:
        raise ValueError(f'"{min(unknown)}" is not known')
    may = frozenset(lists.get("may", ("rows",)))
    if not may <= set(RIGHTS):
        raise ValueError(f'there is no right "{min(may - set(RIGHTS))}"')
    return Grant(may, lists.get("sources", ("*",)), lists.get("senders", ()), Quota(**numbers))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text.strip()):
        raise ValueError(f'{name} is "{text}", and not a number above 0')
    return int(text)


def owner_of(sender: str, keys: Collection[str]) -> str | None:
    """Return the key that a sender's name belongs to.

    >>> owner_of("till-1", ["till", "shop"]), owner_of("tiller", ["till"])
    ('till', None)
    """
    found = [key for key in keys if sender == key or _begins(sender, key)]
    return max(found, key=len, default=None)


def _begins(sender: str, key: str) -> bool:
    return sender.startswith(key) and not sender[len(key)].isalnum()


def may_send_as(
    key: str, grant: Grant, sender: str, keys: Collection[str], *, stored: bool, bound: str | None
) -> bool:
    """Tell whether a key may use a sender's name.

    Args:
        key: The key's name.
        grant: What its file lets it do.
        sender: The sender's name.
        keys: The names of all keys.
        stored: Whether the journal has rows of that sender.
        bound: The key that has used the name before, if it is nobody's by its beginning.
    """
    owner = owner_of(sender, keys)
    if owner is not None:
        return owner == key
    if _PASSING.fullmatch(sender) or any(fnmatchcase(sender, one) for one in grant.senders):
        return True
    return bound == key or (bound is None and stored)
