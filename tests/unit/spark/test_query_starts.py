"""In which order queries start, and wait for their sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.spark.switching.pair import start


@dataclass
class Query:
    """Notes what it is asked for."""

    name: str
    log: list[str]

    def start(self) -> None:
        self.log.append(f"start {self.name}")

    def wait_for_sources(self) -> None:
        self.log.append(f"open {self.name}")


def test_a_query_is_planned_while_the_sources_of_the_one_before_open() -> None:
    log: list[str] = []
    queries: list[Any] = [Query(name, log) for name in "abc"]
    start(*queries)
    assert log == ["start a", "start b", "open a", "start c", "open b", "open c"]


def test_a_query_alone_is_waited_for() -> None:
    log: list[str] = []
    query: Any = Query("a", log)
    start(query)
    assert log == ["start a", "open a"]
