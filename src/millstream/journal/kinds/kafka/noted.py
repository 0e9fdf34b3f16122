"""What is known of a partition's senders besides rows: who has which name, and who has ended.

Both are memos of the index, and every snapshot has those before it, so a host that takes a partition over knows
them:

    {"claim": [sender, incarnation, key]}       a client has a sender's name
    {"ended": sender}                           a sender has ended

The copy of an index has them in `DIR/p0000/noted`, a line each. A host also has the files of the kind
`files`, in which it writes what it has noted itself. Memos may come twice and late: of claims the highest incarnation counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millstream.journal.base import Claim
from millstream.journal.kinds.files.claims import ClaimsFile
from millstream.journal.kinds.files.ends import read_ends
from millstream.journal.kinds.files.lines import checked_line, parse_lines, sound_values
from millstream.storage.disk import REAL

_CLAIM: Final = "claim"
_ENDED: Final = "ended"


@dataclass(slots=True)
class Noted:
    """What memos note, together."""

    claims: dict[str, Claim] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def take(self, memo: Mapping[str, Any]) -> bool:  # Any: JSON
        """Take a memo, and return whether it says anything new.

        Example:
            >>> noted = Noted()
            >>> [noted.take({"claim": ["a", number, "key"]}) for number in (7, 9, 8, 9)]
            [True, True, False, False]
        """
        if _ENDED in memo and memo[_ENDED] not in self.ended:
            self.ended.append(str(memo[_ENDED]))
            return True
        if _CLAIM in memo:
            sender, incarnation, key = memo[_CLAIM]
            before = self.claims.get(sender)
            merged = later(before or Claim(), Claim(incarnation, key))
            self.claims[sender] = merged
            return merged != before
        return False

    def memos(self) -> list[dict[str, Any]]:
        """Return memos that note the same."""
        claims = [claim_memo(*one) for one in self.claims.items()]
        return [*claims, *({_ENDED: sender} for sender in self.ended)]


def later(one: Claim, other: Claim) -> Claim:
    """Return the claim that counts of two, of which `other` came later, or again.

    Example:
        >>> later(Claim(9, "till"), Claim(7, "desk")), later(Claim(7, "till"), Claim(9))
        (Claim(incarnation=9, key='till'), Claim(incarnation=9, key='till'))
    """
    low, high = sorted((one, other), key=lambda claim: claim.incarnation)
    return Claim(high.incarnation, high.key or low.key)


def claim_memo(sender: str, claim: Claim) -> dict[str, Any]:
    return {_CLAIM: [sender, claim.incarnation, claim.key]}


def ended_memo(sender: str) -> dict[str, Any]:
    return {_ENDED: sender}


# in the copy


def file(folder: Path) -> Path:
    return folder / "noted"


def read(folder: Path) -> Noted:
    """Return what the copy in a partition's folder has."""
    found = Noted()
    try:
        raw = file(folder).read_bytes()
    except FileNotFoundError:
        return found
    for memo in sound_values(parse_lines(raw)):
        if isinstance(memo, dict):
            found.take(memo)
    return found


def add(folder: Path, have: Noted, memos: Iterable[Mapping[str, Any]]) -> None:
    """Add memos to the copy, whose lock is held; what it has already is left out."""
    fresh = [memo for memo in memos if have.take(memo)]
    if fresh:
        _write(file(folder), fresh, "ab")


def write(folder: Path, have: Noted) -> None:
    """Write the copy again, without what is outdated."""
    if memos := have.memos():
        fresh = file(folder).with_suffix(".unfinished")
        _write(fresh, memos, "wb")
        fresh.replace(file(folder))


def _write(path: Path, memos: Iterable[Mapping[str, Any]], mode: str) -> None:
    # Synced, unlike the rest of the copy: that goes on after its last entry, and would miss it.
    with path.open(mode) as out:
        out.write(b"".join(checked_line(memo) for memo in memos))
        out.flush()
        os.fsync(out.fileno())


# on this host


def known(path: Path, partition: int, folder: Path) -> Noted:
    """Return what the copy has, with what this host has noted itself."""
    found = read(folder)
    for memo in _own(path, partition).memos():
        found.take(memo)
    return found


def unsent(path: Path, partition: int, folder: Path) -> list[dict[str, Any]]:
    """Return memos of what this host has noted and the copy does not have.

    Folders in which names and ends were kept before they were in Kafka have such.
    """
    found = read(folder)
    return [memo for memo in _own(path, partition).memos() if found.take(memo)]


def _own(path: Path, partition: int) -> Noted:
    return Noted(dict(ClaimsFile(path, partition).known), read_ends(path, partition, REAL))
