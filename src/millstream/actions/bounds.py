"""How much those who connect may take of a process: pure rules.

A connection that has not said who it is, and one that is amid a long message, cost memory and a
file. Both are bounded in all, so that many of them harm each other and not the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, TypeVar

#: Connections that have not said who they are.
MOST_WAITING: Final = 64
#: Connections that have.
MOST_SENDERS: Final = 256
#: Nodes that are known without being expected, each with its fence.
MOST_NODES: Final = 256

One = TypeVar("One")


def surplus(waiting: Mapping[One, str], most: int = MOST_WAITING) -> One | None:
    """Return the connection to close if there are too many; they map to the hosts they come from.

    It is the oldest one of the host that has most of them, so that no host keeps another out.

    Example:
        >>> surplus({1: "a", 2: "b", 3: "b"}, most=2), surplus({1: "a", 2: "b"}, most=2)
        (2, None)
    """
    if len(waiting) <= most:
        return None
    (host, _), *_ = Counter(waiting.values()).most_common(1)
    return next(one for one, its in waiting.items() if its == host)


def overdrawn(unfinished: Mapping[One, tuple[float, int]], most: int) -> One | None:
    """Return the connection to close if unfinished messages take more than `most` bytes together.

    They map to the moment since when nothing was completed, and to their bytes. It is the one that
    has completed nothing for longest: who sends on is done soon.

    Example:
        >>> overdrawn({"slow": (1.0, 50), "quick": (9.0, 60), "idle": (0.0, 0)}, most=100)
        'slow'
    """
    if sum(size for _, size in unfinished.values()) <= most:
        return None
    return min(
        (one for one in unfinished if unfinished[one][1]), key=lambda one: unfinished[one][0]
    )
