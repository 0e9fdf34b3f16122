"""Schemes as jobs: runtimes and their supervisor, beside stages on Spark."""
