"""One connection's stream out of the slot: every commit at or above its start, in order, from its BEGIN. Pure.

Invariants:
    what is not on the server's disk is not sent
    a keepalive says no more than what was sent: no commit that is still to come starts below it
    a table is described before its first change on the connection
"""

from collections import deque

from cdc.simulate import pgoutput_writer as write
from cdc.simulate.server import Change, Server
from cdc.simulate.tables import Row, Version


class Sender:
    """What the server sends on one connection."""

    def __init__(self, server: Server, start: int) -> None:
        self._server = server
        self._start = start
        self._next = next((n for n, one in enumerate(server.wal) if one.commit_lsn >= start), len(server.wal))
        self._frames: deque[bytes] = deque()
        self._described: dict[int, Version] = {}
        self._reached = start
        self._sends_late = not server.is_forgetful or server.random.random() < 0.5

    @property
    def has_more(self) -> bool:
        """Whether there is something to send but keepalives."""
        wal = self._server.wal
        flushed = self._server.flushed_lsn
        return bool(self._frames) or any(one.is_sent for one in wal[self._next :] if one.end_lsn <= flushed)

    @property
    def is_midway(self) -> bool:
        """Whether some of a transaction was sent, and not all."""
        return bool(self._frames)

    def take(self, count: int) -> list[bytes]:
        """The next frames."""
        found: list[bytes] = []
        while len(found) < count and self.has_more:
            if not self._frames:
                self._encode()
            while self._frames and len(found) < count:
                found.append(self._frames.popleft())
        return found

    def keepalive(self, *, wants_reply: bool) -> bytes:
        """As far as all was sent; in the middle of a transaction that is before it."""
        wal = self._server.wal
        if not self._frames:
            while self._next < len(wal) and not wal[self._next].is_sent:
                self._next += 1
            reached = wal[self._next].commit_lsn if self._next < len(wal) else self._server.insert_lsn
            self._reached = max(self._reached, min(reached, self._server.flushed_lsn))
        return write.keepalive_frame(self._reached, wants_reply=wants_reply)

    def _encode(self) -> None:
        transaction = self._server.wal[self._next]
        self._next += 1
        if not transaction.is_sent:
            return
        at, end = transaction.commit_lsn, transaction.end_lsn
        messages = [write.begin(at, transaction.time, transaction.xid)]
        changes = [one for one in transaction.published if self._sends_late or not one.is_late]
        for number, change in enumerate(changes):
            if change.kind == "T":
                same = [one for one in changes if one.statement == change.statement]
                if changes[number - 1] in same and number:
                    continue
                messages += [text for one in same for text in self._description(one)]
                messages.append(write.truncate([one.relation.oid for one in same]))
            else:
                messages += self._description(change)
                messages.append(_change(change))
        self._frames += (write.data_frame(message, at, at) for message in messages)
        self._frames.append(write.data_frame(write.commit(at, end, transaction.time), end, end))
        self._reached = at

    def _description(self, change: Change) -> list[bytes]:
        """A table is described before its first change on a connection, and the first after an alteration."""
        oid, version = change.relation.oid, change.version
        if self._described.get(oid) is version:
            return []
        self._described[oid] = version
        is_full = version.identity == "f"
        columns = [(one.name, one.type_oid, one.is_key or is_full) for one in version.columns]
        return [write.relation(oid, version.name, columns, version.identity)]


def _change(change: Change) -> bytes:
    oid, version, old, new = change.relation.oid, change.version, change.old, change.new
    is_full = version.identity == "f"
    tag = b"O" if is_full else b"K"
    if old is None:
        assert new is not None, "an INSERT has a row"
        return write.insert(oid, new)
    sent = old if is_full else _key_only(version, old)
    if new is None:
        return write.delete(oid, sent, tag)
    has_old = is_full or version.key_of(old) != version.key_of(new)
    unsent = version.unsent(old, new)
    values = [write.UNSENT if one.name in unsent else value for one, value in zip(version.columns, new, strict=True)]
    return write.update(oid, values, sent if has_old else None, tag)


def _key_only(version: Version, row: Row) -> Row:
    return tuple(value if column.is_key else None for value, column in zip(row, version.columns, strict=True))
