"""The keys of rows: each of them once, and for each row which it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.stages.coding import encode_all

Codes = np.ndarray[Any, np.dtype[np.int64]]

#: Codes of several columns are made one while they have fewer values than this.
_MOST: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class RowKeys:
    """Keys as bytes, and the place among them of each row's."""

    known: list[bytes]
    codes: Codes

    @classmethod
    def of(cls, rows: pa.Table, by: tuple[str, ...]) -> RowKeys:
        """Return the keys that columns of rows make."""
        if not by:
            return cls([b""] if len(rows) else [], np.zeros(len(rows), np.int64))
        columns = [rows.column(name) for name in by]
        if any(pa.types.is_nested(one.type) or pa.types.is_null(one.type) for one in columns):
            return cls._of_values(list(zip(*(one.to_pylist() for one in columns), strict=True)))
        coded = [_coded(one) for one in columns]
        if len(coded) == 1:  # each is encoded once, and comes in the order of the rows
            values = coded[0].dictionary.to_pylist()
            return cls(encode_all([[one] for one in values]), _places(coded[0]))
        codes, size = np.zeros(len(rows), np.int64), 1
        for one in coded:
            codes, size = codes * len(one.dictionary) + _places(one), size * len(one.dictionary)
        if size >= _MOST:
            return cls._of_values(list(zip(*(one.to_pylist() for one in columns), strict=True)))
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
        chosen = [one.take(pa.array(firsts)).to_pylist() for one in columns]
        return cls(encode_all(list(zip(*chosen, strict=True))), codes)

    @classmethod
    def _of_values(cls, values: list[tuple[Any, ...]]) -> RowKeys:
        keys = encode_all(values)
        known = {key: code for code, key in enumerate(dict.fromkeys(keys))}
        return cls(list(known), np.fromiter(map(known.__getitem__, keys), np.int64, len(keys)))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.known.__getitem__, self.codes.tolist())


def _coded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")


def _places(coded: pa.DictionaryArray) -> Codes:
    found: Codes = coded.indices.to_numpy().astype(np.int64)
    return found
