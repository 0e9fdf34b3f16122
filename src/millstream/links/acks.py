"""Which inputs of a worker are done: pure rules.

A worker acknowledges an input only when all that it made of it has been taken by every downstream.
What was taken is counted from the beginning, per downstream; the smallest count holds. (Trimming a
buffer per downstream and taking the smallest step instead loses acknowledgements.)

    inputs -> outputs     1->1   1->0   1->3   0->1   2->3
    delivered  0  1  2  3  4  5  6  7  8
    inputs done 0  2  2  2  3  3  3  3  5

An input without output is done as soon as those before it are. An output without input only holds
back the inputs after it. Inputs that were taken together are done together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Ledger:
    """What a worker has made of which inputs, and how far each downstream has taken it."""

    def __init__(self, downstreams: Iterable[str], capacity: int) -> None:
        self._taken = dict.fromkeys(downstreams, 0)
        self._capacity = capacity
        #: (inputs, the number of outputs after which they are done)
        self._open: deque[tuple[int, int]] = deque()
        self._made = 0
        self._done = 0

    @property
    def undelivered(self) -> int:
        """The outputs that not every downstream has taken."""
        return self._made - min(self._taken.values(), default=self._made)

    @property
    def free(self) -> int:
        """How many outputs may still be made: a worker reads nothing while this is 0."""
        return self._capacity - self.undelivered

    @property
    def empty(self) -> bool:
        return not self._open and self.undelivered == 0

    def record(self, inputs: int, outputs: int) -> int:
        """Note that `outputs` were made of the next `inputs`; return how many inputs can be acknowledged now."""
        self._made += outputs
        self._open.append((inputs, self._made))
        return self._settle()

    def delivered(self, downstream: str, total: int) -> int:
        """Note that a downstream has taken `total` outputs since the beginning; return the inputs to acknowledge now.

        A count that is lower than an earlier one is an old answer and changes nothing.
        """
        self._taken[downstream] = max(self._taken[downstream], min(total, self._made))
        return self._settle()

    def _settle(self) -> int:
        everywhere = min(self._taken.values(), default=self._made)
        done = 0
        while self._open and self._open[0][1] <= everywhere:
            done += self._open.popleft()[0]
        self._done += done
        return done

    @property
    def done(self) -> int:
        """The inputs acknowledged since the beginning."""
        return self._done
