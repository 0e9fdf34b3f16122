"""Deliveries that are tried again, at most three times: a cycle through a journal.

    millstream plan examples/retries/flow.py
    millstream run examples/retries/flow.py --until-end

Nobody is at home the first `absent` times. A parcel that is not handed over goes round once more.
"""

import millstream as ms

flow = ms.Flow("retries")

first = flow.source(
    "deliveries",
    ms.files("data/deliveries.jsonl", "parcel string, absent int, at timestamp"),
    time="at",
).sql("first", "SELECT parcel, absent, 1 AS attempt, at FROM deliveries")

# The journal is written further down, so its columns are given here.
again = flow.reads(
    "failed", "parcel string, absent int, attempt int, at timestamp", time="at", name="again"
)

attempts = first.merge("attempts", again)

attempts.sql(
    "next",
    "SELECT parcel, absent, attempt + 1 AS attempt, at FROM attempts WHERE attempt <= absent AND attempt < 3",
).journal("failed")

attempts.sql(
    "outcome",
    "SELECT parcel, attempt, attempt > absent AS delivered, at FROM attempts WHERE attempt > absent OR attempt = 3",
).sink("outcomes", ms.jsonl("out/outcomes"))
