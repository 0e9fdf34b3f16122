"""Send orders to the topic that the flow reads, and print what it writes.

python examples/kafka/try.py [SERVERS]
"""

import json
import sys

from confluent_kafka import Consumer, Producer

SERVERS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": SERVERS})
for number in range(5):
    order = {"id": number, "shop": f"s{number % 2}", "amount": number * 500.0}
    producer.produce("orders", json.dumps(order))
if producer.flush(30):
    sys.exit(f"no answer from {SERVERS}: is the broker running (make kafka)?")
print("sent 5 orders; waiting for the large ones (Ctrl-C ends)")

group = {"group.id": "try", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
reader = Consumer({"bootstrap.servers": SERVERS, **group, "allow.auto.create.topics": True})
reader.subscribe(["alerts"])
try:
    while True:
        record = reader.poll(1)
        if record is not None and record.error() is None:
            print(record.value().decode())
except KeyboardInterrupt:
    reader.close()
