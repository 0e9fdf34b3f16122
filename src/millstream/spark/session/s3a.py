"""Spark's own files on S3: what Hadoop needs to know, and the jars that it needs.

PySpark brings Hadoop without its S3 client. That client wants Amazon's SDK, whose bundle has
600 MB; these modules of it have 16 MB, and are enough. Spark fetches them when it starts, unless
MILLSTREAM_S3_JARS names a folder that has them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from millstream.errors import InvalidStorage
from millstream.storage import S3, storage_at

JARS: Final = "MILLSTREAM_S3_JARS"
_SDK: Final = "2.35.4"
#: Hadoop's client alone; what it needs is listed here, not in its bundle.
CLIENT: Final = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
SDK: Final = tuple(
    f"software.amazon.awssdk:{module}:{_SDK}" for module in ("s3", "s3-transfer-manager", "sts")
)
#: The large one, and what PySpark has already.
_LEFT_OUT: Final = (
    "software.amazon.awssdk:bundle",
    "io.netty:*",
    "org.slf4j:slf4j-api",
    "commons-codec:commons-codec",
)
#: Hadoop's names and ours. Spark hides settings of these names where it shows any.
_KEYS: Final = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "token",
}


def s3a_settings(address: str | None) -> dict[str, str]:
    """Return the settings of Spark for checkpoints at an address; none if it is not on S3.

    Keys are not among them: settings stand on the command line of Java, which every user of the
    host can read. See `s3a_keys`.

    Raises:
        InvalidStorage: The folder with the jars is empty.
        StorageForbidden: There are no keys.
    """
    known = _known(address)
    if not known:
        return {}
    hadoop = {"endpoint.region": known["region"], "path.style.access": "true"}
    # A lost answer is asked for again; Spark would wait for minutes by default.
    hadoop |= {"attempts.maximum": "5", "connection.establish.timeout": "5s"}
    if "endpoint" in known:
        hadoop["endpoint"] = known["endpoint"]
    settings = {f"spark.hadoop.fs.s3a.{name}": value for name, value in hadoop.items()}
    return settings | _jars()


def s3a_keys(address: str | None) -> dict[str, str]:
    """Return the settings of Hadoop that Spark gets when it runs: the keys, if there are any.

    Raises:
        StorageForbidden: There are no keys.
    """
    known = _known(address)
    return {f"fs.s3a.{name}": known[ours] for name, ours in _KEYS.items() if ours in known}


def _known(address: str | None) -> dict[str, str]:
    storage = None if address is None else storage_at(address)
    return storage.settings if isinstance(storage, S3) else {}


def _jars() -> dict[str, str]:
    folder = os.environ.get(JARS)
    if folder is None:
        return {
            "spark.jars.packages": ",".join((*CLIENT, *SDK)),
            "spark.jars.excludes": ",".join(_LEFT_OUT),
        }
    found = sorted(str(path.resolve()) for path in Path(folder).glob("*.jar"))
    if not found:
        hint = f"see the guide, Storage; without {JARS}, Spark fetches them"
        raise InvalidStorage(f"{JARS} is {folder}, which has no jars", hint=hint)
    return {"spark.jars": ",".join(found)}
