"""After a TRUNCATE: an empty base at its place, so that nobody needs what lies before.

Invariants:
    the base is made only when the TRUNCATE is durable: a base may never say more than the log behind it has
    made again after a crash, it is made once: a base that ends there or above is enough
"""

from storage import layout
from storage.bases import Base
from storage.errors import Misuse, named_faults
from storage.offset import SNAPSHOT_END, LogOffset
from storage.open_logs import OpenLog
from storage.retention import whole_base
from storage.rows import OP, TX, column, rows_up_to, wire_sizes
from storage.store import Store
from storage.store_reader import StoreReader


def empty_base(store: Store, log: int, at: LogOffset, *, written_at: int) -> Base | None:
    """Give the log a base without rows that ends at the TRUNCATE. None if it has one already."""
    with store.maintain(log, is_small=True) as opened, named_faults(layout.log_folder(log), log=log):
        with store.lock:
            base, durable = opened.files.base, opened.state.durable
        if durable < at:
            raise Misuse("the TRUNCATE is not durable yet", log=log, at=at, durable=durable)
        if base is not None and base.last >= at:
            return None
        wire_end, is_last = _place(store, opened, at)
        # Where no row follows, the base stands for the whole log up to D.
        floor = durable if is_last else at
        with whole_base(store, opened) as writer:
            return writer.finish(floor=floor, last=at, wire_end=wire_end, written_at=written_at)


def _place(store: Store, opened: OpenLog, at: LogOffset) -> tuple[int, bool]:
    """The wire size of the log up to a row, and whether no durable row follows it."""
    log, files = opened.facts.log, opened.files
    for segment in list(files.segments):
        segment.load(store.disk)
    with store.lock:
        ends = [(ref.header.last, ref.header.wire_end) for one in files.segments for ref in one.refs if ref.header.rows]
        ends += [(one.entry.last, one.entry.wire_end) for one in store.logs.index.shares_of(log) if one.entry.rows]
    last, wire_end = next(((last, wire) for last, wire in ends if last >= at), (SNAPSHOT_END, 0))
    if last < at:
        raise Misuse("the log has no row there", log=log, at=at, last=max((last for last, _ in ends), default=last))
    reader, position = StoreReader(store), at
    while position < last:
        result = reader.read(log, position)
        for rows in result.rows:
            until = rows_up_to(column(rows, TX), column(rows, OP), last)
            wire_end -= int(wire_sizes(rows.slice(0, until)).sum())
        position = result.next
    return wire_end, at == max(last for last, _ in ends)
