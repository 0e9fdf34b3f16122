"""Which segments and entries of a partition a reader may see: those that are synced."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from pathlib import Path

from millstream.errors import CorruptIndex, PositionTrimmed
from millstream.journal.kinds.files.index import read_header, some
from millstream.journal.kinds.files.layout import data_file, index_file, segment_positions
from millstream.journal.kinds.files.mark import Mark, MarkReader
from millstream.journal.kinds.files.segments import CHECK_HINT, Maps, Segment, synced_without_mark

_SEGMENTS = 16  # each holds a map of its index, and files held open


class Visible:
    """What is synced in a partition's folder, and its open segments; `name` is for errors."""

    def __init__(self, folder: Path, name: str) -> None:
        self.mark: Mark | None = None
        self.firsts: list[int] = []
        self.maps = Maps()
        self._folder = folder
        self._name = name
        self._mark_reader = MarkReader(folder)
        self._segments: OrderedDict[int, Segment] = OrderedDict()
        self._maxima: dict[int, int] = {}
        self._unmarked = synced_without_mark(folder, self._mark_reader.read())

    @property
    def begin(self) -> int:
        """The first position that is still there."""
        self.refresh()
        self.list_segments()
        return self.firsts[0] if self.firsts else 0

    @property
    def end(self) -> int:
        """The position after the last durable one, now."""
        self.refresh()
        return 0 if self.mark is None else self.mark.end

    def refresh(self) -> None:
        """Take over what was written since."""
        mark = self._mark_reader.read()
        if self._unmarked is not None:
            if mark is None or mark.turn <= self._unmarked.turn:
                mark = self._unmarked
            else:
                self._unmarked = None
        if mark is self.mark or mark is None:
            return
        moved = self.mark is None or mark.segment != self.mark.segment
        self.mark = mark
        if moved:
            self.list_segments()
        last = self._segments.get(mark.segment)
        if last is not None:
            if len(last.entries) == 0:
                # An empty segment may have been begun again under another schema.
                del self._segments[mark.segment]
            else:
                last.grow(mark.entries)

    def list_segments(self) -> None:
        """See which segments there are; forget those that were removed."""
        if self.mark is None:
            self.firsts = []
            return
        newest = self.mark.segment
        self.firsts = [first for first in segment_positions(self._folder) if first <= newest]
        kept = set(self.firsts)
        for first in [first for first in self._segments if first not in kept]:
            del self._segments[first]
        self._maxima = {first: value for first, value in self._maxima.items() if first in kept}
        self.maps.keep_only({data_file(self._folder, first) for first in kept})
        for first, segment in self._segments.items():
            if first != newest:
                segment.finish()

    def segment(self, number: int) -> Segment:
        first = self.firsts[number]
        segment = self._segments.get(first)
        if segment is None:
            segment = self._segments[first] = Segment(self._folder, first)
            if self.mark is not None and first == self.mark.segment:
                segment.grow(self.mark.entries)
            else:
                segment.finish()
            if len(self._segments) > _SEGMENTS:
                self._segments.popitem(last=False)
        self._segments.move_to_end(first)
        return segment

    def max_before(self, number: int) -> int:
        """Return the running maximum before a segment, from its header alone."""
        first = self.firsts[number]
        if first not in self._maxima:
            self._maxima[first] = some(
                read_header(index_file(self._folder, first)).state.running_max
            )
        return self._maxima[first]

    def max_after(self, number: int) -> int:
        """Return the running maximum after a segment."""
        if number + 1 < len(self.firsts):
            return self.max_before(number + 1)
        return self.segment(number).running_max

    def segment_of(self, position: int) -> Segment:
        """Return the segment in which `position` lies, or would lie if it is the end."""
        if not self.firsts or position < self.firsts[0]:
            self.list_segments()
        if not self.firsts or position < self.firsts[0]:
            first = self.firsts[0] if self.firsts else 0
            msg = f"position {position} of {self._name} was removed, the first is {first}"
            hint = "keep the journal for longer, or let the reader commit its positions"
            raise PositionTrimmed(msg, hint=hint)
        try:
            return self.segment(bisect.bisect_right(self.firsts, position) - 1)
        except FileNotFoundError:  # retention was quicker
            self.firsts = []
            return self.segment_of(position)

    def find(self, segment: Segment, position: int) -> int:
        """Return the number of the entry that holds `position`."""
        number = segment.find(position)
        if number >= 0:
            segment.check_entry(number)
            entry = segment.entries[number]
            if position < int(entry["position"]) + int(entry["count"]):
                return number
        msg = f"position {position} of {self._name} is missing from the index"
        raise CorruptIndex(msg, file=str(segment.index_path), offset=0, hint=CHECK_HINT)
