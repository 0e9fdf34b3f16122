"""Local files for Hadoop that Java gives their permissions itself.

Without its native library, which PySpark does not bring, Hadoop starts a `chmod` process for each
file that it makes: four for a batch without state, more with it, some 5 ms each. Java can do without.
The class that says so is compiled when Spark starts, by the compiler that Spark has for the code that it
generates. If that fails, Hadoop goes on with its own.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

NAME: Final = "millstream.LocalFiles"
_SOURCE: Final = """\
package millstream;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new Raw());
  }

  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) {
        super.setPermission(path, permission);
      } else {
        Files.setPosixFilePermissions(
            pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
      }
    }
  }
}
"""


def use(spark: SparkSession) -> None:
    """Let Spark's Java write local files without other processes, unless it does."""
    if os.name != "posix":
        return
    jvm: Any = spark.sparkContext._jvm
    local = jvm.java.net.URI("file:///")
    files, settings = jvm.org.apache.hadoop.fs.FileSystem, spark.sparkContext._jsc
    try:
        known = files.get(local, settings.hadoopConfiguration())
        if known.getClass().getName() == NAME:
            return
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(_SOURCE)
        ours = jvm.org.apache.hadoop.conf.Configuration(settings.hadoopConfiguration())
        ours.setClassLoader(compiler.getClassLoader())
        ours.set("fs.file.impl", NAME)
        # Whoever asks for local files gets those that Hadoop keeps: closed, they are made again.
        known.close()
        files.get(local, ours)
    except Py4JError:
        _log.debug("Hadoop's own local files are used", exc_info=True)
