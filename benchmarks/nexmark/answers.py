"""What the queries must answer, by DuckDB over a whole file of events at once.

The texts are a second way to say what each query means: none of them shares a line with the flows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

_RANKED: Final = """
    count(*) AS total_bids,
    count(*) FILTER (price < 10000) AS rank1_bids,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
    count(*) FILTER (price >= 1000000) AS rank3_bids"""
_DISTINCT: Final = ", ".join(
    f"""
    count(DISTINCT {column}) AS total_{column}s,
    count(DISTINCT {column}) FILTER (price < 10000) AS rank1_{column}s,
    count(DISTINCT {column}) FILTER (price >= 10000 AND price < 1000000) AS rank2_{column}s,
    count(DISTINCT {column}) FILTER (price >= 1000000) AS rank3_{column}s"""
    for column in ("bidder", "auction")
)
_DAY: Final = "date_trunc('day', date_time)"
#: Each auction with its valid bids, the best one first, and when the last of them came.
_CLOSED: Final = """
    SELECT A.id, A.item_name, A.description, A.initial_bid, A.reserve, A.date_time AS opened, A.expires,
           A.seller, A.category, A.extra, B.bidder, B.price, B.date_time AS bid_at, B.extra AS bid_extra,
           max(B.date_time) OVER (PARTITION BY A.id) AS last_bid
    FROM auction A JOIN bid B ON A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
    QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time) = 1"""
_HOPS: Final = """
    SELECT auction, count(*) AS num, window_end FROM (
        SELECT auction, unnest(generate_series(
            time_bucket(INTERVAL '2 seconds', date_time) + INTERVAL '2 seconds',
            time_bucket(INTERVAL '2 seconds', date_time) + INTERVAL '10 seconds',
            INTERVAL '2 seconds')) AS window_end
        FROM bid) GROUP BY auction, window_end"""

ANSWERS: Final = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": """SELECT auction, bidder, cast(price * 908 AS DECIMAL(23, 0)) AS thousandth, date_time, extra
             FROM bid""",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id
             WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, round(avg(price) OVER past, 3) AS final FROM ({_CLOSED})
              WINDOW past AS (PARTITION BY category ORDER BY last_bid ROWS UNBOUNDED PRECEDING)""",
    "q5": f"""SELECT auction, num, window_end FROM ({_HOPS})
              QUALIFY num = max(num) OVER (PARTITION BY window_end)""",
    "q6": f"""SELECT seller, round(avg(price) OVER past, 3) AS avg_price FROM ({_CLOSED})
              WINDOW past AS (PARTITION BY seller ORDER BY last_bid
                              ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)""",
    "q7": """SELECT auction, bidder, price, date_time, extra FROM bid QUALIFY
             price = max(price) OVER (PARTITION BY time_bucket(INTERVAL '10 seconds', date_time))""",
    "q8": """SELECT DISTINCT P.id, P.name, time_bucket(INTERVAL '10 seconds', P.date_time) AS window_start
             FROM person P JOIN auction A ON P.id = A.seller
             AND time_bucket(INTERVAL '10 seconds', P.date_time) = time_bucket(INTERVAL '10 seconds', A.date_time)""",
    "q9": f"SELECT * EXCLUDE last_bid FROM ({_CLOSED})",
    "q10": """SELECT auction, bidder, price, date_time, extra, strftime(date_time, '%Y-%m-%d') AS day,
                     strftime(date_time, '%H:%M') AS minute FROM bid""",
    "q11": """
        SELECT bidder, count(*) AS bid_count, min(date_time) AS window_start,
               max(date_time) + INTERVAL '10 seconds' AS window_end
        FROM (SELECT *, count(*) FILTER (new) OVER (PARTITION BY bidder ORDER BY date_time) AS session
              FROM (SELECT *, coalesce(date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time)
                                       >= INTERVAL '10 seconds', true) AS new FROM bid))
        GROUP BY bidder, session""",
    "q13": """SELECT auction, bidder, price, date_time, value FROM bid
              JOIN side_input ON mod(auction, 10000) = key""",
    "q14": """SELECT auction, bidder, cast(price * 908 AS DECIMAL(23, 0)) AS thousandth,
                     CASE WHEN hour(date_time) IN (7, 19) THEN 'otherTime'
                          WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
                          ELSE 'nightTime' END AS bid_time_type,
                     date_time, extra, len(regexp_extract_all(extra, 'c')) AS c_counts
              FROM bid WHERE price * 908 > 1000000000 AND price * 908 < 50000000000""",
    "q15": f"SELECT {_RANKED}, {_DISTINCT}, {_DAY} AS window_start FROM bid GROUP BY {_DAY}",
    "q16": f"""SELECT channel, max(strftime(date_time, '%H:%M')) AS minute, {_RANKED}, {_DISTINCT}
               FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_RANKED}, min(price) AS min_price, max(price) AS max_price,
                      round(avg(price), 3) AS avg_price, sum(price)::BIGINT AS sum_price
               FROM bid GROUP BY auction, {_DAY}""",
    "q18": f"""SELECT auction, bidder, price, channel, url, date_time, extra FROM bid QUALIFY
               row_number() OVER (PARTITION BY bidder, auction, {_DAY} ORDER BY date_time DESC) = 1""",
    "q19": f"""SELECT auction, bidder, price, channel, url, extra,
                      row_number() OVER (PARTITION BY auction, {_DAY} ORDER BY price DESC, date_time)
                      AS rank_number
               FROM bid QUALIFY rank_number <= 10""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time, B.extra, A.item_name,
                     A.description, A.initial_bid, A.reserve, A.date_time AS opened, A.expires, A.seller,
                     A.category, A.extra AS auction_extra
              FROM bid B JOIN auction A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT * FROM (
                SELECT auction, bidder, price, channel, coalesce(
                    nullif(list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)), 0)
                        - 1, try_cast(string_split(url, 'channel_id=')[2] AS BIGINT)
                    )::VARCHAR AS channel_id FROM bid)
              WHERE channel_id IS NOT NULL""",
    "q22": """SELECT auction, bidder, price, channel, string_split(url, '/')[4] AS dir1,
                     string_split(url, '/')[5] AS dir2, string_split(url, '/')[6] AS dir3 FROM bid""",
}
#: What is left in the end of answers that change as events come, where it is other than what flows answer.
LAST: Final = {
    "q4": f"SELECT category, round(avg(price), 3) AS final FROM ({_CLOSED}) GROUP BY category",
}
#: Columns of results that are compared in another form than they are written in.
FORMS: Final = {
    "thousandth": "cast(price * 1000 AS DECIMAL(23, 0))",
    "final": "round(final, 3)",
    "avg_price": "round(avg_price, 3)",
}


