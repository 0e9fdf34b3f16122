"""Random flows: any graph of stages that can be built."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

import millstream as ms

DDL = "k string, v double, w int, at timestamp"
LENGTHS = ["1 min", "7 min", "30 min", "1 h", "5 h", "1 d"]


def same(frame: object) -> object:
    return frame


def step(state: int, row: dict[str, object]) -> tuple[int, None]:
    return state + 1, None


class Builder:
    """Builds a flow stage by stage from random choices; every stream keeps the columns of `DDL`."""

    def __init__(self, draw: Callable[[st.SearchStrategy], object], *, functions: bool) -> None:
        self.draw = draw
        self.functions = functions
        self.flow = ms.Flow("random", window=draw(st.sampled_from(LENGTHS)))
        self.streams: list[ms.Stream] = []
        self.waiting: list[str] = []
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def length(self) -> str:
        return self.draw(st.sampled_from(LENGTHS))

    def any(self) -> ms.Stream:
        return self.draw(st.sampled_from(self.streams))

    def source(self) -> None:
        name = self.name("source")
        spec = self.draw(
            st.sampled_from(
                [
                    ms.inbox(DDL),
                    ms.files("in/*.csv", DDL, sep=";"),
                    ms.files("in", DDL, format="jsonl", follow=True),
                    ms.replay("in.parquet", DDL, speed=2.5),
                ]
            )
        )
        key = self.draw(st.sampled_from([None, "k", "w"]))
        partitions = self.draw(st.integers(1, 3))
        lateness = self.draw(st.sampled_from(["0 s", "3 min", "2 h"]))
        self.streams.append(
            self.flow.source(
                name, spec, time="at", lateness=lateness, key=key, partitions=partitions
            )
        )

    def reads(self) -> None:
        name = self.name("loop")
        self.waiting.append(name)
        self.streams.append(self.flow.reads(name, DDL, time="at"))

    def sql(self) -> None:
        stream = self.any()
        limit = self.draw(st.integers(0, 3))
        self.streams.append(
            stream.sql(self.name("sql"), f"SELECT * FROM {stream.name} WHERE w > {limit}")
        )

    def apply(self) -> None:
        self.streams.append(self.any().apply(self.name("apply"), same, schema=DDL))

    def window(self) -> None:
        self.windowed(every=self.length())

    def sliding(self) -> None:
        self.windowed(every="10 min", size=self.draw(st.sampled_from(["20 min", "3 h"])))

    def session(self) -> None:
        self.windowed(gap="5 min", longest=self.draw(st.sampled_from([None, "2 h"])))

    def windowed(self, **lengths: str | None) -> None:
        name = self.name("window")
        by = self.draw(st.sampled_from([None, [], "k", ["k", "w"], {"k": "upper(k)"}]))
        window = self.any().window(name, by=by, n="count(*)", v="avg(v)", **lengths)
        if self.draw(st.booleans()):
            window.sink(self.name("sink"), ms.console())

    def merge(self) -> None:
        self.streams.append(self.any().merge(self.name("merge"), self.any()))

    def join(self) -> None:
        left = self.any()
        how = self.draw(st.sampled_from(["inner", "left", "right", "full", "semi"]))
        self.streams.append(
            left.join(
                self.name("join"), self.any(), on=["k", "v", "w"], within=self.length(), how=how
            )
        )

    def lookup(self) -> None:
        table = ms.table(
            "t.csv", schema=self.draw(st.sampled_from(["k string", "k string, v double, w int"]))
        )
        on = list(table.schema.names)
        self.streams.append(self.any().join(self.name("lookup"), table, on=on))

    def distinct(self) -> None:
        self.streams.append(
            self.any().distinct(self.name("distinct"), by=["k"], within=self.length())
        )

    def fold(self) -> None:
        self.streams.append(self.any().fold(self.name("fold"), step, initial=0, output=DDL, by="k"))

    def journal(self) -> None:
        key = self.draw(st.sampled_from([None, "k"]))
        stream = self.any().key_by(self.draw(st.sampled_from([None, "w"])))
        name = self.waiting.pop() if self.waiting else self.name("journal")
        self.streams.append(
            stream.journal(name, key=key, keep_for=self.draw(st.sampled_from([None, "1 d"])))
        )

    def sink(self) -> None:
        targets = [
            ms.parquet("out"),
            ms.jsonl("out"),
            ms.csv("out"),
            ms.console(rows=3),
            ms.memory(),
        ]
        targets.append(ms.postgres("postgresql://me:pw@host/db", table="t"))
        targets.append(ms.outbox("tcp://host:7000", "other.rows", end=True))
        self.any().sink(self.name("sink"), self.draw(st.sampled_from(targets)))

    def build(self, most: int) -> ms.Flow:
        self.source()
        kinds = [
            self.source,
            self.reads,
            self.sql,
            self.window,
            self.sliding,
            self.session,
            self.merge,
            self.join,
        ]
        kinds += [self.lookup, self.distinct, self.journal, self.sink]
        kinds += [self.apply, self.fold] if self.functions else []
        for kind in self.draw(st.lists(st.sampled_from(kinds), max_size=most)):
            kind()
        while self.waiting:
            self.journal()
        self.sink()
        return self.flow


@st.composite
def flows(
    draw: Callable[[st.SearchStrategy], object], *, functions: bool = True, most: int = 14
) -> ms.Flow:
    """Return any flow, with up to so many stages besides the first and the last."""
    return Builder(draw, functions=functions).build(most)
