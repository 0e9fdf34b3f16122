"""What a stage keeps per key, at a cost that grows with the keys that a batch touches.

Keys are spread over shards. What a shard keeps is named by one small value, its *manifest*, which
whoever owns the shard stores with everything else that belongs to a batch (Spark's state store):

    manifest     touches | run files, oldest first | entries of its own | files that leave
                             |
    run file     hash (sorted) | key | value | time          immutable, mapped; null value: removed

The newest entry of a key counts: that of the manifest itself, else that of the newest run file that
has the key. A batch looks up the keys that it touches, decodes only those, and adds what it changed
to the manifest's own entries. When these are too large they become a run file, and run files are
merged when there are many of about the same size (`tiers`). So a batch reads and writes what it
touches, and each entry is written again a number of times that grows with the logarithm of all.

**A manifest decides.** Run files are written before the manifest that names them, under names that
nobody else uses, and are never changed. An attempt that fails leaves files that no manifest names;
the batch is run again from the manifest before, whose files are all there: a file that a merge
replaced stays for `retain` touches of the shard, and a file that no manifest names is removed only
once it is as old as that. Nothing is removed by age on a clock.

**Expiry** is by event time alone: see `ShardState.commit`.

The room knows nothing of Spark. A storage is an argument.
"""

from millstream.state.files import StateFiles
from millstream.state.manifest import INLINE, NO_TIME, Entry, Manifest, Run
from millstream.state.reading import entries
from millstream.state.shard import ShardState

__all__ = [
    "INLINE",
    "NO_TIME",
    "Entry",
    "Manifest",
    "Run",
    "ShardState",
    "StateFiles",
    "entries",
]
