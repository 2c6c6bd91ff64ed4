"""What logs take and give up: rows, ends of transactions, open transactions that will be sent again. Under the lock.

Invariants:
    a log is in `open_logs` iff it took rows of a transaction that has not ended
    `covered`: the stream was whole up to there, for every log, whether it got rows of it or not
"""

import logging

from storage import layout
from storage.errors import LogFault, named_faults
from storage.limits import LOOSE_SHARES_MAX
from storage.metrics import Metric, Metrics
from storage.offset import BEFORE_ALL, LogOffset
from storage.open_logs import OpenLog, OpenLogs
from storage.open_rows import cut_open_rows
from storage.shape_log import Placement
from storage.share import Share
from storage.write_buffer import WriteBuffer

logger = logging.getLogger(__name__)


class Intake:
    """The way of rows into logs, and the way back."""

    def __init__(self, logs: OpenLogs, buffer: WriteBuffer, metrics: Metrics) -> None:
        self._disk = logs.disk
        self._buffer = buffer
        self._metrics = metrics
        self.covered = BEFORE_ALL
        self.open_logs: dict[int, OpenLog] = {}

    def take(self, opened: OpenLog, share: Share, after: LogOffset, aligned: LogOffset | None = None) -> Placement:
        """Add the rows that a log does not know, and say where they stood; with `aligned`, commit them too."""
        state, source = opened.state, share.source
        if aligned is not None:
            state.check_end(share.last, aligned)  # before anything is taken
        placement = state.place(after, share.first, share.last, self.covered)
        if placement is Placement.BELOW:
            self._metrics.count(Metric.REPLAYED_ROWS, amount=share.count)
            if aligned is not None:
                self.commit(opened, aligned)
            return placement
        if placement is Placement.OVERLAP:
            known = share.rows_up_to(state.known)
            self._metrics.count(Metric.REPLAYED_ROWS, amount=known)
            share = share.without_first(known)
        if placement is Placement.ABOVE:
            self._metrics.count(Metric.GAPS, state.handle)
            logger.warning("log %d (%s): lawful gap after %s", state.number, state.handle, state.upper)
            share.gap = True
        self._buffer.admit(state, share.size, 0 if source.holders else source.size)
        state.take(share, share.at)
        self._buffer.hold(state, share)
        if aligned is None:
            self.open_logs[state.number] = opened
        else:
            state.commit(aligned)  # the buffer need not hear of it: with rows in memory no commit is owed
            self.open_logs.pop(state.number, None)
        return placement

    def commit(self, opened: OpenLog, aligned: LogOffset) -> bool:
        """End the open transaction of a log. False if that was known."""
        state = opened.state
        if not state.commit(aligned):
            return False
        self.open_logs.pop(state.number, None)
        self._buffer.touch(state)
        return True

    def tidy(self, opened: OpenLog) -> None:
        """Join the many small batches that a log got one by one, before they are too many to handle."""
        if opened.state.loose >= LOOSE_SHARES_MAX:
            joined = opened.state.join_loose()
            if joined is not None:
                self._buffer.replace(*joined)

    def drop_open_rows(self) -> dict[int, OpenLog]:
        """Drop open rows from memory and segments; the logs that had some on disk are returned."""
        cut = {}
        for log, opened in self.open_logs.items():
            state = opened.state
            self._buffer.release(state.drop_open_rows())
            if not state.pending:  # else its rows are as old as they were
                self._buffer.forget(state)
            self._buffer.touch(state)
            if state.fault is not None:
                continue  # it takes no more rows, so those on disk can meet no others; the next start removes them
            try:
                if state.has_open_rows_on_disk or opened.files.repairs:
                    with named_faults(layout.log_folder(log)):
                        cut_open_rows(self._disk, opened.files, state.visible)
            except LogFault as fault:
                logger.error("log %d (%s) stopped: %s", log, state.handle, fault)  # noqa: TRY400 - the text says it all
                self._buffer.release(state.poison(fault))
                self._buffer.forget(state)
                continue
            if state.has_open_rows_on_disk:
                cut[log] = opened
        return cut
