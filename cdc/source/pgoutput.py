"""From the messages of Postgres' output plugin to fragments: `feed` batches of frames, get events in order.

A batch is cut into runs, each of which becomes one fragment. A run ends before a description of a relation and before
a TRUNCATE, which are decoded one by one (they are rare), and where a fragment would grow above its limits. In a run,
everything that there is for each change or transaction is done for all of them at once.

Invariants:
    the events do not depend on how the frames were cut into batches, except for where fragments end
    whatever the bytes are, the result is events or a `SourceError`
    after an error the decoder is not used again, and no event of that batch came out
    one decoder serves one connection: the next one gets a new decoder, and the same `Relations`

Messages of streamed transactions ('S', 'E', 'c', 'A') and of two-phase commit ('b', 'P', 'K', 'r', 'p') come only
when asked for, and nobody asks yet; 'A' comes from Postgres 18 all the same, by its mistake. When somebody asks, a run
of streamed changes is decoded by the same tables of rows, under the numbers that its Commit gives it; fragments stay
what they are.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from cdc.source.errors import MessageTooLarge, ProtocolError
from cdc.source.fragments import (
    Changes,
    Event,
    Fragment,
    LogicalMessage,
    OldTuple,
    RelationChange,
    Transactions,
)
from cdc.source.limits import FRAGMENT_BYTES_MAX, FRAGMENT_CHANGES_MAX, MESSAGE_BYTES_MAX
from cdc.source.lsn import LSN_ZERO, Lsn
from cdc.source.numbers import Bytes, Flags, Integers, take_uint32
from cdc.source.relations import Relations
from cdc.source.rows import DELETE, INSERT, UPDATE, Layout, RowMessages
from cdc.source.single_messages import MESSAGE, ORIGIN, TRUNCATE, read_logical_message, read_origin, read_truncate
from cdc.source.transactions import BEGIN, COMMIT, OpenTransaction, Placed, place
from cdc.source.walsender import CopyBatch, sort_frames

RELATION, TYPE, STREAM_ABORT = map(ord, "RYA")

_STREAM_ABORT_BYTES: Final = 9
"""Tag, transaction, sub-transaction."""

_ROW_BYTES_MIN: Final = 8
"""Tag, relation, what tuple follows, number of columns."""

_IS_ROW: Final = np.zeros(256, np.int64)
_IS_ROW[[INSERT, UPDATE, DELETE]] = 1
_IS_SINGLE: Final = np.zeros(256, np.bool_)
_IS_SINGLE[[ORIGIN, MESSAGE]] = True
_IS_IN_RUN: Final = _IS_SINGLE.copy()
_IS_IN_RUN[[BEGIN, COMMIT, INSERT, UPDATE, DELETE]] = True


class Decoder:
    """The stream of one connection."""

    def __init__(
        self,
        relations: Relations,
        *,
        fragment_changes_max: int = FRAGMENT_CHANGES_MAX,
        fragment_bytes_max: int = FRAGMENT_BYTES_MAX,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        relations.connected()
        self._relations = relations
        self._changes_max = fragment_changes_max
        self._bytes_max = fragment_bytes_max
        self._message_bytes_max = message_bytes_max
        self._layouts: dict[int, Layout] = {}
        self._opened: OpenTransaction | None = None
        self._received = LSN_ZERO
        self._events: list[Event] = []

    @property
    def received(self) -> Lsn:
        """The greatest place of the WAL that the server spoke of: what a status reply says is received."""
        return self._received

    @property
    def in_transaction(self) -> bool:
        """Whether the last transaction waits for its COMMIT."""
        return self._opened is not None

    def feed(self, batch: CopyBatch) -> list[Event]:
        """Decode a batch; nothing of it is held back."""
        frames = sort_frames(batch)
        if len(frames.messages):
            self._decode(frames.messages)
        if frames.keepalive is not None:
            self._events.append(frames.keepalive)
        self._received = max(self._received, frames.received)
        events, self._events = self._events, []
        return events

    def _decode(self, messages: CopyBatch) -> None:
        sizes = messages.ends - messages.starts
        if sizes.min() < 1:
            raise ProtocolError("a message is empty")
        if sizes.max() > self._message_bytes_max:
            raise MessageTooLarge("a message is above the limit", bytes=int(sizes.max()), limit=self._message_bytes_max)
        tags = messages.buffer[messages.starts]
        start = 0
        for index in np.flatnonzero(~_IS_IN_RUN[tags]).tolist():
            self._runs(messages, tags, start, index)
            self._alone(int(tags[index]), _bytes(messages, index))
            start = index + 1
        self._runs(messages, tags, start, len(messages))

    def _alone(self, tag: int, message: bytes) -> None:
        """A message that ends a run."""
        if tag == TYPE:
            self._relations.name_type(message)
        elif tag == TRUNCATE:
            self._truncate(message)
        elif tag == STREAM_ABORT and len(message) == _STREAM_ABORT_BYTES:
            # Postgres 18 tells of some sub-transactions that were rolled back, though it sent nothing of them.
            pass
        elif tag != RELATION:
            raise ProtocolError("a message has an unknown tag, or one that was not asked for", tag=chr(tag))
        elif (change := self._relations.describe(message)) is not None:
            relation, previous = change
            self._layouts[relation.oid] = Layout(relation)
            opened = self._opened
            within = (LSN_ZERO, 0) if opened is None else (Lsn(opened.commit_lsn), opened.xid)
            self._events.append(RelationChange(relation, previous, *within))

    def _runs(self, messages: CopyBatch, tags: Bytes, start: int, stop: int) -> None:
        """Fragments of messages [start, stop), as many as the limits make of them."""
        while start < stop:
            bytes_stop = np.searchsorted(messages.ends, messages.starts[start] + self._bytes_max, side="right")
            end = max(min(start + self._changes_max, stop, int(bytes_stop)), start + 1)
            run = CopyBatch(messages.buffer, messages.starts[start:end], messages.ends[start:end])
            self._run(run, tags[start:end])
            start = end

    def _run(self, run: CopyBatch, tags: Bytes) -> None:
        opened = self._opened
        is_row = _IS_ROW[tags]
        places = place(run, tags, is_row, opened)
        changes = self._changes(run, places, is_row.astype(np.bool_)) if is_row.any() else ()
        origins: dict[int, str] = {}
        found: list[LogicalMessage] = []
        for index in np.flatnonzero(_IS_SINGLE[tags]).tolist():
            inside, ordinal = int(places.inside[index]), int(places.ordinal[index])
            if tags[index] == MESSAGE:
                # Outside, the last transaction that began is over: the message stands before the next one.
                op = 2 * int(places.row_number[index]) * inside
                found.append(read_logical_message(_bytes(run, index), ordinal + 1 - inside, op, inside=bool(inside)))
            elif inside:
                origins[ordinal] = read_origin(_bytes(run, index))
            else:
                raise ProtocolError("an Origin came outside a transaction")
        self._opened = places.open_after
        self._events.append(
            Fragment(
                transactions=_transactions(places, origins),
                begins_open=opened is not None,
                ends_open=self._opened is not None,
                changes=changes,
                messages=tuple(found),
            )
        )

    def _changes(self, run: CopyBatch, places: Placed, is_row: Flags) -> tuple[Changes, ...]:
        """The run's rows, a table for each relation."""
        starts, ends = run.starts[is_row], run.ends[is_row]
        if (ends - starts).min() < _ROW_BYTES_MIN:
            raise ProtocolError("a change is shorter than its head")
        ordinal = places.ordinal[is_row]
        tx = places.commit_lsn[ordinal]
        op = (2 * places.row_number[is_row]).astype(np.uint64)
        oids = take_uint32(run.buffer, starts + 1)
        if (oids == oids[0]).all():
            groups: list[slice | Integers] = [slice(None)]
        else:
            order = np.argsort(oids, kind="stable")
            groups = list(np.split(order, np.flatnonzero(np.diff(oids[order])) + 1))
        changes = []
        for rows in groups:
            layout = self._layout(int(oids[rows][0]))
            table, old_tuple = layout.decode(RowMessages(run.buffer, starts[rows], ends[rows], tx[rows], op[rows]))
            changes.append(Changes(layout.relation, table, ordinal[rows], old_tuple))
        return tuple(changes)

    def _layout(self, oid: int) -> Layout:
        relation = self._relations.get(oid)
        layout = self._layouts.get(oid)
        if layout is None:
            # Described on this connection as it was on an earlier one: no event, but a new decoder.
            layout = self._layouts[oid] = Layout(relation)
        return layout

    def _truncate(self, message: bytes) -> None:
        opened = self._opened
        if opened is None:
            raise ProtocolError("a TRUNCATE came outside a transaction")
        truncate = read_truncate(message, 2 * opened.changes)
        changes = []
        for number, oid in enumerate(truncate.relations):
            layout = self._layout(oid)
            table = layout.truncated(opened.commit_lsn, truncate.op_first + 2 * number)
            old_tuple = np.full(1, OldTuple.NONE, np.uint8)
            changes.append(Changes(layout.relation, table, np.zeros(1, np.int64), old_tuple))
        self._opened = replace(opened, changes=opened.changes + len(changes))
        self._events.append(Fragment(_alone(self._opened), True, True, tuple(changes), truncates=(truncate,)))


def _alone(opened: OpenTransaction) -> Transactions:
    return Transactions(
        xid=np.array([opened.xid], np.uint32),
        commit_lsn=np.array([opened.commit_lsn], np.uint64),
        end_lsn=np.zeros(1, np.uint64),
        commit_time=np.array([opened.commit_time], np.int64),
        changes=np.array([opened.changes], np.uint64),
    )


def _transactions(places: Placed, origins: dict[int, str]) -> Transactions:
    return Transactions(
        xid=places.xid,
        commit_lsn=places.commit_lsn,
        end_lsn=places.end_lsn,
        commit_time=places.commit_time,
        changes=places.changes.astype(np.uint64),
        origins=origins,
    )


def _bytes(messages: CopyBatch, index: int) -> bytes:
    return messages.buffer[messages.starts[index] : messages.ends[index]].tobytes()
