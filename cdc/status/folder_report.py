"""The status of a data folder without asking its writer: what the files say, and the slot if the server is known.

Whoever holds G is in the writer's memory; here is what was confirmed, and what each log has on disk.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from cdc.source.connections import connect_once
from cdc.source.errors import SourceError
from cdc.source.lsn import format_lsn
from cdc.status.custody import custody_of
from cdc.status.report import custody_facts, slot_facts
from cdc.status.shape_facts import shape_facts
from cdc.status.slot_cost import SlotLook, WalRate
from cdc.status.slot_watch import look_at_slot
from cdc.status.words import cost_words, server_fault_words
from shapes.definition import Definition
from shapes.errors import StreamRecordDamaged
from shapes.registry import Entry
from shapes.stream_record import StreamRecord, read_stream_record
from storage.catalog import CatalogReader
from storage.catalog_records import Life, Shape
from storage.disk import LocalDisk
from storage.errors import StorageError
from storage.folder_reader import FolderReader
from storage.log_counts import LogCounts, counts_in_folder
from storage.progress import ProgressReader, ProgressRecord

_MICROSECONDS: Final = 1_000_000


class FolderFacts:
    """What the files of a folder say."""

    def __init__(self, disk: LocalDisk) -> None:
        self.disk = disk
        catalog, progress = CatalogReader(disk), ProgressReader(disk)
        self.faults: dict[str, Exception] = {}
        """By file: why it cannot be read."""
        self._read("catalog", catalog.refresh)
        self._read("progress", progress.refresh)
        self.record: StreamRecord | None = None
        try:
            self.record = read_stream_record(disk)
        except StreamRecordDamaged as fault:
            self.faults["stream.json"] = fault
        self.shapes: list[Shape] = [
            shape for shape in catalog.state.living() if catalog.state.newest_of(shape.log) is shape
        ]
        self.latest: ProgressRecord | None = progress.history.latest
        self._of_stream = progress.history

    @property
    def g(self) -> int | None:
        """What was confirmed of the present stream."""
        record = self.record
        if record is None or record.identity is None:
            return None
        last = self._of_stream.last_of(record.incarnation)
        return record.start if last is None else last.lsn

    def named(self, shape: str) -> Shape | None:
        """The living shape of a name or handle."""
        return next((one for one in self.shapes if shape in {one.name, one.handle}), None)

    def _read(self, name: str, read: Callable[[], object]) -> None:
        try:
            read()
        except StorageError as fault:
            self.faults[name] = fault


async def folder_status(disk: LocalDisk, database_url: str, slot: str) -> dict[str, Any]:
    """As `StatusDesk.status`, as far as files and the server tell."""
    facts = FolderFacts(disk)
    slot = slot if facts.record is None else facts.record.slot
    look, rate, fault = None, WalRate(), None
    try:
        connection = await connect_once(database_url, "shapelog status")
        try:
            look = await look_at_slot(connection, slot, time.monotonic())
        finally:
            await connection.close()
    except SourceError as refused:
        fault = server_fault_words(database_url, str(refused))
    told = slot_facts(slot, look, rate)
    g = facts.g
    return {
        "state": "unknown",
        "data_dir": str(disk.root),
        "faults": {name: str(error) for name, error in facts.faults.items()},
        "confirmed_flush_lsn": told["confirmed_flush_lsn"],
        "global_flushed_lsn": None if g is None else format_lsn(g),
        "held_by": None,
        "explanation": _g_words(g, facts.latest, look),
        "slot": told
        | {"explanation": fault if look is None else cost_words(told)}
        | custody_facts(custody_of(look, None)),
        "insurance": None,
        "births": [],
        "shapes": [_shape(one, counts) for one, counts in counted(facts)],
    }


def counted(facts: FolderFacts) -> list[tuple[Shape, LogCounts | StorageError]]:
    """Each living shape with what its log has, or why that cannot be told."""
    reader = FolderReader(facts.disk)
    found: list[tuple[Shape, LogCounts | StorageError]] = []
    for shape in facts.shapes:
        try:
            found.append((shape, counts_in_folder(facts.disk, reader, shape.log)))
        except StorageError as fault:
            found.append((shape, fault))
    return found


def _shape(shape: Shape, counts: LogCounts | StorageError) -> dict[str, Any]:
    entry = Entry(shape, Definition.from_json(shape.definition))
    if isinstance(counts, StorageError):
        state = "copying" if shape.life is Life.BORN else "damaged"
        return shape_facts(entry, None) | {"state": state, "fault": str(counts)}
    return shape_facts(entry, counts)


def _g_words(g: int | None, latest: ProgressRecord | None, look: SlotLook | None) -> str:
    if g is None:
        return "nothing was confirmed yet: the folder has no stream"
    at = "" if latest is None or not latest.commit_time else f", of {_moment(latest.commit_time / _MICROSECONDS)}"
    behind = "" if look is None else f"; the server's WAL is {max(look.wal_end - g, 0):,} bytes further"
    return f"G is {format_lsn(g)}{at}{behind}; who holds it, only the running server knows: ask with --url"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
