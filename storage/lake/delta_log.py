"""A table's Delta log: which files it has after each cut. Written through `deltalake`, made durable here (A10).

The table itself says how far it is: each commit carries the application's transaction ("lake", n) for cut n. So a
commit goes: open, ask; equal, somebody has done it; above, this writer lags; below, commit with that same handle and
without retries. After a failure the table is asked, and nothing is assumed.

Invariants:
    a file is synced, and its folder, before a commit names it
    the commit's file is synced, and its folders, before anybody relies on it, whoever wrote it
    versions that hold no cut (columns were added) have the same rows as the one before
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from storage.lake.errors import CommitUnknown, LaggingWriter, LakeDamage, NoVersion
from storage.lake.lake_layout import FOLDERS_AROUND
from storage.lake.limits import CHECKPOINT_COMMITS, COMMIT_ATTEMPTS_MAX
from storage.lake.parquet_files import NewFile, is_whole, sync_file

_APPLICATION: Final = "lake"
_SETTINGS: Final[dict[str, str | None]] = {
    "delta.enableExpiredLogCleanup": "false",  # by age, it would take versions that a lake keeps
    "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
}


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a cut stands in a table's log."""

    version: int
    facts: dict[str, Any]
    """What its writer said of it."""


class DeltaLog:
    """One table. Keeps a handle between commits, and looks again before each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._handle: DeltaTable | None = None
        self._has_place = False
        """The folders around it are on the disk for certain."""

    def open(self) -> DeltaTable | None:
        """The table as it is now; None if there is none."""
        try:
            if self._handle is None:
                self._handle = self._read()
            else:
                self._handle.update_incremental()
        except TableNotFoundError:
            return None
        return self._handle

    def _read(self) -> DeltaTable:
        try:
            return read_table(self.folder)
        except LakeDamage:
            if not self._drop_torn_checkpoints():
                raise
        return read_table(self.folder)

    def _drop_torn_checkpoints(self) -> bool:
        """Whether there were any: a crash came before they were synced. All that they sum up is still there."""
        log = self.folder / "_delta_log"
        torn = [path for path in log.glob("*.checkpoint*.parquet") if not is_whole(path)]
        for path in [log / "_last_checkpoint", *torn] if torn else ():
            path.unlink(missing_ok=True)
        return bool(torn)

    def files(self) -> list[str]:
        """The names of the table's files."""
        handle = self.open()
        return [] if handle is None else sorted(uri.rpartition("/")[2] for uri in handle.file_uris())

    def files_at(self, version: int) -> list[str]:
        """The names of its files as of a version."""
        handle = self.open()
        if handle is not None and handle.version() == version:
            return sorted(uri.rpartition("/")[2] for uri in handle.file_uris())
        return files_at(self.folder, version)

    def schema(self) -> pa.Schema | None:
        """The table's columns; None if there is no table."""
        handle = self.open()
        return None if handle is None else pa.schema(handle.schema().to_arrow())

    def create(self, schema: pa.Schema) -> None:
        """Make the table, or add the columns that it does not have; a twin may do so at the same time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        failure: DeltaError | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            handle, columns = self.open(), Schema.from_arrow(schema)
            known = set() if handle is None else {field.name for field in handle.schema().fields}
            missing = [field for field in columns.fields if field.name not in known]
            if handle is not None and not missing:
                self._sync()
                return
            try:
                if handle is None:
                    DeltaTable.create(self.folder, columns, mode="error", configuration=_SETTINGS)
                else:
                    handle.alter.add_columns(missing)
            except DeltaError as error:
                failure = error
            self._handle = None
        raise CommitUnknown("the table's columns could not be set", folder=str(self.folder)) from failure

    def latest_cut(self) -> int:
        """The last cut that the table has; 0 if it has none."""
        handle = self.open()
        return 0 if handle is None else handle.transaction_version(_APPLICATION) or 0

    def adopted(self, cut: int) -> Committed | None:
        """A cut that the table has already; None if it does not. Raises `LaggingWriter` if it is further."""
        done = self.latest_cut()
        if done > cut:
            raise LaggingWriter(f"the table is at cut {done}, and this writer at {cut}", folder=str(self.folder))
        if done < cut:
            return None
        if (committed := self.known(cut)) is None:
            raise CommitUnknown(f"cut {cut} is in the table, and not in its history", folder=str(self.folder))
        self._sync()
        return committed

    def known(self, cut: int) -> Committed | None:
        """A cut among the latest commits, also if there are newer ones; None if it is not."""
        handle = self.open()
        for entry in [] if handle is None else handle.history(CHECKPOINT_COMMITS):
            if entry.get("cut") == cut:
                return Committed(int(entry["version"]), entry)
        return None

    def commit(
        self,
        cut: int,
        schema: pa.Schema,
        new: Sequence[NewFile],
        gone: Sequence[str] | None,
        facts: dict[str, Any],
        *,
        after: int,
    ) -> Committed:
        """Let the table be what it is after a cut, or see that it is.

        `gone` None: the table has the new files alone from then on, and their columns, of whatever types. `after` is
        the cut that the table had when it was seen what is gone: files of a later one would stay beside the new ones.
        """
        for name in (file.name for file in new):
            if not (self.folder / name).exists():
                raise LakeDamage("a file is gone before it was committed", file=name, folder=str(self.folder))
        failure: Exception | None = None
        for _ in range(COMMIT_ATTEMPTS_MAX):
            if (committed := self.adopted(cut)) is not None:
                return committed
            if (found := self.latest_cut()) == cut:
                continue  # a twin was faster by a moment
            if found != after:
                message = f"the table came from cut {after} to cut {found} while cut {cut} was worked"
                raise LaggingWriter(message, folder=str(self.folder))
            assert self._handle is not None, "the table was created"
            try:
                self._write(self._handle, schema, new, gone, {**facts, "cut": cut})
            except (DeltaError, OSError) as error:
                failure = error
            self._handle = None  # what it says of itself after a commit is of no use
        if (committed := self.adopted(cut)) is not None:
            return committed
        raise CommitUnknown(f"cut {cut} is not in the table after {COMMIT_ATTEMPTS_MAX} attempts") from failure

    def checkpoint(self, version: int) -> None:
        """From time to time, a summary, so that readers need not read all commits."""
        handle = self.open()
        if handle is not None and version % CHECKPOINT_COMMITS == 0 and handle.version() == version:
            handle.create_checkpoint()
            log = self.folder / "_delta_log"
            for path in [*log.glob(f"{version:020d}.checkpoint*"), log / "_last_checkpoint", log]:
                sync_file(path)

    def _write(
        self,
        handle: DeltaTable,
        schema: pa.Schema,
        new: Sequence[NewFile],
        gone: Sequence[str] | None,
        facts: dict[str, Any],
    ) -> None:
        now = int(time.time() * 1000)
        actions: list[Any] = [RemoveAction(name, True, now, partition_values={}) for name in gone or ()]
        actions += [
            AddAction(file.name, file.bytes, {}, now, True, json.dumps({"numRecords": file.rows})) for file in new
        ]
        handle.create_write_transaction(
            actions,
            "append" if gone is not None else "overwrite",
            Schema.from_arrow(schema),
            commit_properties=CommitProperties(
                custom_metadata=facts,
                max_commit_retries=0,
                app_transactions=[Transaction(_APPLICATION, facts["cut"])],
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )

    def _sync(self) -> None:
        """The newest commit that was seen, and its name; those before it were synced before.

        The one before it may be gone: a checkpoint has it, once the oldest kept version is the newest (see `retire`).
        """
        assert self._handle is not None, "whoever relies on a commit has seen it"
        log, newest = self.folder / "_delta_log", self._handle.version()
        try:
            sync_file(log / f"{max(0, newest - 1):020d}.json")
        except FileNotFoundError:
            if not any(log.glob(f"{newest:020d}.checkpoint*")):
                raise
        around = [] if self._has_place else self.folder.parents[:FOLDERS_AROUND]  # whoever made them may have died
        for path in [log / f"{newest:020d}.json", log, self.folder, *around]:
            sync_file(path)
        self._has_place = True


def files_at(folder: Path, version: int) -> list[str]:
    """The names of a table's files as of a version of its log."""
    return sorted(uri.rpartition("/")[2] for uri in read_table(folder, version).file_uris())


def read_table(folder: Path, version: int | None = None) -> DeltaTable:
    """A table as of a version of its log; raises `NoVersion` if its commits went, `LakeDamage` if it cannot be read."""
    try:
        return DeltaTable(folder, version=version)
    except TableNotFoundError:
        if version is None:
            raise
        raise NoVersion("the table no longer has this version: it was retired", folder=str(folder)) from None
    except DeltaError as error:
        reason = str(error).partition("\n")[0]
        raise LakeDamage(f"a table's Delta log cannot be read: {reason}", folder=str(folder)) from error
