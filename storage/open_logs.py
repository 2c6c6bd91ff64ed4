"""The logs that this process has looked at, and what the journal holds of all. Opened when first used."""

from collections.abc import Iterator
from dataclasses import dataclass

from storage import layout, log_facts, recovery
from storage.disk import Disk
from storage.errors import Misuse, UnknownLog
from storage.journal import JournalIndex
from storage.limits import SEGMENT_BYTES_MAX
from storage.log_facts import LogFacts
from storage.repair import Repair
from storage.segments import LogFiles
from storage.shape_log import Recovered, ShapeLog


@dataclass(slots=True)
class OpenLog:
    """One log: what never changes, where it stands, what it has on disk."""

    facts: LogFacts
    state: ShapeLog
    files: LogFiles


class OpenLogs:
    """The open logs by number. Whoever calls holds the store's lock."""

    def __init__(self, disk: Disk, confirmed_tx: int, segment_bytes_max: int = SEGMENT_BYTES_MAX) -> None:
        self.disk = disk
        self.index = JournalIndex()
        self.found = recovery.Found()
        self._confirmed_tx = confirmed_tx
        self._segment_bytes_max = segment_bytes_max
        self._open: dict[int, OpenLog] = {}
        self._repairs: dict[int, list[Repair]] = {}
        """What is left to be mended of logs whose opening failed."""
        self._half_made: set[int] = set()
        """Logs whose names are not certain: nobody may write to them before their making was repeated."""

    def recover(self, written_at: int) -> None:
        """Bring the journal in order, when the folder is opened."""
        recovery.recover_journal(
            self.disk, self.index, self.found, confirmed_tx=self._confirmed_tx, written_at=written_at
        )

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenLog]:
        return iter(self._open.values())

    def get(self, log: int) -> OpenLog:
        """The log, opened and recovered if this is the first time. Raises `UnknownLog`."""
        found = self._open.get(log)
        if found is None:
            if log in self._half_made:
                raise UnknownLog(f"log {log} was not made yet: an attempt failed")
            facts = log_facts.read_log(self.disk, log)
            repairs = self._repairs.setdefault(log, [])
            opened = recovery.open_log(
                self.disk, facts, self.index, repairs, self.found, confirmed_tx=self._confirmed_tx
            )
            del self._repairs[log]
            found = self._add(facts, opened.files, opened.recovered)
            found.state.fault = opened.fault
        return found

    def peek(self, log: int) -> OpenLog | None:
        """The log if it is open."""
        return self._open.get(log)

    def find(self, log: int) -> OpenLog | None:
        """As `get`, but None for a log that is no more: the journal may still name it."""
        try:
            return self.get(log)
        except UnknownLog:
            return None

    def create(self, facts: LogFacts) -> OpenLog:
        """Make a log and its folder, synced. May be repeated when it failed."""
        if facts.log not in self._half_made and self.disk.exists(layout.log_facts(facts.log)):
            raise Misuse(f"log {facts.log} exists")
        self._half_made.add(facts.log)
        log_facts.write_log(self.disk, facts)
        self._half_made.discard(facts.log)
        return self._add(facts, LogFiles(facts.log, [], []), Recovered())

    def forget(self, log: int) -> OpenLog | None:
        """Let go of a log; its files are the caller's to remove."""
        self.index.drop(log)
        self._half_made.discard(log)
        return self._open.pop(log, None)

    def wire_end(self, opened: OpenLog) -> int:
        """Wire size of what a log has on disk."""
        shares = self.index.shares_of(opened.facts.log)
        return shares[-1].entry.wire_end if shares else opened.files.tail().wire_end

    def _add(self, facts: LogFacts, files: LogFiles, recovered: Recovered) -> OpenLog:
        files.segment_bytes_max = self._segment_bytes_max
        found = OpenLog(facts, ShapeLog(facts.log, facts.handle, facts.mode, recovered), files)
        self._open[facts.log] = found
        return found
