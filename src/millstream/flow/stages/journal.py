"""`journal`: a stream with a name on disk, which cuts a flow into groups."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from millstream.errors import Where
from millstream.flow.site import Site
from millstream.flow.stages import forms
from millstream.flow.stages.stage import ZERO, Tree, Written
from millstream.flow.stages.upstream import Upstream

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Journal(Written):
    """A stream with a name on disk: what is above and what is below run in groups of their own."""

    kind: ClassVar[str] = "journal"
    noun: ClassVar[str] = "journal"
    yaml_words: ClassVar[tuple[str, ...]] = ("journal",)
    writer: ClassVar[Literal["source", "group"]] = "group"

    name: str
    input: str
    partitions: int = 1
    key: str | None = None
    keep_for: timedelta | None = None
    keep_bytes: int | None = None
    #: Where it is kept; None: in the job's folder.
    address: str | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    def described(self, fields: Tree) -> Tree:
        if self.address is None:
            del fields["address"]
        return fields

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input,)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        # No row of a journal that a group writes is late.
        return replace(inputs[0], name=self.name, key=self.key, keyed_by=None, lateness=ZERO)

    @classmethod
    def yaml_inputs(cls, entry: Entry) -> list[str]:
        return [entry.needed("journal", "a stream")]

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        given = entry.given(text=("key", "keep_for", "at"), whole=("partitions", "keep_bytes"))
        # "key: null" means that there is none, not even the stream's.
        keyless = entry.has("key") and "key" not in given
        return (inputs[0].key_by(None) if keyless else inputs[0]).journal(name, **given)

    def to_yaml(self, flow: Flow) -> Tree:
        tree = {"journal": self.input}
        tree |= forms.changed(self, "partitions", "keep_for", "keep_bytes")
        tree |= forms.given({"at": self.address})
        # The key is written only where it is not the stream's own: also that there is none.
        own = self.key == flow.stream(self.input).key
        return tree if own else {**tree, "key": self.key}


class JournalMethod(Upstream):
    """`stream.journal`."""

    __slots__ = ()

    def journal(
        self,
        name: str,
        *,
        partitions: int = 1,
        key: str | None = None,
        keep_for: str | timedelta | None = None,
        keep_bytes: int | None = None,
        at: str | None = None,
    ) -> Stream:
        """Return this stream as a journal of its own, which cuts the flow into groups.

        Each group runs and keeps its state by itself.

        Args:
            name: The journal's name.
            partitions: In how many parts it is written.
            key: The column or expression by which rows find their partition; the stream's key if
                it is left out.
            keep_for: Keep what all have read for so long.
            keep_bytes: Keep so much of what all have read.
            at: Where it is kept, "kafka://host:9092/topic"; in the job's folder, or where the job's
                journals are, if it is left out.
        """
        # The name of a stage until it is known to be one.
        site = replace(self._site(name), kind="journal")
        kept = site.kept(partitions, keep_for, keep_bytes)
        by = self._own_key if key is None else (key,)
        above, columns = self._keyed(site, by, "is keyed by")
        column = next(iter(columns), None)
        address = site.address(at)
        stage = Journal(name, above.name, partitions, column, kept, keep_bytes, address, site.where)
        return self.flow.add(stage, above)
