"""The patterns that are measured, each as one of ours and as Flink's MATCH_RECOGNIZE.

Flink's are written with care: events that meet no condition are filtered out first, and the gaps
between the blocks forbid the next block's event, so that there is one way to match and nothing
forks. (`A X*? B Y*? C` without that takes many times as long.)
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.patterns_events import KINDS, LATENESS_S

import millstream as ms

MANY = 50


@dataclass(frozen=True, slots=True)
class Sequence:
    """a, then b, then c, each the next that meets its condition."""

    name: str
    a: str
    b: str
    c: str

    @property
    def pattern(self) -> ms.Pattern:
        return (
            ms.Pattern(self.name)
            .begin("a", self.a)
            .followed_by("b", self.b)
            .followed_by("c", self.c)
            .within("300 seconds")
        )

    @property
    def clause(self) -> str:
        return f"""
            (SELECT * FROM events WHERE ({self.a}) OR ({self.b}) OR ({self.c})) MATCH_RECOGNIZE (
                PARTITION BY key ORDER BY at MEASURES A.n AS n1, B.n AS n2, C.n AS n3
                ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
                PATTERN (A X*? B Y*? C) WITHIN INTERVAL '5' MINUTE
                DEFINE A AS {self.a}, X AS NOT ({self.b}), B AS {self.b}, Y AS NOT ({self.c}), C AS {self.c}
            )"""


@dataclass(frozen=True, slots=True)
class Case:
    """One pattern, or several at once, over the events of so many keys.

    Attributes:
        name: What it is called.
        title: What it is.
        keys: How many keys the events have.
        patterns: Ours.
        emit: What comes out, and what Flink's clauses give under the same names.
        clauses: Flink's, one for each pattern.
        only: Which events both see.
    """

    name: str
    title: str
    keys: int
    patterns: tuple[ms.Pattern, ...]
    emit: str
    clauses: tuple[str, ...]
    only: str | None = None

    @property
    def columns(self) -> list[str]:
        names = [part.split(" as ")[-1].strip() for part in self.emit.split(", ")]
        return [*(["pattern"] if len(self.patterns) > 1 else []), *names]

    @property
    def what(self) -> ms.Pattern | ms.Phenomenon:
        return (
            self.patterns[0]
            if len(self.patterns) == 1
            else ms.Phenomenon(self.name, self.patterns, emit=self.emit)
        )


THREE = "key, a.n as n1, b.n as n2, c.n as n3"
PLAIN = Sequence("sequence", "kind = 'A'", "kind = 'B' AND value > 50", "kind = 'C'")


def _plain(name: str, title: str, keys: int) -> Case:
    return Case(name, title, keys, (PLAIN.pattern,), THREE, (PLAIN.clause,))


def _kleene() -> Case:
    pattern = (
        ms.Pattern("kleene")
        .begin("a", "kind = 'A'")
        .next("b", "kind = 'B'")
        .one_or_more()
        .consecutive()
        .greedy()
        .next("c", "kind = 'C'")
        .within("300 seconds")
    )
    clause = """
        (SELECT * FROM events WHERE kind IN ('A', 'B', 'C')) MATCH_RECOGNIZE (
            PARTITION BY key ORDER BY at MEASURES A.n AS n1, COUNT(B.n) AS n2, SUM(B.value) AS total, C.n AS n3
            ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
            PATTERN (A B+ C) WITHIN INTERVAL '5' MINUTE
            DEFINE A AS kind = 'A', B AS kind = 'B', C AS kind = 'C'
        )"""
    emit = "key, a.n as n1, count(b.*) as n2, sum(b.value) as total, c.n as n3"
    return Case(
        "kleene", "A B+ C", 10_000, (pattern,), emit, (clause,), only="kind IN ('A', 'B', 'C')"
    )


def _negation() -> Case:
    pattern = (
        ms.Pattern("negation")
        .begin("a", "kind = 'A'")
        .not_followed_by("b", "kind = 'B' AND value > 50")
        .followed_by("c", "kind = 'C'")
        .within("300 seconds")
    )
    clause = """
        (SELECT * FROM events WHERE kind = 'A' OR (kind = 'B' AND value > 50) OR kind = 'C') MATCH_RECOGNIZE (
            PARTITION BY key ORDER BY at MEASURES A.n AS n1, C.n AS n3
            ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
            PATTERN (A X*? C) WITHIN INTERVAL '5' MINUTE
            DEFINE A AS kind = 'A', X AS kind = 'A', C AS kind = 'C'
        )"""
    return Case(
        "negation", "A, no B, C", 10_000, (pattern,), "key, a.n as n1, c.n as n3", (clause,)
    )


def many(count: int) -> tuple[Sequence, ...]:
    """Return patterns that differ in the kinds of their events and in what they ask of them."""
    kinds = [
        KINDS[number % 10] + KINDS[(number + 3) % 10] + KINDS[(number + 6) % 10]
        for number in range(count)
    ]
    return tuple(
        Sequence(
            f"p{number:02}",
            f"kind = '{a}' AND value > 112",
            f"kind = '{b}' AND value > {50 + number}",
            f"kind = '{c}'",
        )
        for number, (a, b, c) in enumerate(kinds)
    )


def _many() -> Case:
    some = many(MANY)
    patterns, clauses = tuple(one.pattern for one in some), tuple(one.clause for one in some)
    return Case("many", f"{MANY} sequences at once", 10_000, patterns, THREE, clauses)


CASES = {
    case.name: case
    for case in (
        _plain("sequence", "sequence of 3", 10_000),
        _plain("few_keys", "sequence, 100 keys", 100),
        _plain("many_keys", "sequence, 1 M keys", 1_000_000),
        _kleene(),
        _negation(),
        _many(),
    )
}


def flink_events(files: str) -> str:
    """Return the statement that makes files a table of Flink's."""
    return f"""CREATE TABLE events (`key` STRING, kind STRING, `value` DOUBLE, `at` TIMESTAMP(3), n BIGINT,
        WATERMARK FOR `at` AS `at` - INTERVAL '{LATENESS_S}' SECOND)
        WITH ('connector' = 'filesystem', 'path' = 'file://{files}', 'format' = 'csv',
            'csv.disable-quote-character' = 'true')"""


def flink_statements(case: Case, out: str) -> list[str]:
    """Return what Flink is to do with the events: a table and one INSERT into it."""
    types = {"pattern": "STRING", "key": "STRING", "total": "DOUBLE"}
    names = ", ".join(f"`{name}` {types.get(name, 'BIGINT')}" for name in case.columns)
    own = ", ".join(f"`{name}`" for name in case.columns if name != "pattern")
    selects = [
        f"SELECT {_called(case, number)}{own} FROM {clause}"
        for number, clause in enumerate(case.clauses)
    ]
    place = f"'connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv'"
    return [
        f"CREATE TABLE found_{case.name} ({names}) WITH ({place})",
        _quoted(f"INSERT INTO found_{case.name} {' UNION ALL '.join(selects)}"),
    ]


def _called(case: Case, number: int) -> str:
    return f"'{case.patterns[number].name}', " if len(case.patterns) > 1 else ""


def _quoted(sql: str) -> str:
    """Quote the columns that are words of Flink's SQL."""
    for word in ("key", "value", "at"):
        sql = sql.replace(f" {word} ", f" `{word}` ").replace(f".{word})", f".`{word}`)")
    return sql
