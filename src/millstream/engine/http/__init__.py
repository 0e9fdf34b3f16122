"""The HTTP API of an engine."""
