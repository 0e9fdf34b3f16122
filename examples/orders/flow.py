"""Orders, those paid within half an hour, and what each customer has spent so far.

    millstream plan examples/orders/flow.py
    millstream run examples/orders/flow.py --until-end
    cat examples/orders/out/spent/*.jsonl

Three groups. "paid" is a journal: it joins orders with payments once, for the two groups that read
it.
"""

import millstream as ms

flow = ms.Flow("orders")

orders = flow.source(
    "orders",
    ms.files("data/orders.jsonl", "order string, customer string, amount int, at timestamp"),
    time="at",
    lateness="1 minute",
    key="customer",
)
payments = flow.source(
    "payments",
    ms.files("data/payments.jsonl", "order string, paid_at timestamp"),
    time="paid_at",
)

# Pairs at most half an hour apart; `at` stays the time, `paid_at` becomes a plain column.
paid = orders.join("pairs", payments, on="order", within="30 minutes").journal("paid")

paid.window("hours", every="1 hour", by=[], orders="count(*)", amount="sum(amount)").sink(
    "hourly", ms.parquet("out/hourly")
)


def spend(spent: int, order: dict) -> tuple[int, dict]:
    """Add an order to what its customer has spent."""
    spent += order["amount"]
    return spent, {**order, "spent": spent}


paid.fold(
    "spending",
    spend,
    initial=0,
    output="order string, customer string, amount int, at timestamp, paid_at timestamp, spent long",
).sink("spent", ms.jsonl("out/spent"))
