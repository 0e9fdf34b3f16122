"""Orders from a Kafka topic, and the large ones into another.

make kafka                              a broker, in one terminal
python examples/kafka/try.py            orders, and what comes out, in another
millstream run examples/kafka/flow.py   the flow, in a third
"""

import millstream as ms

SERVERS = "127.0.0.1:9092"

flow = ms.Flow("large_orders")
orders = flow.source(
    "orders", ms.kafka("orders", "id long, shop string, amount double", servers=SERVERS)
)
large = orders.sql("large", "SELECT id, shop, amount FROM orders WHERE amount > 1000")
large.sink("alerts", ms.kafka_topic("alerts", servers=SERVERS, key="shop", partitions=3))
