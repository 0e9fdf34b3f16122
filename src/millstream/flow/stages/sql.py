"""`sql`: a stateless query over one stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from millstream.errors import Where
from millstream.flow import expressions
from millstream.flow import query as queries
from millstream.flow.site import Site
from millstream.flow.stages.match import Match
from millstream.flow.stages.stage import OneInput, Tree
from millstream.flow.stages.upstream import Upstream

if TYPE_CHECKING:
    from millstream.flow.document import Entry
    from millstream.flow.flow import Flow
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Sql(OneInput):
    """A stateless query that reads FROM the stage `input`."""

    kind: ClassVar[str] = "sql"
    yaml_words: ClassVar[tuple[str, ...]] = ("sql",)

    name: str
    input: str
    query: str
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        above, time = inputs[0], inputs[0].time
        output = queries.output_of(self.query, above.name, above.schema, time, site)
        if output is not None:
            site.check_columns(output)
            # The column may be spelled in another case now.
            spelled = [name for name in output.names if time and name.lower() == time.lower()]
            time = spelled[0] if spelled else None
        return above.derived(self.name, output, time=time)

    @property
    def chooses(self) -> bool:
        return queries.chooses(self.query)

    @classmethod
    def from_yaml(cls, name: str, entry: Entry, inputs: list[Stream]) -> Stream:
        return inputs[0].sql(name, entry.needed("sql", "a query"))

    def to_yaml(self, flow: Flow) -> Tree:
        return {"from": self.input, "sql": self.query}

    @classmethod
    def normal(cls, meaning: Tree) -> Tree:
        return {**meaning, "query": expressions.normal(meaning["query"])}


class SqlMethod(Upstream):
    """`stream.sql`."""

    __slots__ = ()

    def sql(self, name: str, query: str) -> Stream:
        """Return the rows of a stateless query, which reads FROM this stream's name.

            departures.sql("late", "SELECT * FROM departures WHERE delay > 60")

        What needs state (GROUP BY, DISTINCT, joins, window functions) has stages of its own. A
        query with a MATCH_RECOGNIZE clause is one: a pattern that is matched behind the watermark,
        with a stateless query around it.
        """
        site = self._site(name)
        if queries.recognizes(query):
            return self._recognize(site, query)
        return self.flow.add(Sql(name, self.name, query, site.where), self)

    def _recognize(self, site: Site, query: str) -> Stream:
        self._check_timed(site, "match")
        # By its name: a flow takes any pattern and knows none.
        patterns = import_module("millstream.patterns.query")
        found = patterns.recognized(query, self.name, self.schema, self.time, site)
        if found.output is not None:
            site.check_columns(found.output)
        stage = Match(site.name, self.name, found.pattern, found.by, where=site.where)
        return self.flow.keep(stage, self.derived(site.name, found.output, time=found.time))
