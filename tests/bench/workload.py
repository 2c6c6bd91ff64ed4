"""What the benchmarks of storage write: deterministic inserts of ten text columns, about 340 bytes a row in Arrow.

The values look like a table of orders: numbers, a UUID, names, a time, a JSON document. Batches have memory of their
own, as a decoder's have: slices of one large table would be cheaper to account for and friendlier to the caches.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage import log_facts
from storage.disk import LocalDisk
from storage.log_facts import LogFacts
from storage.offset import LogOffset
from storage.rows import Integers, Kind, row_schema
from storage.store import FragmentShares, Store

COLUMNS = ("id", "uid", "qty", "status", "amount", "name", "email", "descr", "created_at", "payload")
SCHEMA = row_schema(COLUMNS)

TRANSACTION_ROWS = 1_000
"""Rows of a transaction, where a batch has as many; a smaller batch is one transaction."""

POOL_ROWS = 20_000
"""Different rows; each batch copies its own out of these, with ids of its own."""

TX_STEP = 1_024
"""A commit's LSN above the one before it: above 0, or all would be snapshots."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One batch of whole transactions, and which rows of it go to which log."""

    rows: pa.RecordBatch
    after: LogOffset
    upto: LogOffset
    shares: FragmentShares


def batches(rows_count: int, batch_rows: int, *, start: int = 0) -> Iterator[pa.RecordBatch]:
    """Rows from number `start` on, cut into batches; the last may be shorter."""
    transaction_rows = min(batch_rows, TRANSACTION_ROWS)
    for first in range(start, start + rows_count, batch_rows):
        stop = min(first + batch_rows, start + rows_count)
        yield _batch(np.arange(first, stop), transaction_rows)


def fragments(rows_count: int, batch_rows: int, logs_count: int, *, start: int = 0) -> Iterator[Fragment]:
    """The same batches with their rows dealt out to the logs, one after the other."""
    after = LogOffset(0, 0)
    for rows in batches(rows_count, batch_rows, start=start):
        upto = end_of(rows, -1)
        yield Fragment(rows, after, upto, _dealt(rows, start, logs_count))
        start += rows.num_rows
        after = upto


def end_of(rows: pa.RecordBatch, row: int) -> LogOffset:
    """The end of the transaction that a row belongs to; every transaction has as many rows as the first one."""
    tx = rows.column("tx").to_numpy()
    return LogOffset.aligned(int(tx[row]), int((tx == tx[0]).sum()))


def make_logs(root: str, count: int) -> None:
    """The folders of new logs 1, 2 .. without a sync for each, which would take longer than what is measured."""
    disk = _UnsyncedDisk(root)
    disk.make_folder("logs")
    for number in range(1, count + 1):
        log_facts.write_log(disk, LogFacts(number, f"bench-{number}"))
    disk.close()


def open_logs(store: Store, count: int) -> None:
    """Recover the new logs, so that what follows measures appends alone."""
    for number in range(1, count + 1):
        store.marks(number)


class _UnsyncedDisk(LocalDisk):
    """Leaves it to the caller to sync the file system when all is there."""

    def sync(self, path: str) -> None:
        self._descriptors.forget(path)

    def sync_folder(self, folder: str) -> None:
        pass


def _batch(numbers: Integers, transaction_rows: int) -> pa.RecordBatch:
    tx = (numbers // transaction_rows + 1).astype(np.uint64) * np.uint64(TX_STEP)
    op = (numbers % transaction_rows).astype(np.uint64) * np.uint64(2)
    kind = np.full(len(numbers), int(Kind.INSERT), dtype=np.uint8)
    picked = pa.array(numbers % POOL_ROWS)
    ids = pa.array(numbers).cast(pa.string())
    new = pa.StructArray.from_arrays([ids, *(values.take(picked) for values in _pool())], COLUMNS)
    absent = pa.nulls(len(numbers), pa.binary())
    return pa.RecordBatch.from_arrays([pa.array(tx), pa.array(op), pa.array(kind), absent, new], schema=SCHEMA)


def _dealt(rows: pa.RecordBatch, start: int, logs_count: int) -> FragmentShares:
    """Row number n goes to log n modulo the count."""
    logs = (start + np.arange(rows.num_rows)) % logs_count
    order = np.argsort(logs, kind="stable")
    touched, starts = np.unique(logs[order], return_index=True)
    ends = np.append(starts[1:], rows.num_rows)
    tx = rows.column("tx").to_numpy()
    changes = int((tx == tx[0]).sum())
    return FragmentShares(
        logs=(touched + 1).tolist(),
        rows=order,
        ends=ends.tolist(),
        committed=(ends - starts).tolist(),
        aligned=[LogOffset.aligned(one, changes) for one in tx[order[ends - 1]].tolist()],
    )


@functools.cache
def _pool() -> Sequence[pa.Array]:
    """The values of all columns but the id."""
    rows = zip(*map(_values, range(POOL_ROWS)), strict=True)
    return [pa.array(values, pa.string()) for values in rows]


def _values(row: int) -> tuple[str, ...]:
    digest, other, third = (hashlib.sha256(f"{row}{part}".encode()).hexdigest() for part in "xyz")
    minutes, seconds = divmod(row, 60)
    payload = (
        f'{{"ok": {"true" if row % 2 else "false"}, "w": {row * 0.5}, "sku": "SKU-{row % 9999}", '
        f'"note": "{third[:20]}", "tags": ["a", "b", {row % 13}]}}'
    )
    return (
        f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}",
        str(row % 1_000),
        str(row % 7),
        f"{row * 37 % 1_000_000 / 100:.2f}",
        f"customer {digest[: 4 + row % 20]}",
        f"user{row}@example{row % 50}.com",
        f"{other[:32]} {other[32:]} lorem ipsum"[: 40 + row % 40],
        f"2026-01-{1 + minutes // 1440:02}T{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}.37+00",
        payload,
    )
