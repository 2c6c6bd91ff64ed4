"""Folding: fewer rows that tell the same, in columns; no step is taken row by row.

Both folds sort the rows by (key, position), cut them into groups, and take from each group, for each column, the last
value that was *sent*. They differ in what a group is and in what is left of it:

- `fold_updates` (compaction): a *run* of UPDATEs of one key becomes one UPDATE; all other rows stay as they are.
- `fold_rows` (a new base): a *life* of one key, from its INSERT on, becomes one INSERT if no DELETE ended it.
  `fold_pieces` does the same to a base that is read piece by piece, and so may be larger than memory.

Invariants of `fold_updates`:
    the result's offsets are some of the input's, in their order; a run keeps its last one
    no run has an INSERT, DELETE or TRUNCATE of its key, or a row whose key is not known, between its rows
    NULL is a value and replaces an earlier one; absent is none. Absent in the result = absent in the whole run
    old values are the first row's as a whole, also if it has none: they have no bitmap, so that a mixture of several
        rows' would show what is not known as NULL
    the ledger's ranges are ordered and disjoint; up to a cut outside of them, result and input fold to the same rows
    folding the result again changes nothing

Invariants of `fold_rows`:
    fold_rows(fold_rows(b, x), y) == fold_rows(b, x + y) wherever the left side is defined
    fold_rows(b, x) == fold_rows(b, fold_updates(x)), apart from the place of rows that begin with an UPDATE
    rows stand in the order in which their lives began, so that rows of a base stay as the base had them
    the pieces of `fold_pieces`, one after another, are what `fold_rows` says of the whole base
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from storage.columns import Columns, Kinds, Mask, Picked, PickedStruct, assemble, encode_bitmaps, spans
from storage.errors import CannotFold, InvalidRows
from storage.limits import COMBINE_BYTES_MAX
from storage.rows import (
    ABSENT,
    KIND,
    NEW,
    OLD,
    OP,
    TX,
    XID,
    Integers,
    Kind,
    Unsigned,
    are_ordered,
    column,
    row_schema,
    wire_sizes,
)

LEDGER_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.uint64(), False) for name in ("from_tx", "from_op", "to_tx", "to_op")]
)
"""Ranges of offsets, each from the first row that a run dropped to the row that it kept. Stored: never changes."""


@dataclass(frozen=True, slots=True)
class FoldedUpdates:
    """Rows after compaction. No version may be cut at an offset c with from <= c < to for a range of the ledger."""

    batches: list[pa.RecordBatch]
    ledger: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows by groups: group i is `rows[starts[i] : starts[i + 1]]`, ascending. No group is empty."""

    rows: Integers
    starts: Integers

    @property
    def first(self) -> Integers:
        """The first row of each group."""
        return self.rows[self.starts]

    @property
    def last(self) -> Integers:
        """The last row of each group."""
        stops: Integers = np.append(self.starts[1:], len(self.rows))[: len(self.starts)]
        return self.rows[stops - 1]

    def only(self, wanted: Mask) -> "Groups":
        """Some of the groups."""
        sizes = np.diff(self.starts, append=len(self.rows))
        kept = sizes[wanted]
        return Groups(self.rows[np.repeat(wanted, sizes)], np.cumsum(kept) - kept)

    def last_except(self, rows: Integers, count: int) -> Integers:
        """The last row of each group that is not among `rows`; -1 where all are. `count` is that of all rows."""
        if not len(rows):
            return self.last
        is_out = np.zeros(count, dtype=np.bool_)
        is_out[rows] = True
        found: Integers = np.maximum.reduceat(np.where(is_out[self.rows], -1, self.rows), self.starts)
        return found


