"""Journals kept in Kafka: `log.py` has the rules."""
