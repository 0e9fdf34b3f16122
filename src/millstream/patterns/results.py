"""Results: the pieces of outputs, computed from the histories of many matches at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.patterns.batches import Found, Numbers, Truths
from millstream.patterns.outputs import Piece


def compute(
    piece: Piece,
    found: Found,
    value: str | None,
    kind: pa.DataType,
    names: Sequence[str] = (),
    whole: Found | None = None,
) -> pa.Array:
    """Return a piece for every match, as a column of type `kind`, from column `value` of rows.

    `names` are those of the blocks. What lies behind a beginning of a match is looked for in the
    `whole` ones, if there are any.
    """
    if piece.function == "match_number":
        assert found.numbers is not None, "the matches are counted"
        return pa.array(found.numbers, pa.int64()).cast(kind)
    if piece.function == "row":
        return _column(piece, found, value, names).take(pa.array(found.ends - 1)).cast(kind)
    places = np.flatnonzero(_of(found.blocks, piece.blocks))
    owners = np.repeat(np.arange(len(found)), found.ends - found.starts)[places]
    if piece.function == "count" and value is None and not piece.classifies:
        return pa.array(np.bincount(owners, minlength=len(found)), pa.int64()).cast(kind)
    column = _column(piece, found, value, names)
    if piece.function in ("first", "last"):
        if piece.shift > 0 and whole is not None:
            whole_column = _column(piece, whole, value, names)
            return _nth(piece, found, whole_column, (places, owners), whole).cast(kind)
        return _nth(piece, found, column, (places, owners), found).cast(kind)
    return _grouped(piece.function, owners, column.take(pa.array(places)), len(found)).cast(kind)


def _column(piece: Piece, found: Found, value: str | None, names: Sequence[str]) -> pa.Array:
    """Return what a piece is about, for each event of the matches."""
    if piece.classifies:
        blocks = pa.array(found.blocks, pa.int32(), mask=found.blocks < 0)
        return pa.DictionaryArray.from_arrays(blocks, pa.array(names, pa.string())).cast(
            pa.string()
        )
    assert value is not None, "only events are counted without a value"
    return found.rows.column(value).combine_chunks()


def _of(blocks: Numbers, wanted: Collection[int]) -> Truths:
    """Return where blocks are wanted ones; comparing with each is quicker than a set of few."""
    if not wanted or len(wanted) > _FEW:
        return np.isin(blocks, list(wanted))
    found: Truths = np.logical_or.reduce([blocks == one for one in wanted])
    return found


_FEW: Final = 4


def _nth(
    piece: Piece, found: Found, column: pa.Array, own: tuple[Numbers, Numbers], whole: Found
) -> pa.Array:
    """Return the value of one event of each match, counted from the first or last of blocks.

    `own` are the places of the events that count, and the matches that they are of.
    """
    places, owners = own
    first = np.searchsorted(owners, np.arange(len(found)), side="left")
    last = np.searchsorted(owners, np.arange(len(found)), side="right")
    wanted = first + piece.back if piece.function == "first" else last - 1 - piece.back
    there = (wanted >= first) & (wanted < last)
    row = np.where(there, places[np.where(there, wanted, 0)] if len(places) else 0, 0)
    row = row - found.starts + whole.starts + piece.shift
    there &= (row >= whole.starts) & (row < whole.ends)
    return column.take(pa.array(row, mask=~there))


def _grouped(function: str, owners: Numbers, column: pa.Array, count: int) -> pa.Array:
    if function == "list":
        ends = np.searchsorted(owners, np.arange(count + 1), side="left")
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), column)
    name = "mean" if function == "avg" else function
    table = pa.table({"owner": pa.array(owners), "value": column})
    grouped = table.group_by("owner", use_threads=False).aggregate([("value", name)])
    places = np.full(count, -1)
    places[grouped.column("owner").to_numpy()] = np.arange(len(grouped))
    values = grouped.column(f"value_{name}").combine_chunks()
    if function == "max" and pa.types.is_floating(column.type):
        values = _with_nan(values, table)
    result = values.take(pa.array(places, mask=places < 0))
    return result.fill_null(0) if function == "count" else result


def _with_nan(greatest: pa.Array, table: pa.Table) -> pa.Array:
    """Return the greatest numbers of groups; NaN, which Arrow leaves out, is above all others."""
    nans = pa.table({"owner": table["owner"], "nan": pc.is_nan(table["value"])})
    there = nans.group_by("owner", use_threads=False).aggregate([("nan", "any")])
    missing = pa.scalar(float("nan"), greatest.type)
    return pc.if_else(there.column("nan_any").combine_chunks(), missing, greatest)