def fold_updates(batches: Sequence[pa.RecordBatch], key_columns: Sequence[str]) -> FoldedUpdates:
    """Fold the runs of UPDATEs in rows of a log. With nothing to fold, or no key, the batches are returned as given.

    A row whose key is not known (NULL or not sent in a key column) may be any row, so it ends all runs, as a TRUNCATE.
    """
    filled = _filled(batches)
    if not filled or not key_columns:
        return FoldedUpdates(list(batches), merge_ledgers([]))
    columns = Columns(filled)
    _check_order(columns.tx, columns.op)
    runs = _runs(columns.kind, columns.key_codes(key_columns))
    if not len(runs.starts):
        return FoldedUpdates(list(batches), merge_ledgers([]))
    return FoldedUpdates(_fold_runs(columns, filled[0].schema, runs), _ledger_of(columns, runs))


def fold_rows(
    base_batches: Sequence[pa.RecordBatch], log_batches: Sequence[pa.RecordBatch], key_columns: Sequence[str]
) -> list[pa.RecordBatch]:
    """The rows living after the log's last row, as INSERTs at 0_0 with only the columns tx, op, kind and new.

    An INSERT of a living key replaces the row as a whole; a DELETE of a key that does not live does nothing; an UPDATE
    of one begins a life. Raises `CannotFold` where the log has no key, where a row's key is not known, and where a
    living row has a column that nobody sent in its life.
    """
    if not key_columns:
        raise CannotFold("the log has no key columns")
    base, log = _filled(base_batches), _filled(log_batches)
    if not base and not log:
        return []
    columns = Columns([*base, *log])
    base_count = sum(batch.num_rows for batch in base)
    if (columns.kind[:base_count] != Kind.INSERT).any():
        raise InvalidRows("a base has a row that is not an INSERT")
    _check_order(columns.tx[base_count:], columns.op[base_count:])

    truncates = np.flatnonzero(columns.kind == Kind.TRUNCATE)
    start = int(truncates[-1]) + 1 if len(truncates) else 0
    codes = columns.key_codes(key_columns)
    if len(unknown := np.flatnonzero(codes[start:] < 0)):
        raise CannotFold("a row has no value in a key column", at=columns.offset(start + int(unknown[0])))
    return _fold_lives(columns, _lives(columns.kind, codes, start))


def fold_pieces(
    pieces: Iterable[Sequence[pa.RecordBatch]], log_batches: Sequence[pa.RecordBatch], key_columns: Sequence[str]
) -> Iterator[list[pa.RecordBatch]]:
    """As `fold_rows`, of a base in pieces, none of which has a key of another. One of them is held at a time.

    A key that the log only updates is folded where its row is found. Of one that the log inserts or deletes the base
    says nothing any more: it is told from the log alone, at the end, and so is a key that no piece has.
    """
    log = _filled(log_batches)
    columns = Columns(log) if log else None
    if not key_columns or columns is None or (columns.kind == Kind.TRUNCATE).any():
        for piece in [[]] if log else pieces:
            yield fold_rows(piece, log, key_columns)
        return
    codes = columns.key_codes(key_columns)
    if (codes < 0).any():
        fold_rows([], log, key_columns)  # says which
    is_told, is_found = np.zeros((2, int(codes.max()) + 1), dtype=np.bool_)
    is_told[codes[columns.kind != Kind.UPDATE]] = True
    for piece in pieces:
        if base := _filled(piece):
            both = Columns([*base, *log]).key_codes(key_columns)
            of_base, of_log = np.split(both, [len(both) - columns.count])
            is_here = _among(of_log, of_base)
            is_found[codes[is_here]] = True
            is_gone = _among(of_base, of_log[is_told[codes]])
            yield fold_rows(_rows_where(base, ~is_gone), _rows_where(log, is_here & ~is_told[codes]), key_columns)
    yield fold_rows([], _rows_where(log, (is_told | ~is_found)[codes]), key_columns)


