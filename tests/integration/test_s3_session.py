"""Keys of S3 in Spark: Hadoop has them, and nothing shows them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from millstream.spark.session.s3a import s3a_keys
from millstream.spark.session.session import hide

pytestmark = pytest.mark.spark


def test_hadoop_gets_the_keys_and_spark_shows_no_setting_of_such_a_name(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")):
        monkeypatch.setenv(f"AWS_{name}", f"zebra-{number}")
    keys = s3a_keys("s3://bucket/prefix")
    assert len(keys) == 3
    hide(spark, keys)
    # What streaming queries, and their executors, get.
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    assert {name: hadoop.get(name) for name in keys} == keys
    assert "zebra-" not in str(spark.sql("SET").collect())
    assert "zebra-" not in str(spark.sparkContext.getConf().getAll())
    # If somebody gives them as settings nevertheless, Spark hides them by their names.
    for name, value in keys.items():
        spark.conf.set(f"spark.hadoop.{name}", value)
    try:
        shown = str(spark.sql("SET").collect())
        assert "fs.s3a.secret.key" in shown
        assert "zebra-" not in shown
    finally:
        for name in keys:
            spark.conf.unset(f"spark.hadoop.{name}")
