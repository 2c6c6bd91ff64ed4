"""A bank's data folder: tables whose changes are made here, and what each of them holds at each G, by a plain dict.

Money moves between two tables and is never made, so in every consistent version the sum is the same. Values are text,
as in a log; rows of a transaction share one LSN. The folder is written by the store, the catalog and the progress log
themselves; only the server is missing.
"""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.catalog import Catalog
from storage.catalog_records import Born, Ended, Ready, Snapshot, Succeeded
from storage.clocks import Clocks
from storage.disk import LocalDisk
from storage.log_facts import LogFacts
from storage.offset import SNAPSHOT_END, LogOffset
from storage.progress import Incarnation, ProgressLog, ProgressRecord
from storage.rows import Kind, row_schema
from storage.store import Store

COLUMNS: dict[str, tuple[int, int]] = {
    "id": (23, -1),
    "owner": (25, -1),
    "balance": (1700, (12 << 16 | 2) + 4),
    "opened": (1184, -1),
    "note": (25, -1),
}
FIRST_LSN = 1000
Row = dict[str, str | None]
Rows = dict[str, Row]
"""By the key's text."""


class Bank:
    """The writer of a folder, and its memory of what it wrote."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.disk = LocalDisk(folder)
        self.store = Store(self.disk, Clocks(lambda: 0.0), confirmed_tx=0)
        self.catalog = Catalog(self.disk)
        self.progress = ProgressLog(self.disk)
        self.incarnation = Incarnation(7, 1, 1)
        self.lsn = FIRST_LSN
        self.logs: dict[str, int] = {}
        self.columns: dict[str, dict[str, tuple[int, int]]] = {}
        self.ends: dict[int, LogOffset] = {}
        self.rows: dict[str, Rows] = {}
        self.history: dict[int, dict[str, Rows]] = {}
        """All rows as of each confirmed G."""
        self.changes: dict[str, list[tuple[int, int, str]]] = {}

    def close(self) -> None:
        self.disk.close()

    def open_table(self, name: str, rows: Rows, columns: dict[str, tuple[int, int]] | None = None, **more: Any) -> str:
        """A shape that is ready, with these rows in its snapshot."""
        columns = columns or COLUMNS
        log = self.catalog.state.next_log
        handle = f"{name}-{log}"
        listed = [[column, place, *kind] for place, (column, kind) in enumerate(columns.items(), 1)]
        definition = {"version": 1, "columns": listed, "key": ["id"], "log": "full", **more}
        born = Born(handle, log, name, definition, Snapshot(1, 1, (), self.lsn))
        self.catalog.append(born)
        self.store.create_log(LogFacts(log, handle, ("id",)))
        base = self.store.new_base(log)
        content = [
            {"tx": 0, "op": number, "kind": Kind.INSERT, "new": dict(row)}
            for number, chunk in enumerate(chunked(list(rows.values()), 50))
            for row in chunk
        ]
        for number in range(-(-len(rows) // 50)):
            part = [row for row in content if row["op"] == number]
            base.chunk(pa.RecordBatch.from_pylist(part, row_schema([*columns], absent=False)), written_at=0)
        number = base.finish(floor=SNAPSHOT_END, last=SNAPSHOT_END, wire_end=0, written_at=0).number
        self.catalog.append(Ready(handle, number))
        self.logs[name], self.columns[name], self.ends[log] = log, columns, SNAPSHOT_END
        self.rows[name] = {key: dict(row) for key, row in rows.items()}
        self.changes.setdefault(name, [])
        return handle

    def end_table(self, name: str, reason: str) -> str:
        shape = self.catalog.state.named(name)
        assert shape is not None
        self.catalog.append(Ended(shape.handle, LogOffset(self.lsn, 0), reason))
        del self.logs[name], self.rows[name]
        return shape.handle

    def succeed_table(self, name: str, old: str, columns: dict[str, tuple[int, int]], rows: Rows) -> None:
        new = self.open_table(name, rows, columns)
        self.catalog.append(Succeeded(old, new))

    def commit(self, *changes: tuple[str, Kind, Row | None]) -> None:
        """One transaction: changes of tables, in order."""
        self.lsn += 100
        parts: dict[str, list[dict[str, Any]]] = {}
        for number, (name, kind, values) in enumerate(changes):
            parts.setdefault(name, []).append(self._row(name, 2 * number, kind, values))
            self._remember(name, 2 * number, kind, values)
        aligned = LogOffset.aligned(self.lsn, len(changes))
        for name, rows in parts.items():
            log = self.logs[name]
            batch = pa.RecordBatch.from_pylist(rows, row_schema([*self.columns[name]]))
            self.store.append(log, batch, after=self.ends[log], aligned=aligned)
            self.ends[log] = LogOffset(self.lsn, rows[-1]["op"])

    def confirm(self) -> int:
        """Make all durable, and say so."""
        self.lsn += 10
        self.store.flush_all()
        record = ProgressRecord(self.incarnation, self.lsn, self.catalog.state.version, self.lsn * 1000)
        self.progress.append(record)
        self.history[self.lsn] = {
            name: {key: dict(row) for key, row in rows.items()} for name, rows in self.rows.items()
        }
        return self.lsn

    def play(self, transactions: int) -> None:
        """Random transactions: transfers between tables, accounts opened and closed, notes written, and more."""
        names = sorted(self.logs)
        for _ in range(transactions):
            deed = self.random.random()
            name = self.random.choice(names)
            keys = list(self.rows[name])
            if deed < 0.6 and keys and self.rows[names[-1]]:
                self.transfer(name, self.random.choice(keys), names[-1], self.random.choice(list(self.rows[names[-1]])))
            elif deed < 0.75:
                key = str(self.random.randrange(10**6))
                if key not in self.rows[name]:
                    self.commit((name, Kind.INSERT, self.account(name, key)))
            elif deed < 0.85:
                empty = [key for key in keys if self.rows[name][key]["balance"] == "0.00"]
                if empty:
                    self.commit((name, Kind.DELETE, {"id": empty[0]}))
            elif keys:
                note = self.random.choice(["", "x" * 50, None])
                opened = self.random.choice(["infinity", "2024-05-06 07:08:09+00", "0044-03-15 00:00:00+00 BC"])
                key = self.random.choice(keys)
                self.commit((name, Kind.UPDATE, {"id": key, "note": note, "opened": opened}))

    def transfer(self, name: str, key: str, other: str, other_key: str) -> None:
        if (name, key) == (other, other_key):
            return
        cents = self.random.randrange(10_000)
        first, second = self.rows[name][key], self.rows[other][other_key]
        self.commit(
            (name, Kind.UPDATE, {"id": key, "balance": plus(first["balance"], -cents)}),
            (other, Kind.UPDATE, {"id": other_key, "balance": plus(second["balance"], cents)}),
        )

    def account(self, name: str, key: str, balance: str = "0.00") -> Row:
        known: Row = {
            "id": key,
            "owner": f"owner {key}",
            "balance": balance,
            "opened": "2024-01-02 03:04:05.678+00",
            "note": None,
        }
        return {column: known.get(column) for column in self.columns.get(name, COLUMNS)}

    def accounts(self, name: str, count: int, start: int = 0) -> Rows:
        return {str(key): self.account(name, str(key), "100.00") for key in range(start, start + count)}

    def _row(self, name: str, op: int, kind: Kind, values: Row | None) -> dict[str, Any]:
        columns = [*self.columns[name]]
        bits = sum(1 << place for place, column in enumerate(columns) if values is not None and column not in values)
        new = None if values is None else {column: values.get(column) for column in columns}
        absent = bits.to_bytes(-(-len(columns) // 8), "little") if bits else None
        return {"tx": self.lsn, "op": op, "kind": kind, "absent": absent, "new": new}

    def _remember(self, name: str, op: int, kind: Kind, values: Row | None) -> None:
        self.changes[name].append((self.lsn, op, kind.name.lower()))
        if kind is Kind.TRUNCATE:
            self.rows[name].clear()
            return
        assert values is not None
        key = values["id"]
        assert key is not None
        if kind is Kind.DELETE:
            del self.rows[name][key]
        else:
            self.rows[name][key] = self.rows[name].get(key, {}) | values


def plus(balance: str | None, cents: int) -> str:
    assert balance is not None
    total = round(float(balance) * 100) + cents
    return f"{'-' if total < 0 else ''}{abs(total) // 100}.{abs(total) % 100:02d}"


def chunked(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def as_texts(table: pa.Table, columns: dict[str, tuple[int, int]]) -> Rows:
    """A state as the bank remembers it: values as texts, quarantined ones from where they are kept."""
    found: Rows = {}
    for row in table.to_pylist():
        bad = {entry["column"]: entry["text"] for entry in row["_quarantined"] or []}
        texts = {name: bad.get(name, as_text(row[name])) for name in columns}
        key = texts["id"]
        assert key is not None
        assert key not in found, f"key {key} is there twice"
        found[key] = texts
    return found


def as_text(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value)
    if text.endswith("+00:00"):
        text = text.removesuffix("+00:00")
        text = (text.rstrip("0").rstrip(".") if "." in text else text) + "+00"
    return text
