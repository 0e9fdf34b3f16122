"""One version of a flow on Spark: its queries, checkpoints and journals."""
