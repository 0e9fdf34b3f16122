"""Probation: is a new version doing worse than it may?

A rule from what was seen to a verdict. What is seen are samples of the numbers that people watch,
taken every few seconds from the cut on; what counts is what has become worse since then. A verdict
has to wait until the old version has retired.

    errors         how often its driver has died
    dead letters   how many more there are
    lag            how old the oldest row is that is not processed: growing means that it is above the limit and
                   has grown over the whole of `growing_s`, sample by sample, as a version does that
                   cannot keep up
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What a version on probation may do."""

    errors: int = 0
    dead_letters: int = 100
    lag_s: float = 60.0
    growing_s: float = 30.0


class Trial(msgspec.Struct, frozen=True):
    """The probation of a new version: how long, its limits, and whether failing it leads back."""

    seconds: float
    limits: Limits = Limits()
    back: bool = False
    #: How it ended, if it has.
    ended: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """The numbers of a job at a moment, in seconds since 1970."""

    at: float
    restarts: int = 0
    dead: int = 0
    lag_s: float = 0.0


def verdict(samples: Sequence[Sample], limits: Limits) -> str | None:
    """Return what is wrong with a version, by all samples since it took over, oldest first.

    None if nothing is.
    """
    if not samples:
        return None
    first, last = samples[0], samples[-1]
    died, letters = last.restarts - first.restarts, last.dead - first.dead
    if died > limits.errors:
        return f"its driver has died {died} {'time' if died == 1 else 'times'}, and {limits.errors} are allowed"
    if letters > limits.dead_letters:
        return f"it has made {letters:,} dead letters, and {limits.dead_letters:,} are allowed"
    if last.lag_s > limits.lag_s and _growing(samples, limits.growing_s):
        return f"it is {last.lag_s:.0f} s behind and falls further behind"
    return None


def _growing(samples: Sequence[Sample], span_s: float) -> bool:
    """Tell whether the lag has grown from sample to sample over a whole span up to the last."""
    last = samples[-1]
    recent = [one for one in samples if one.at >= last.at - span_s]
    whole = samples[0].at <= last.at - span_s and len(recent) > 2
    return whole and all(later.lag_s > earlier.lag_s for earlier, later in pairwise(recent))
