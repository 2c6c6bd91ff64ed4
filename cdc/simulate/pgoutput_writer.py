"""The messages of Postgres' output plugin, and the walsender's frames around them, as the server writes them. Pure."""

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final


class Unsent(Enum):
    """In place of a value: it is stored out of line, did not change, and is not sent."""

    UNSENT = b"u"


UNSENT: Final = Unsent.UNSENT

Values = Sequence[str | None]
SentValues = Sequence[str | Unsent | None]


def data_frame(message: bytes, start: int, end: int) -> bytes:
    """A message of the plugin in its frame."""
    return struct.pack(">cQQq", b"w", start, end, 0) + message


def keepalive_frame(wal_end: int, *, wants_reply: bool) -> bytes:
    return struct.pack(">cQqB", b"k", wal_end, 0, wants_reply)


def begin(commit_lsn: int, time: int, xid: int) -> bytes:
    return struct.pack(">cQqI", b"B", commit_lsn, time, xid & 0xFFFF_FFFF)


def commit(commit_lsn: int, end_lsn: int, time: int) -> bytes:
    return struct.pack(">cBQQq", b"C", 0, commit_lsn, end_lsn, time)


def relation(oid: int, name: str, columns: Sequence[tuple[str, int, bool]], identity: str) -> bytes:
    """Columns are name, type, and whether they are part of the identity."""
    head = struct.pack(">cI", b"R", oid) + b"public\0" + name.encode() + b"\0" + identity.encode()
    described = (
        struct.pack(">B", key) + text.encode() + b"\0" + struct.pack(">Ii", kind, -1) for text, kind, key in columns
    )
    return head + struct.pack(">H", len(columns)) + b"".join(described)


def insert(oid: int, new: Values) -> bytes:
    return struct.pack(">cI", b"I", oid) + b"N" + _row(new)


def update(oid: int, new: SentValues, old: Values | None, old_tuple: bytes) -> bytes:
    before = b"" if old is None else old_tuple + _row(old)
    return struct.pack(">cI", b"U", oid) + before + b"N" + _row(new)


def delete(oid: int, old: Values, old_tuple: bytes) -> bytes:
    return struct.pack(">cI", b"D", oid) + old_tuple + _row(old)


def truncate(oids: Sequence[int]) -> bytes:
    return struct.pack(">cIB", b"T", len(oids), 0) + struct.pack(f">{len(oids)}I", *oids)


def _row(values: SentValues) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if isinstance(value, Unsent):
            parts.append(value.value)
            continue
        content = b"" if value is None else value.encode()
        parts.append(b"n" if value is None else struct.pack(">cI", b"t", len(content)) + content)
    return b"".join(parts)
