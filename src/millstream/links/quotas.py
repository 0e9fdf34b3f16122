"""How much a producer may send: pure rules, with the time as an argument.

A bucket fills by its rate, up to what comes in a second. Rows are taken from the front while there
are tokens for them, and the others wait with their sender: over any time, a producer gets no more
than its rate and one second's worth. What cannot be divided is taken whole while there is a token,
and the bucket owes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Quota:
    """What a producer may send and have open; None: as much as there is room for."""

    rows_per_second: int | None = None
    bytes_per_second: int | None = None
    connections: int | None = None


UNLIMITED = Quota()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens at a moment, in seconds; a bucket without a rate is never empty."""

    rate: int | None
    tokens: float
    at: float

    @classmethod
    def full(cls, rate: int | None, now: float) -> Bucket:
        return cls(rate, float(rate or 0), now)

    def filled(self, now: float) -> Bucket:
        """Return the bucket at a later moment; a clock that goes back changes nothing."""
        if self.rate is None or now <= self.at:
            return self
        return replace(
            self, tokens=min(self.rate, self.tokens + self.rate * (now - self.at)), at=now
        )

    def less(self, amount: float) -> Bucket:
        """Return what is left; a negative amount is given back."""
        if self.rate is None:
            return self
        return replace(self, tokens=min(float(self.rate), self.tokens - amount))

    def covers(self, wanted: int, each: float = 1.0) -> int:
        """Return how many of `wanted` things, of `each` tokens, there is something for."""
        if self.rate is None:
            return wanted
        # One that is larger than the bucket passes alone, and is owed.
        return min(wanted, max(1, int(self.tokens / each))) if self.tokens >= 1 else 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a producer may send now."""

    rows: Bucket
    bytes: Bucket

    @classmethod
    def full(cls, quota: Quota, now: float) -> Allowance:
        return cls(
            Bucket.full(quota.rows_per_second, now), Bucket.full(quota.bytes_per_second, now)
        )

    def filled(self, now: float) -> Allowance:
        return Allowance(self.rows.filled(now), self.bytes.filled(now))

    def fitting(self, rows: int, size: int) -> int:
        """Return how many rows, of `size` bytes in all, may be taken now, from the front."""
        return min(self.rows.covers(rows), self.bytes.covers(rows, max(1.0, size / rows)))

    def less(self, rows: float, size: float) -> Allowance:
        return Allowance(self.rows.less(rows), self.bytes.less(size))

    @property
    def free(self) -> int | None:
        """How many rows may come next, as far as it is known; None: any number."""
        if self.bytes.rate is not None and self.bytes.tokens < 1:
            return 0
        return None if self.rows.rate is None else max(0, int(self.rows.tokens))
