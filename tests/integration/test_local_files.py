"""Files that Spark's Java makes on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millstream.spark.session.local_files import NAME

pytestmark = pytest.mark.spark


def test_java_gives_local_files_their_permissions_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    jvm: Any = spark.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop.fs
    path = hadoop.Path(f"file://{tmp_path}/in/it.txt")
    files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    assert files.getClass().getName() == NAME
    files.create(path).close()
    for octal in ("640", "400", "755"):
        files.setPermission(path, hadoop.permission.FsPermission(octal))
        assert oct((tmp_path / "in" / "it.txt").stat().st_mode)[-3:] == octal
    files.setPermission(path.getParent(), hadoop.permission.FsPermission("1777"))
    assert oct((tmp_path / "in").stat().st_mode)[-4:] == "1777"
