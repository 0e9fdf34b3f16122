"""All that touches Spark: the session, journals as sources and sinks, the running groups."""
