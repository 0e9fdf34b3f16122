"""State that a batch has written which was never committed.

A batch that is run again may keep its rows in another order. Stores that write changes instead of
whole versions (`session.CHANGELOG`) must not find a whole version of the first attempt below changes
of the second.

    state/<operator>/<partition>/[<store>/]<version>.zip|changelog|snapshot|delta
"""

from __future__ import annotations

import re
from typing import Final

from millstream.spark.io.checkpoint import Checkpoint

_VERSION: Final = re.compile(r"(\d+)\.(?:zip|changelog|snapshot|delta)")


def forget_unfinished(checkpoint: Checkpoint) -> bool:
    """Remove what a batch has left that was not committed; return whether there was such a batch.

    Nobody runs the checkpoint yet. Where several hosts may write it, each attempt has file names
    of its own, and they stay.
    """
    committed = checkpoint.last("commits")
    if checkpoint.last("offsets") == committed:
        return False
    last = 0 if committed is None else committed + 1
    for file in [] if checkpoint.address else list((checkpoint.location / "state").rglob("*.*")):
        found = _VERSION.fullmatch(file.name)
        if found is not None and int(found[1]) > last:
            # Hadoop compares with a checksum that is there.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            file.unlink()
    return True
