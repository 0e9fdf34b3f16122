"""The query of the switch in PySpark by hand: `python switch_pyspark.py FOLDER LEAST WINDOW LATENESS`; a line on standard input stops it."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f


def main() -> None:
    folder, least, window, lateness = sys.argv[1], *map(int, sys.argv[2:5])
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[*]").appName("switch")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    events = spark.readStream.schema("k string, amount long, at long").csv(f"{folder}/in")
    timed = events.select("k", "amount", f.timestamp_millis("at").alias("at"))
    big = timed.select(
        "k", "at", f.when(f.col("amount") >= least, f.col("amount")).otherwise(0).alias("big")
    )
    counted = (
        big.withWatermark("at", f"{lateness} seconds")
        .groupBy("k", f.window("at", f"{window} seconds"))
        .agg(f.count("*").alias("n"), f.sum("big").alias("total"))
        .select("k", f.unix_seconds("window.start").alias("start"), "n", "total")
    )
    query = (
        counted.writeStream.format("json")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .outputMode("append")
        .start(f"{folder}/out")
    )
    print("started", flush=True)
    sys.stdin.readline()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
