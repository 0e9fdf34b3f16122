"""The standard's queries as it has them in Flink's SQL, over files of the events.

Names are this generator's. Where a query of the standard needs what Flink no longer has, or a function in
Java, the text says the same otherwise (q13, q14); answers that change (`CHANGING`) are compared by their last
state.
"""

from __future__ import annotations

from typing import Final

from benchmarks.nexmark.generator import AUCTION_DDL, BID_DDL, PERSON_DDL

#: Queries that Flink's SQL cannot say, and why.
MISSING: Final = {
    "q6": "Flink's OVER windows take no rows that change, as winning bids do until an auction closes",
}
#: Queries whose rows Flink replaces as events come; files cannot take that, so they go to no sink when timed.
CHANGING: Final = ("q4", "q9", "q15", "q16", "q17", "q18", "q19")

#: Of these Flink says that a row replaces the one with its key before it, which it does not take away.
KEYS: Final = {"q9": "id"}

_RANKS: Final = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


def _ranked(counted: str, name: str) -> str:
    parts = [f"count({counted}) AS total_{name}"]
    parts += [
        f"count({counted}) FILTER (WHERE {rule}) AS {rank}_{name}" for rank, rule in _RANKS.items()
    ]
    return ", ".join(parts)


_COUNTS: Final = _ranked("*", "bids")
_DIFFERENT: Final = ", ".join(
    _ranked(f"DISTINCT {column}", f"{column}s") for column in ("bidder", "auction")
)
_DAY: Final = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"
_MINUTE: Final = "DATE_FORMAT(date_time, 'HH:mm')"
_HOPS: Final = """
    SELECT auction, count(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end"""


def _tumbling(kind: str, key: str) -> str:
    return f"""
        SELECT {key}, window_start, window_end
        FROM TABLE(TUMBLE(TABLE {kind}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        GROUP BY {key}, window_start, window_end"""


SQL: Final = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT P.name, P.city, P.state, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id
             WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')""",
    "q4": """SELECT category, AVG(CAST(final AS DOUBLE)) AS final FROM (
                 SELECT MAX(B.price) AS final, A.category FROM auction A, bid B
                 WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires
                 GROUP BY A.id, A.category) GROUP BY category""",
    "q5": f"""SELECT B.auction, B.num, B.window_end FROM ({_HOPS}) AS B
              JOIN (SELECT max(num) AS most, window_start, window_end FROM ({_HOPS})
                    GROUP BY window_start, window_end) AS M
              ON B.window_start = M.window_start AND B.window_end = M.window_end AND B.num >= M.most""",
    "q7": """SELECT B.auction, B.bidder, B.price, B.date_time, B.extra FROM bid B JOIN (
                 SELECT MAX(price) AS most, window_end AS ended
                 FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
                 GROUP BY window_start, window_end) M ON B.price = M.most
             WHERE B.date_time >= M.ended - INTERVAL '10' SECOND AND B.date_time < M.ended""",
    "q8": f"""SELECT P.id, P.name, P.window_start FROM ({_tumbling("person", "id, name")}) P
              JOIN ({_tumbling("auction", "seller")}) A
              ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end""",
    "q9": """SELECT id, item_name, description, initial_bid, reserve, opened, expires, seller, category, extra,
                    bidder, price, bid_at, bid_extra FROM (
                 SELECT A.id, A.item_name, A.description, A.initial_bid, A.reserve, A.date_time AS opened,
                        A.expires, A.seller, A.category, A.extra, B.bidder, B.price, B.date_time AS bid_at,
                        B.extra AS bid_extra,
                        ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.date_time) AS place
                 FROM auction A, bid B
                 WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires)
             WHERE place <= 1""",
    "q10": f"SELECT auction, bidder, price, date_time, extra, {_DAY} AS `day`, {_MINUTE} AS `minute` FROM bid",
    "q11": """SELECT bidder, count(*) AS bid_count, window_start, window_end
              FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
              GROUP BY bidder, window_start, window_end""",
    "q13": """SELECT B.auction, B.bidder, B.price, B.date_time, S.`value` FROM bid B
              JOIN side_input S ON MOD(B.auction, 10000) = S.`key`""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
                     CASE WHEN HOUR(date_time) >= 8 AND HOUR(date_time) <= 18 THEN 'dayTime'
                          WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'nightTime'
                          ELSE 'otherTime' END AS bid_time_type, date_time, extra,
                     CAST(CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS BIGINT) AS c_counts
              FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT {_COUNTS}, {_DIFFERENT}, {_DAY} AS window_start FROM bid GROUP BY {_DAY}""",
    "q16": f"""SELECT channel, max({_MINUTE}) AS `minute`, {_COUNTS}, {_DIFFERENT}
               FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_COUNTS}, min(price) AS min_price, max(price) AS max_price,
                      avg(CAST(price AS DOUBLE)) AS avg_price, sum(price) AS sum_price
               FROM bid GROUP BY auction, {_DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, date_time, extra FROM (
                  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place
                  FROM bid) WHERE place <= 1""",
    "q19": """SELECT auction, bidder, price, channel, url, extra, rank_number FROM (
                  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
                  FROM bid) WHERE rank_number <= 10""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.date_time, B.extra, A.item_name,
                     A.description, A.initial_bid, A.reserve, A.date_time AS opened, A.expires, A.seller,
                     A.category, A.extra AS auction_extra
              FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT * FROM (
                  SELECT auction, bidder, price, channel,
                         CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                              WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                              ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
                  FROM bid)
              WHERE channel_id IS NOT NULL AND channel_id <> ''""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1,
                     SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
}


def tables(files: str, side_input: str, lateness_s: int) -> list[str]:
    """Return the statements that make files tables, and the kinds of events views."""
    kinds = {"person": PERSON_DDL, "auction": AUCTION_DDL, "bid": BID_DDL}
    columns = ", ".join(_types(name, ddl) for name, ddl in kinds.items())
    views = [
        f"CREATE TEMPORARY VIEW {name} AS SELECT {_columns(name, ddl)}, date_time FROM events WHERE kind = {number}"
        for number, (name, ddl) in enumerate(kinds.items())
    ]
    return [
        f"""CREATE TEMPORARY TABLE events (kind INT, {columns}, date_time TIMESTAMP(3),
            WATERMARK FOR date_time AS date_time - INTERVAL '{lateness_s}' SECOND)
            WITH ('connector' = 'filesystem', 'path' = 'file://{files}', 'format' = 'parquet',
                  'parquet.utc-timezone' = 'true')""",
        *views,
        f"""CREATE TEMPORARY TABLE side_input (`key` BIGINT, `value` STRING)
            WITH ('connector' = 'filesystem', 'path' = 'file://{side_input}', 'format' = 'csv')""",
    ]


def _types(kind: str, ddl: str) -> str:
    words = {"long": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP(3)"}
    pairs = (column.split() for column in ddl.split(", "))
    return ", ".join(f"{kind}_{name} {words[word]}" for name, word in pairs)


def _columns(kind: str, ddl: str) -> str:
    names = (column.split()[0] for column in ddl.split(", "))
    return ", ".join(f"{kind}_{name} AS {name}" for name in names)


def job(query: str, out: str, *, kept: bool) -> str:
    """Return the statement that runs a query; what changes goes to no sink, or is kept as JSON."""
    if query not in CHANGING:
        form = f"'connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true'"
    elif kept:
        form = f"'connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'debezium-json'"
    else:
        form = "'connector' = 'blackhole'"
    return f"CREATE TABLE found WITH ({form}) AS {SQL[query]}"
