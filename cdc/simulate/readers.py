"""Readers who follow handles a page at a time, as those are served: each keeps a copy of his shape's rows.

A reader is in no hurry: while he is at some chunk of a base, or at some row of the log, the log is folded, its table is
emptied, the process ends. He begins anew only if he is told to.

Invariants:
    a reader at the end of a log has the rows of the table as of V, whatever handle he came by
    nobody is sent away from the newest handle, nor from an old one whose rows are all there
"""

import contextlib
from dataclasses import dataclass, field
from typing import Final

from cdc.app import App
from cdc.simulate.comparison import apply, same_rows, told_rows
from cdc.simulate.oracle import Expected, Rows, Violation
from shapes.endings import TRUNCATED
from shapes.registry import Entry
from shapes.service import Served, ShapeService
from storage.catalog_records import Life
from storage.errors import AboveUpper, LogFault, Refetch, SharedDiskFault, UnknownLog
from storage.handle_reading import read_handle
from storage.memory_disk import Crashed
from storage.offset import BEFORE_ALL, SNAPSHOT_END, LogOffset
from storage.rows import Kind

LOOKS: Final = (2, 5, 12)
"""At every how many looks each reader asks for a page: who is slow finds that what he was at has gone."""

PAGES_MAX: Final = 200
"""What a reader takes at most to come to the end when all is at rest."""


@dataclass(slots=True)
class Reader:
    """One of them."""

    handle: str | None = None
    after: LogOffset = BEFORE_ALL
    rows: Rows = field(default_factory=dict)
    checked_at: LogOffset | None = None
    """V when the copy was compared last."""

    def begin_anew(self, handle: str | None = None) -> None:
        """All that came before is void."""
        self.handle, self.after, self.checked_at = handle, BEFORE_ALL, None
        self.rows.clear()


class Readers:
    """All of a story."""

    def __init__(self, expected: Expected, *, is_forgetful: bool) -> None:
        self._expected = expected
        self._is_forgetful = is_forgetful
        self._service: ShapeService | None = None
        self._readers = [Reader() for _ in LOOKS]
        self._turn = 0

    def forget(self) -> None:
        """The server has another history."""
        for reader in self._readers:
            reader.begin_anew()

    def look(self, app: App) -> None:
        """Some of them ask for a page."""
        self._meet(app)
        self._turn += 1
        with contextlib.suppress(Crashed):  # it takes a sync to open some logs
            for looks, reader in zip(LOOKS, self._readers, strict=True):
                if self._turn % looks == 0:
                    self._read(reader, self._turn)

    def waits(self, app: App) -> str:
        """Who does not come to the end, though all is at rest; nothing if all do."""
        self._meet(app)
        for number, reader in enumerate(self._readers):
            told = "there is more"
            for _ in range(PAGES_MAX):
                before = reader.handle, reader.after
                told = self._read(reader, number)
                if not told or before == (reader.handle, reader.after):
                    break
            if told:
                return f"a reader of {reader.handle} at {reader.after} is not at the end: {told}"
        return ""

    def _meet(self, app: App) -> None:
        if self._service is None or self._service.house is not app.house:
            self._service = ShapeService(app.house, app.nursery)
            if self._is_forgetful:
                self.forget()  # what was visible and not durable may come again with other numbers

    def _read(self, reader: Reader, choice: int) -> str:
        """One page; nothing if he is at the end then, else what he is told."""
        service = self._service
        assert service is not None, "he has met it"
        if reader.handle is None:
            living = service.house.registry.living()
            if not living:
                return ""
            reader.handle = living[choice % len(living)].handle
        served = self._served(service, reader.handle)
        if served is None:
            self._send_on(service, reader)
            return "the handle is over"
        try:
            return self._page(service, reader, served)
        except (Refetch, UnknownLog):
            self._check_refusal(service, reader, served.entry)
            self._send_on(service, reader)
            return "rows that he needs have gone"
        except (AboveUpper, LogFault, SharedDiskFault) as fault:
            return str(fault)  # he asks again: it is replayed, or mended, or ends

    def _served(self, service: ShapeService, handle: str) -> Served | None:
        served = service.served(handle)
        if served is not None and served.entry.shape.life is Life.REBASED:
            return None if TRUNCATED in service.house.registry.reasons_since(handle) else served
        return served

    def _send_on(self, service: ShapeService, reader: Reader) -> None:
        entry = service.house.registry.replacement(reader.handle or "")
        reader.begin_anew(None if entry is None else entry.handle)

    def _check_refusal(self, service: ShapeService, reader: Reader, entry: Entry) -> None:
        if entry.shape.life is Life.READY and entry.log in {one.log for one in service.house.registry.living()}:
            raise Violation(f"the newest handle, {entry.handle}, sends a reader at {reader.after} away")
        floors = [base.floor for base in service.reader.bases(entry.log) if base.is_complete]
        if entry.shape.life is Life.REBASED and reader.after >= max(floors) > SNAPSHOT_END:
            raise Violation(f"{entry.handle} sends a reader at {reader.after} away, and its base ends at {max(floors)}")

    def _page(self, service: ShapeService, reader: Reader, served: Served) -> str:
        expected = self._expected(served.entry.shape)
        if reader.after < SNAPSHOT_END and service.base_of(served) is None:
            raise Refetch("its base has gone")
        result = read_handle(service.reader, served.log, served.base, reader.after)
        if expected.is_unsound_at(result.visible.tx):
            reader.begin_anew()  # it will end; what it has until then is looked at elsewhere
            return "the shape does not fit its table any more"
        where = f"a reader of {served.handle} (log {served.log}, {served.definition}) at {reader.after}"
        told = list(told_rows(result.rows, served.definition))
        if any(row.kind is Kind.TRUNCATE for row in told):
            return "the table was emptied, and the handle is still there"
        for row in told:
            apply(where, reader.rows, row, served.definition)
        reader.after = result.next
        if not result.at_end or reader.after < SNAPSHOT_END:
            return "there is more"
        if reader.checked_at != result.visible:
            reader.checked_at = result.visible
            same_rows(f"{where} up to {result.visible}", reader.rows, expected.table_at(result.visible))
        return ""
