"""Brokers: clients of Kafka, and all that Millstream knows about talking to one."""