def differences(
    query: str,
    events: Path,
    side_input: Path,
    out: Path,
    *,
    changes: bool = False,
    key: str | None = None,
) -> tuple[int, list[str]]:
    """Return how many rows a query must answer, and rows that are not in both answers.

    With `changes`, `out` has rows that came and rows that went (Debezium's JSON): those that are left count, with
    a `key` the last of each key.
    """
    with duckdb.connect() as base:
        _name_events(base, events, side_input)
        text = LAST.get(query, ANSWERS[query]) if changes else ANSWERS[query]
        base.execute(f"CREATE TABLE expected AS {text}")
        kinds = {str(row[0]): str(row[1]) for row in base.execute("DESCRIBE expected").fetchall()}
        shown = ", ".join(f"{FORMS[name]} AS {name}" if name in FORMS else name for name in kinds)
        if changes:
            came, went = (_changes(one, kinds, out) for one in ("after", "before"))
            left = f"{came} EXCEPT ALL {went}" if key is None else _last(came, key)
            base.execute(f"CREATE TABLE results AS {left}")
        else:
            base.register("results", _in_utc(_read(out)))
        base.execute(f"CREATE TABLE got AS SELECT {shown} FROM results")
        wrong = [
            f"{word} {row}"
            for word, one, other in (("missing", "expected", "got"), ("extra", "got", "expected"))
            for row in base.execute(f"FROM {one} EXCEPT ALL FROM {other} LIMIT 5").fetchall()
        ]
        (count,) = base.execute("SELECT count(*) FROM expected").fetchone() or (0,)
    return int(count), wrong


def _last(rows: str, key: str) -> str:
    numbered = f"SELECT *, row_number() OVER () AS number FROM ({rows})"
    last = f"row_number() OVER (PARTITION BY {key} ORDER BY number DESC) = 1"
    return f"SELECT * EXCLUDE number FROM ({numbered}) QUALIFY {last}"


def _changes(which: str, kinds: dict[str, str], out: Path) -> str:
    columns = ", ".join(f"({which} ->> '{name}')::{kind} AS {name}" for name, kind in kinds.items())
    read = f"read_json('{out}/*', columns = {{before: 'JSON', after: 'JSON'}}, format = 'nd')"
    return f"SELECT {columns} FROM {read} WHERE {which} <> 'null'"


def _name_events(base: duckdb.DuckDBPyConnection, events: Path, side_input: Path) -> None:
    table = _read(events)
    for kind, name in enumerate(("person", "auction", "bid")):
        rows = table.filter(pc.field("kind") == kind).select([name, "date_time"]).flatten()
        names = [column.removeprefix(f"{name}.") for column in rows.column_names]
        base.register(name, _in_utc(rows.rename_columns(names)))
    base.execute(
        "CREATE TABLE side_input AS SELECT key, value::VARCHAR AS value "
        f"FROM read_csv('{side_input}', header = true)"
    )


def _read(folder: Path) -> pa.Table:
    return ds.dataset(folder, format="parquet", exclude_invalid_files=True).to_table()


def _in_utc(table: pa.Table) -> pa.Table:
    """Return a table with times without a zone, which DuckDB takes as they are."""
    plain = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(plain))
