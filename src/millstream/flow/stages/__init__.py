"""The kinds of stages, a file each. What asks them knows no kind by name.

Ours are listed here: to add one is to add its two files and a line to each list below.
"""

from __future__ import annotations

from typing import Final

from millstream.errors import Where
from millstream.flow.stages.action import Action, ActionMethod
from millstream.flow.stages.apply import Apply, ApplyMethod
from millstream.flow.stages.distinct import Distinct, DistinctMethod
from millstream.flow.stages.fold import Fold, FoldMethod
from millstream.flow.stages.join import Join, JoinMethod
from millstream.flow.stages.journal import Journal, JournalMethod
from millstream.flow.stages.keyed import Keyed
from millstream.flow.stages.lookup import Lookup
from millstream.flow.stages.match import SHARDS, Match, MatchMethod
from millstream.flow.stages.merge import Merge, MergeMethod
from millstream.flow.stages.reads import Reads
from millstream.flow.stages.registry import kinds, register
from millstream.flow.stages.sink import Sink
from millstream.flow.stages.source import Source
from millstream.flow.stages.sql import Sql, SqlMethod
from millstream.flow.stages.stage import EntryPoint, Named, OneInput, Reach, Stage, Written
from millstream.flow.stages.window import Window, WindowMethod

__all__ = [
    "SHARDS",
    "Action",
    "Apply",
    "Distinct",
    "EntryPoint",
    "Fold",
    "Join",
    "Journal",
    "Keyed",
    "Lookup",
    "Match",
    "Merge",
    "Methods",
    "Named",
    "OneInput",
    "Reach",
    "Reads",
    "Sink",
    "Source",
    "Sql",
    "Stage",
    "Where",
    "Window",
    "Written",
    "kinds",
    "register",
]

#: In the order in which errors name them.
OURS: Final[tuple[type[Stage], ...]] = (
    *(Source, Reads, Apply, Sql, Window, Merge, Join, Lookup),
    *(Distinct, Fold, Action, Match, Keyed, Journal),
)
for _kind in OURS:
    register(_kind)


class Methods(
    ApplyMethod,
    SqlMethod,
    WindowMethod,
    MergeMethod,
    JoinMethod,
    DistinctMethod,
    FoldMethod,
    MatchMethod,
    ActionMethod,
    JournalMethod,
):
    """What the kinds add to a stream."""

    __slots__ = ()
