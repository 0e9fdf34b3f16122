"""Entries that are added to many encoded mappings at once: by vectors, without decoding them.

A mapping of up to 15 entries is a byte, 80 and their number, and its entries. One more is added by
counting it there, and by what is put behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NONE: Final = 0x80
_MOST: Final = 0x8F

Places = np.ndarray[Any, np.dtype[np.int64]]


def appended(values: pa.Array, more: Mapping[str, Any]) -> tuple[pa.Array, Places]:
    """Return values with more entries, and the places of those that somebody has to look into.

    These are no mappings, have many entries, or may have one of that name; what is returned there
    is of no use.
    """
    if not len(values) or not more:
        return values, np.empty(0, np.int64)
    _, offsets, data = values.buffers()
    begin = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values)]
    content = np.frombuffer(data, np.uint8).copy()
    heads = content[begin].astype(np.int64)
    fits = (heads >= _NONE) & (heads + len(more) <= _MOST)
    for name in more:
        # The bytes of a name may be those of something else, too.
        found = pc.match_substring(values, name.encode())
        fits &= ~found.to_numpy(zero_copy_only=False)
    content[begin[fits]] += len(more)
    counted = pa.Array.from_buffers(
        values.type, len(values), [None, offsets, pa.py_buffer(content)], offset=values.offset
    )
    tail = b"".join(msgspec.msgpack.encode(part) for one in more.items() for part in one)
    end, nothing = (pa.scalar(one, values.type) for one in (tail, b""))
    return pc.binary_join_element_wise(counted, end, nothing), np.flatnonzero(~fits)
