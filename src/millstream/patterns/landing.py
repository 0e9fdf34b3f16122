"""Where matching goes on after a match of SQL: AFTER MATCH SKIP TO a variable must lead on."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from millstream.errors import ConditionFailed
from millstream.patterns.automaton import Automaton
from millstream.patterns.batches import Found, Numbers
from millstream.patterns.pattern import Skip


def check_landings(automaton: Automaton, found: Found) -> None:
    """Refuse matches from which their skip leads nowhere, or to where they began, as SQL does.

    Raises:
        ConditionFailed: A match has no row of the variable, or the row is its first.
    """
    skip = automaton.skip
    wanted = automaton.prefers or skip.or_fail
    if not wanted or skip.block is None or not len(found):
        return
    places = _places(found, automaton.blocks_of(skip.block), skip)
    hint = "skip past the last row, to the next one, or to a variable behind the first row"
    if (places[~found.late] < 0).any():
        msg = f'AFTER MATCH SKIP goes to "{skip.block}", and a match has no row of it'
        raise ConditionFailed(msg, hint=hint)
    if (places[~found.late] == 0).any():
        msg = f'AFTER MATCH SKIP goes to "{skip.block}", and a match has it as its first row'
        raise ConditionFailed(msg, hint=hint)


def landings(automaton: Automaton, found: Found) -> Numbers:
    """Return how many rows behind the first of each match matching goes on."""
    skip = automaton.skip
    if skip.block is not None:
        return _places(found, automaton.blocks_of(skip.block), skip)
    return found.ends - found.starts if skip.kind == "past_last" else np.ones_like(found.ends)


def _places(found: Found, blocks: Collection[int], skip: Skip) -> Numbers:
    """Return which row of each match a skip leads to, counted from its first; -1 for none."""
    own = np.flatnonzero(np.isin(found.blocks, list(blocks)))
    first = np.searchsorted(own, found.starts, side="left")
    last = np.searchsorted(own, found.ends, side="left") - 1
    wanted = first if skip.kind == "to_first" else last
    there = last >= first
    places = own[np.where(there, wanted, 0)] if len(own) else found.starts
    counted: Numbers = np.where(there, places - found.starts, -1)
    return counted
