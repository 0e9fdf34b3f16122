"""The stages of a group as one Spark DataFrame: a file per kind."""
