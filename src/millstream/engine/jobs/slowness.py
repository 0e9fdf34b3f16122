"""Why a group is slow, in words: a sentence with the number and what to try.

A rule over numbers alone. `shares` are parts of the time that went by: 0.62 of "state" means that
of every second 0.62 went into state. What is missing to 1 is time without anything to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: From which part of the time on a group counts as busy.
BUSY: Final = 0.7
#: From how many seconds of lag on a group counts as slow, if it is half as busy as that.
LATE_S: Final = 30.0

_WHAT: Final = {
    "reading": (
        "choosing and reading rows of journals takes",
        "give the source fewer partitions, or put its journals on a faster disk",
    ),
    "planning": (
        "planning batches in Spark takes",
        "let a batch have more rows: fewer small batches, or fewer groups on this engine",
    ),
    "waiting": (
        "waiting for another version to publish takes",
        "it ends with the switch: see how far that is",
    ),
    "running": (
        "Spark's own work takes",
        "give Spark more cores, filter rows before stages that are costly, or let a batch have more "
        "rows",
    ),
    "python": (
        "its Python functions take",
        "replace a fold by a window or declared folds, filter rows before it, or give Spark more "
        "cores",
    ),
    "matching": (
        "matching patterns takes",
        "let fewer events meet the first condition, shorten within(), or give Spark more cores",
    ),
    "programs": (
        "waiting for its programs takes",
        "give Spark more cores, which is one program each, or let programs answer in bulk",
    ),
    "staging": (
        "writing results to disk before they are published takes",
        "put the data folder on a faster disk, or let fewer rows come out",
    ),
    "state": (
        "keeping state takes",
        "keep less of it: fewer keys, a shorter lateness or horizon, keep= for a fold",
    ),
    "publishing": (
        "publishing results takes",
        "look at the sink's system: is it slow, far away, or does it have too few partitions?",
    ),
    "commit": (
        "committing batches to disk takes",
        "put checkpoints on a faster disk, or let a batch have more rows",
    ),
}
#: What the time of a batch goes into, in the order in which it does.
CAUSES: Final = tuple(_WHAT)


def why_slow(
    group: str, shares: Mapping[str, float], *, lag_rows: int, lag_seconds: float
) -> str | None:
    """Return why a group is slow; None if it is not."""
    busy = sum(shares.values())
    late = lag_rows > 0 and lag_seconds >= LATE_S
    if busy < (BUSY / 2 if late else BUSY):
        return None
    cause = max(shares, key=lambda one: shares[one])
    takes, advice = _WHAT.get(cause, (f"{cause} takes", "look at its log"))
    behind = f" and {lag_rows:,} rows behind" if late else ""
    return (
        f"group {group} is busy {_percent(busy)} of the time{behind}: "
        f"{takes} {_percent(shares[cause] / busy)} of a batch. To try: {advice}"
    )


def _percent(part: float) -> str:
    return f"{min(1.0, part):.0%}".replace("%", " %")
