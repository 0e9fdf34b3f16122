"""The rows of a batch at which no match begins: empty matches, or rows that match nothing.

A row at which matching was tried in vain is an empty match if the pattern may take nothing, and
else an unmatched row, unless it is part of an earlier match. They are told from the matches that
were found, and from where the skip after each of them leads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.patterns.automaton import Automaton
from millstream.patterns.batches import Batch, Found, Numbers, Truths
from millstream.patterns.landing import landings

#: The column of the rows of a batch that has their places.
PLACE: Final = "__start"
#: The block of the one row of an empty match, which no block took.
NOBODY: Final = -1


def placed(batch: Batch) -> Batch:
    """Return a batch whose rows have their places."""
    places = pa.array(np.arange(len(batch)), pa.int64())
    return replace(batch, rows=batch.rows.append_column(PLACE, places))


def vain(automaton: Automaton, batch: Batch, found: Found, *, unmatched: bool) -> Found:
    """Return the rows of a whole batch at which matching was tried in vain, each as a match.

    With `unmatched`, those that are part of an earlier match are left out, and those of empty
    matches where only first rows have such; else these first rows are all.
    """
    order, ends = _by_key(batch)
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    places = found.rows.column(PLACE).to_numpy()
    starts = at[places[found.starts]] if len(found) else np.zeros(0, np.int64)
    tried = _covered(len(order), *_gaps(starts, starts + landings(automaton, found), ends))
    if unmatched:
        tried &= ~_covered(len(order), starts, starts + found.ends - found.starts)
    if automaton.empty_at_first:
        first = np.zeros(len(order), np.bool_)
        first[np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]] = True
        tried &= ~first if unmatched else first
    rows = np.sort(order[tried])
    count = len(rows)
    return Found(
        batch.keys.take(pa.array(rows)),
        batch.times[rows],
        batch.times[rows],
        np.zeros(count, np.bool_),
        np.arange(1, count + 1),
        np.full(count, NOBODY),
        batch.rows.take(pa.array(rows)),
    )


def numbered(found: Found, empty: Found) -> tuple[Found, Found]:
    """Return matches and empty matches with their numbers among all of their keys."""
    keys = pa.concat_arrays([found.keys, empty.keys]).dictionary_encode().indices.to_numpy()
    whole = [one.rows.column(PLACE).to_numpy()[one.starts] for one in (found, empty)]
    order = np.lexsort((np.concatenate(whole), keys))
    sorted_keys = keys[order]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order)) - np.searchsorted(sorted_keys, sorted_keys) + 1
    count = len(found)
    return replace(found, numbers=numbers[:count]), replace(empty, numbers=numbers[count:])


def _by_key(batch: Batch) -> tuple[Numbers, Numbers]:
    """Return the places of rows by key, and where each key's end among them."""
    codes = batch.keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    return order, np.flatnonzero(np.diff(codes[order], append=-1)) + 1


def _gaps(starts: Numbers, after: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return where rows begin and end at which matching was tried in vain."""
    begins = np.concatenate([np.zeros(1, np.int64), ends])[: len(ends)]
    # The first gap of a key begins with it, the last ends with it; in between lie matches.
    return np.sort(np.concatenate([begins, after])), np.sort(np.concatenate([starts, ends]))


def _covered(count: int, first: Numbers, last: Numbers) -> Truths:
    """Return which of so many places lie in one of several ranges."""
    depth = np.zeros(count + 1, np.int64)
    np.add.at(depth, first, 1)
    np.add.at(depth, np.maximum(first, last), -1)
    found: Truths = np.cumsum(depth[:-1]) > 0
    return found
