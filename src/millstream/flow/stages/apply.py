"""`apply`: a function from DataFrame to DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.errors import Where
from millstream.flow.schema import Schema
from millstream.flow.site import Site
from millstream.flow.stages.stage import Function, FunctionTable, OneInput, Tree
from millstream.flow.stages.upstream import Upstream, check_callable, schema_of

if TYPE_CHECKING:
    from millstream.flow.stream import Stream


@dataclass(frozen=True, slots=True)
class Apply(OneInput):
    """A function from DataFrame to DataFrame; stateless, and it keeps the time column."""

    kind: ClassVar[str] = "apply"

    name: str
    input: str
    function: Function
    schema: Schema | None = None
    where: Where | None = field(default=None, compare=False, repr=False)

    def stream(self, site: Site, *inputs: Stream) -> Stream:
        inputs[0]._check_time_kept(site, self.schema, "its schema")
        return inputs[0].derived(self.name, self.schema)

    def fingerprint(
        self, described: Tree, functions: FunctionTable, snapshots: Mapping[str, str]
    ) -> Tree:
        return {**described, "function": functions.stage_function(self.function)}


class ApplyMethod(Upstream):
    """`stream.apply`."""

    __slots__ = ()

    def apply(
        self, name: str, function: Callable[..., Any], schema: str | Schema | None = None
    ) -> Stream:
        """Return what `function`, from DataFrame to DataFrame, makes of this stream.

        It must be stateless and keep the time column.

        Args:
            name: The stage's name.
            function: Called with the DataFrame when the flow is planned.
            schema: The columns that come out, if they should be known (and checked) before Spark
                has seen them.
        """
        site = self._site(name)
        check_callable(site, function, 1, "function(dataframe)")
        output = None if schema is None else schema_of(site, schema)
        return self.flow.add(Apply(name, self.name, function, output, site.where), self)
