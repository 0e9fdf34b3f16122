"""Journals as Spark sources, and where results go: each epoch once."""
