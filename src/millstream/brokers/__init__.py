"""Brokers: how to reach Kafka, its clients, and its errors as ours.

`connection` is data, and part of flows. `clients` makes clients of it, and asks clusters about their
topics. confluent-kafka is an extra: it is loaded when the first client is made.
"""
