"""Streams: what a flow is built with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.errors import InvalidOption
from millstream.flow.keys import read_key
from millstream.flow.site import Site, here
from millstream.flow.spelling import spelled_methods
from millstream.flow.stages import Methods, OneInput, Sink
from millstream.flow.targets import TargetSpec


@spelled_methods
class Stream(Methods):
    """The output of a stage: it knows its columns, time, key and lateness.

    `schema` is None, or has types that are None, where only Spark can tell at planning. `key` is
    the column that windows and folds group by unless they are given another.
    """

    __slots__ = ()

    def stage(self, name: str, kind: type[OneInput], **fields: Any) -> Stream:
        """Return the stream of a stage of any kind that reads this one, also one of your own.

            departures.stage("some", Sample, every=10)

        Args:
            name: The stage's name.
            kind: Its class.
            fields: What it has beside its name, its input and its place.
        """
        site = self._site(name)
        if not (isinstance(kind, type) and issubclass(kind, OneInput)):
            hint = "give a class of stages that read one stream"
            raise site.mistake(InvalidOption, f"is of the kind {kind!r}", hint=hint)
        # Which fields a kind has, only its author knows.
        make: Any = kind
        return self.flow.add(make(name, self.name, where=site.where, **fields), self)

    def key_by(self, column: str | None) -> Stream:
        """Return the same stream with another key (None: without).

        It is a column or an expression: `key_by("upper(shop)")`. Windows, folds and journals below
        take it as their default.
        """
        site = Site(self.flow.name, self.name, "stream", here())
        keyed_by = None
        if column is not None:
            keyed_by = read_key(site, self.schema, column, self.name, "is keyed by")
        if keyed_by is not None:
            return replace(self, key=None, keyed_by=keyed_by)
        if column is not None:
            column = site.column(self.schema, column, self.name, verb="is keyed by")
        return replace(self, key=column, keyed_by=None)

    def sink(self, name: str, target: TargetSpec) -> None:
        """Send this stream's rows to a target.

        Sinks of one stream share a group, named after the first of them.
        """
        site = self._site(name, "sink")
        if not isinstance(target, TargetSpec):
            fact = f"has {type(target).__name__} as its target"
            hint = 'say where to: ms.parquet("out/results"), ms.console(), ...'
            raise site.mistake(InvalidOption, fact, hint=hint)
        self.flow._add_sink(Sink(name, self.name, target, site.where))
