"""What the benchmarks of storage write: deterministic inserts of ten text columns, about 340 bytes a row in Arrow.

The values look like a table of orders: numbers, a UUID, names, a time, a JSON document. Batches have memory of their
own, as a decoder's have: slices of one large table would be cheaper to account for and friendlier to the caches.
"""

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage import log_facts
from storage.clocks import Clocks
from storage.disk import LocalDisk, folder_of
from storage.incoming import FragmentShares
from storage.log_facts import LogFacts
from storage.offset import LogOffset
from storage.rows import Integers, Kind, Unsigned, row_schema
from storage.store import Store, StoreOptions

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
    shares: FragmentShares | None
    """None: all of them go to log 1."""


def fragments(rows_count: int, batch_rows: int, logs_count: int) -> Iterator[Fragment]:
    """Rows in batches, dealt out to the logs one after the other; the last batch may be shorter."""
    transaction_rows = min(batch_rows, TRANSACTION_ROWS)
    assert batch_rows % transaction_rows == 0, "a batch is whole transactions"
    after = LogOffset(0, 0)
    for first in range(0, rows_count, batch_rows):
        numbers = np.arange(first, min(first + batch_rows, rows_count))
        tx = (numbers // transaction_rows + 1).astype(np.uint64) * np.uint64(TX_STEP)
        op = (numbers % transaction_rows).astype(np.uint64) * np.uint64(2)
        upto = LogOffset.aligned(int(tx[-1]), transaction_rows)
        shares = _dealt(numbers, tx, transaction_rows, logs_count) if logs_count > 1 else None
        yield Fragment(_batch(numbers, tx, op), after, upto, shares)
        after = upto


def make_logs(root: Path, count: int) -> None:
    """The folders of new logs 1, 2 .. without a sync for each, which would take longer than what is measured."""
    disk = _UnsyncedDisk(root)
    with folder_of(disk):
        for number in range(1, count + 1):
            log_facts.write_log(disk, LogFacts(number, f"bench-{number}"))


def empty_logs(root: Path) -> None:
    """Remove what was written and keep the folders: making ten thousand of them takes seconds."""
    for pattern in ("journal/*", "logs/*/*.segment"):
        for path in root.glob(pattern):
            path.unlink()


def open_store(disk: LocalDisk, clocks: Clocks, logs_count: int, options: StoreOptions | None = None) -> Store:
    """A store that has opened the logs already, so that what follows is appends and flushes alone."""
    store = Store(disk, clocks, options)
    for number in range(1, logs_count + 1):
        store.marks(number)
    return store


class _UnsyncedDisk(LocalDisk):
    """Leaves it to the caller to sync the file system when all is there."""

    def sync(self, path: str) -> None:
        self._descriptors.forget(path)

    def sync_folder(self, folder: str) -> None:
        pass


def _batch(numbers: Integers, tx: Unsigned, op: Unsigned) -> pa.RecordBatch:
    kind = np.full(len(numbers), int(Kind.INSERT), dtype=np.uint8)
    picked = pa.array(numbers % POOL_ROWS)
    ids = pa.array(numbers).cast(pa.string())
    new = pa.StructArray.from_arrays([ids, *(values.take(picked) for values in _pool())], COLUMNS)
    absent = pa.nulls(len(numbers), pa.binary())
    return pa.RecordBatch.from_arrays([pa.array(tx), pa.array(op), pa.array(kind), absent, new], schema=SCHEMA)


def _dealt(numbers: Integers, tx: Unsigned, transaction_rows: int, logs_count: int) -> FragmentShares:
    """Row number n goes to log n modulo the count."""
    logs = numbers % logs_count
    rows = np.argsort(logs, kind="stable")
    touched, starts = np.unique(logs[rows], return_index=True)
    ends = np.append(starts[1:], len(rows))
    return FragmentShares(
        logs=(touched + 1).tolist(),
        rows=rows,
        ends=ends.tolist(),
        committed=(ends - starts).tolist(),
        aligned=[LogOffset.aligned(one, transaction_rows) for one in tx[rows[ends - 1]].tolist()],
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