def merge_ledgers(ledgers: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One ledger that forbids the cuts which any of these does: ordered, with ranges that meet or overlap joined.

    Who folds what was folded before merges the new ledger with the earlier ones: their ranges stay forbidden.
    """
    from_tx, from_op, to_tx, to_op = (
        np.concatenate([np.empty(0, np.uint64), *(column(ledger, name) for ledger in ledgers)])
        for name in LEDGER_SCHEMA.names
    )
    # Offsets as ranks, so that a pair is compared as one number.
    tx, op = np.append(from_tx, to_tx), np.append(from_op, to_op)
    order = np.lexsort((op, tx))
    tx, op = tx[order], op[order]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(_differs(tx) | _differs(op))
    begins, ends = ranks[: len(from_tx)], ranks[len(from_tx) :]

    by_begin = np.argsort(begins)
    begins, ends = begins[by_begin], np.maximum.accumulate(ends[by_begin])
    opens = np.ones(len(begins), dtype=np.bool_)
    opens[1:] = begins[1:] > ends[:-1]
    closes = np.append(opens[1:], True)[: len(opens)]
    firsts, lasts = (np.searchsorted(ranks[order], bounds) for bounds in (begins[opens], ends[closes]))
    numbers = (tx[firsts], op[firsts], tx[lasts], op[lasts])
    return pa.RecordBatch.from_arrays([pa.array(values) for values in numbers], schema=LEDGER_SCHEMA)


def chunks_by_wire(batches: Sequence[pa.RecordBatch], chunk_bytes: int) -> list[pa.RecordBatch]:
    """The rows in chunks of about this wire size, one batch each; cut where the cumulated size passes a multiple of it.

    A row is never divided; a chunk has at least one, and is larger than asked by less than its last row. At most
    `COMBINE_BYTES_MAX` counts as the size, since a chunk is one batch.
    """
    filled = _filled(batches)
    if not filled:
        return []
    sizes = np.concatenate([wire_sizes(batch) for batch in filled])
    table = pa.Table.from_batches(filled)
    parts = (table.slice(start, stop - start) for start, stop in spans(sizes, min(chunk_bytes, COMBINE_BYTES_MAX)))
    return [pa.concat_batches(part.to_batches()) for part in parts]


def as_chunk(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    """The rows as chunk `number` of a base: all of them at the offset `0_number`."""
    numbers = {TX: 0, OP: number}
    arrays = [
        pa.array(np.full(batch.num_rows, numbers[field.name], np.uint64)) if field.name in numbers else values
        for field, values in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _runs(kind: Kinds, codes: Integers) -> Groups:
    """The runs of two UPDATEs and more."""
    is_barrier = (kind == Kind.TRUNCATE) | (codes < 0)
    order = np.argsort(codes, kind="stable")
    # Rows on two sides of a barrier have counted a different number of them.
    barriers = np.cumsum(is_barrier)[order]
    is_update = ((kind == Kind.UPDATE) & ~is_barrier)[order]
    begins = _differs(codes[order]) | _differs(barriers)
    begins |= ~is_update
    begins[1:] |= ~is_update[:-1]
    starts = np.flatnonzero(begins)
    return Groups(order, starts).only(np.diff(starts, append=len(order)) > 1)


def _lives(kind: Kinds, codes: Integers, start: int) -> Groups:
    """The present life of each key that has one, from the row `start` on."""
    order = np.argsort(codes[start:], kind="stable") + start
    of_key, kinds = codes[order], kind[order]
    begins = _differs(of_key) | (kinds == Kind.INSERT)
    begins[1:] |= kinds[:-1] == Kind.DELETE
    starts = np.flatnonzero(begins)
    lives = Groups(order, starts)
    is_latest = _differs(of_key[starts][::-1])[::-1]
    return lives.only(is_latest & (kind[lives.last] != Kind.DELETE))


def _fold_runs(columns: Columns, schema: pa.Schema, runs: Groups) -> list[pa.RecordBatch]:
    last = runs.last
    is_kept = np.ones(columns.count, dtype=np.bool_)
    is_kept[runs.rows] = False
    is_kept[last] = True
    kept = np.flatnonzero(is_kept)

    def source(of_runs: Integers) -> Integers:
        rows = np.arange(columns.count)
        rows[last] = of_runs
        return rows[kept]

    sent = [runs.last_except(columns.absent.rows_without(index), columns.count) for index in range(len(columns.names))]
    new = [Picked(values, source(rows)) for values, rows in zip(columns.new, sent, strict=True)]
    picked: dict[str, Picked | PickedStruct] = {NEW: PickedStruct(new, columns.is_valid(NEW)[kept])}
    if XID in schema.names:
        picked[XID] = Picked(columns.xid, kept)
    if ABSENT in schema.names:
        bitmaps = encode_bitmaps((rows < 0 for rows in sent), len(last))
        both = pa.concat_arrays([columns.absent.values, bitmaps])
        picked[ABSENT] = Picked(both, source(np.arange(columns.count, len(both))))
    if OLD in schema.names:
        rows = source(runs.first)
        old = [Picked(columns.text(OLD, index), rows) for index in range(len(columns.names))]
        picked[OLD] = PickedStruct(old, columns.is_valid(OLD)[rows])
    return assemble(schema, {TX: columns.tx[kept], OP: columns.op[kept], KIND: columns.kind[kept]}, picked)


def _fold_lives(columns: Columns, lives: Groups) -> list[pa.RecordBatch]:
    order = np.argsort(lives.first)
    count = len(order)
    new = []
    for index, name in enumerate(columns.names):
        rows = lives.last_except(columns.absent.rows_without(index), columns.count)[order]
        if len(missing := np.flatnonzero(rows < 0)):
            at = columns.offset(int(lives.first[order[missing[0]]]))
            raise CannotFold(f"a living row has no value for {name!r}, since its INSERT is not here", at=at)
        new.append(Picked(columns.new[index], rows))
    zeros = np.zeros(count, dtype=np.uint64)
    inserts = np.full(count, Kind.INSERT, dtype=np.uint8)
    schema = row_schema(columns.names, absent=False)
    picked = {NEW: PickedStruct(new, np.ones(count, dtype=np.bool_))}
    return assemble(schema, {TX: zeros, OP: zeros, KIND: inserts}, picked)


def _ledger_of(columns: Columns, runs: Groups) -> pa.RecordBatch:
    numbers = [values[rows] for rows in (runs.first, runs.last) for values in (columns.tx, columns.op)]
    ranges = pa.RecordBatch.from_arrays([pa.array(values) for values in numbers], schema=LEDGER_SCHEMA)
    return merge_ledgers([ranges])


def _among(codes: Integers, others: Integers) -> Mask:
    """Which of these keys are among the others; one that is not known is not."""
    is_other = np.zeros(max(codes.max(initial=0), others.max(initial=0)) + 2, dtype=np.bool_)
    is_other[others] = True
    is_other[-1] = False
    found: Mask = is_other[codes]
    return found


def _rows_where(batches: Sequence[pa.RecordBatch], wanted: Mask) -> list[pa.RecordBatch]:
    """Some of the rows; batches of which all are wanted stay as they are."""
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    parts = [(batch, wanted[start : start + batch.num_rows]) for batch, start in zip(batches, starts, strict=False)]
    return [batch if mask.all() else batch.filter(pa.array(mask)) for batch, mask in parts]


def _filled(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The batches that have rows; raises `InvalidRows` unless they have one schema."""
    filled = [batch for batch in batches if batch.num_rows]
    if any(not batch.schema.equals(filled[0].schema) for batch in filled):
        raise InvalidRows("the batches have different columns")
    return filled


def _check_order(tx: Unsigned, op: Unsigned) -> None:
    if not are_ordered(tx, op):
        raise InvalidRows("the rows of a log are not in the order of their offsets")


def _differs(values: Integers | Unsigned) -> Mask:
    """Where a value differs from the one before it; the first does."""
    differs = np.ones(len(values), dtype=np.bool_)
    differs[1:] = values[1:] != values[:-1]
    return differs
