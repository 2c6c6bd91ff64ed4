"""A slow and simple decoder of pgoutput: message by message, value by value. What ours is compared with.

`plain_items` reads frames, `items_of` flattens what our decoder made of them; both give the same list of tuples:

    ("relation", Relation)
    ("begin", xid, commit LSN, commit time, origin)         the origin is None where there is none
    ("change", tx, op, kind, relation, version, new, old, old tuple)
    ("truncate", tx, op, relations, cascade, restart identity)
    ("message", LSN, prefix, content, transactional)
    ("commit", commit LSN, end LSN, changes)
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Any

from cdc.source.errors import NotText, ProtocolError
from cdc.source.fragments import ABSENT, KIND, NEW, OLD, OP, TX, Changes, Event, Fragment, RelationChange
from cdc.source.relations import Column, Relation

Item = tuple[Any, ...]
NOT_SENT = "(not sent)"
POSTGRES_EPOCH = 946_684_800_000_000


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def read(self, size: int) -> bytes:
        if self.at + size > len(self.data):
            raise ProtocolError("short")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, layout: str) -> int:
        return int(struct.unpack(">" + layout, self.read(struct.calcsize(layout)))[0])

    def name(self) -> str:
        end = self.data.find(b"\0", self.at)
        if end < 0:
            raise ProtocolError("endless name")
        text = decode(self.read(end - self.at))
        self.at += 1
        return text

    def end(self) -> None:
        if self.at != len(self.data):
            raise ProtocolError("long")


def decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotText("text") from None


class PlainDecoder:
    def __init__(self) -> None:
        self.items: list[Item] = []
        self.relations: dict[int, Relation] = {}
        self.types: dict[int, str] = {}
        self.transaction: list[int] | None = None
        """Commit LSN and the number of changes."""

    def feed(self, frame: bytes) -> None:
        cursor = Cursor(frame)
        match cursor.read(1):
            case b"w":
                cursor.read(24)
                self.message(cursor)
                cursor.end()
            case b"k":
                cursor.read(17)
                cursor.end()
            case _:
                raise ProtocolError("frame")

    def message(self, cursor: Cursor) -> None:
        match cursor.read(1):
            case b"B":
                if self.transaction is not None:
                    raise ProtocolError("two begins")
                lsn, time, xid = cursor.number("Q"), cursor.number("q"), cursor.number("I")
                self.transaction = [lsn, 0]
                self.items.append(("begin", xid, lsn, wrap(time + POSTGRES_EPOCH), None))
            case b"C":
                cursor.read(1)
                lsn, end = cursor.number("Q"), cursor.number("Q")
                cursor.read(8)
                if lsn != self.inside()[0]:
                    raise ProtocolError("another commit")
                self.items.append(("commit", lsn, end, self.inside()[1]))
                self.transaction = None
            case b"O":
                self.inside()
                cursor.read(8)
                name = cursor.name()
                begin = max(index for index, item in enumerate(self.items) if item[0] == "begin")
                self.items[begin] = (*self.items[begin][:-1], name)
            case b"Y":
                oid = cursor.number("I")
                self.types[oid] = f"{cursor.name() or 'pg_catalog'}.{cursor.name()}"
            case b"R":
                self.relation(cursor)
            case b"I" | b"U" | b"D" as kind:
                self.change(kind, cursor)
            case b"T":
                self.truncate(cursor)
            case b"M":
                flags, lsn, prefix = cursor.number("B"), cursor.number("Q"), cursor.name()
                self.items.append(("message", lsn, prefix, cursor.read(cursor.number("I")), bool(flags & 1)))
            case b"A":
                cursor.read(8)
                cursor.end()
            case _:
                raise ProtocolError("message")

    def inside(self) -> list[int]:
        if self.transaction is None:
            raise ProtocolError("outside")
        return self.transaction

    def relation(self, cursor: Cursor) -> None:
        oid, namespace, name = cursor.number("I"), cursor.name(), cursor.name()
        identity = chr(cursor.read(1)[0])
        columns = []
        for _ in range(cursor.number("H")):
            flags, column = cursor.number("B"), cursor.name()
            type_oid, modifier = cursor.number("I"), cursor.number("i")
            columns.append(Column(column, type_oid, modifier, flags % 2 == 1, self.types.get(type_oid)))
        known = self.relations.get(oid)
        version = known.version if known else 1
        found = Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns), version)
        if found != known:
            found = Relation(oid, namespace or "pg_catalog", name, identity, tuple(columns), version + bool(known))
            self.items.append(("relation", found))
        self.relations[oid] = found

    def change(self, kind: bytes, cursor: Cursor) -> None:
        tx, count = self.inside()
        relation = self.relations.get(cursor.number("I"))
        if relation is None:
            raise ProtocolError("unknown relation")
        new, old, old_tuple = None, None, 0
        what = cursor.read(1)
        if what in b"KO" and kind != b"I":
            old_tuple = what[0]
            old = self.tuple(relation, cursor)
            if NOT_SENT in old:
                raise ProtocolError("old without a value")
            what = b"" if kind == b"D" else cursor.read(1)
        if kind == b"D":
            if old is None:
                raise ProtocolError("delete of what")
            new, old = old, None
            if old_tuple == ord("K"):
                pairs = zip(relation.columns, new or (), strict=True)
                new = tuple(NOT_SENT if value is None and not column.in_identity else value for column, value in pairs)
        elif what == b"N":
            new = self.tuple(relation, cursor)
        else:
            raise ProtocolError("tuple")
        number = " IUD".index(kind.decode())
        self.items.append(("change", tx, 2 * count, number, relation.oid, relation.version, new, old, old_tuple))
        self.inside()[1] += 1

    def tuple(self, relation: Relation, cursor: Cursor) -> tuple[str | None, ...]:
        if cursor.number("H") != len(relation.columns):
            raise ProtocolError("columns")
        values: list[str | None] = []
        for _ in relation.columns:
            match cursor.read(1):
                case b"n":
                    values.append(None)
                case b"u":
                    values.append(NOT_SENT)
                case b"t":
                    values.append(decode(cursor.read(cursor.number("I"))))
                case _:
                    raise ProtocolError("value")
        return tuple(values)

    def truncate(self, cursor: Cursor) -> None:
        tx, count = self.inside()
        relations, options = cursor.number("I"), cursor.number("B")
        if len(cursor.data) - cursor.at != 4 * relations:
            raise ProtocolError("relations")
        oids = tuple(cursor.number("I") for _ in range(relations))
        self.items.append(("truncate", tx, 2 * count, oids, options & 1 != 0, options & 2 != 0))
        for oid in oids:
            if oid not in self.relations:
                raise ProtocolError("unknown relation")
            self.items.append(("change", tx, 2 * self.inside()[1], 4, oid, self.relations[oid].version, None, None, 0))
            self.inside()[1] += 1


def wrap(number: int) -> int:
    """As 64 signed bits."""
    return (number + 2**63) % 2**64 - 2**63


def plain_items(frames: Iterable[bytes]) -> list[Item]:
    decoder = PlainDecoder()
    for frame in frames:
        decoder.feed(frame)
    return decoder.items


def items_of(events: Iterable[Event]) -> list[Item]:
    items: list[Item] = []
    for event in events:
        if isinstance(event, RelationChange):
            items.append(("relation", event.relation))
        elif isinstance(event, Fragment):
            items.extend(_fragment_items(event))
    # An Origin may come in a later fragment than its Begin.
    return [_with_origin(items, index) for index, item in enumerate(items) if item[0] != "origin"]


def _with_origin(items: list[Item], index: int) -> Item:
    item = items[index]
    if item[0] != "begin":
        return item
    end = next((at for at in range(index + 1, len(items)) if items[at][0] == "begin"), len(items))
    names = [found[1] for found in items[index:end] if found[0] == "origin"]
    return (*item, names[-1] if names else None)


def _fragment_items(fragment: Fragment) -> Iterator[Item]:
    transactions = fragment.transactions
    changes: dict[int, list[tuple[tuple[int, int, int], Item]]] = {}
    for table in fragment.changes:
        for ordinal, item in zip(table.transaction.tolist(), _change_items(table), strict=True):
            changes.setdefault(ordinal, []).append(((item[2], 2, 0), item))
    for truncate in fragment.truncates:
        tx = int(transactions.commit_lsn[truncate.transaction])
        options = truncate.cascade, truncate.restart_identity
        item = ("truncate", tx, truncate.op_first, truncate.relations, *options)
        changes.setdefault(truncate.transaction, []).append(((truncate.op_first, 1, 0), item))
    between: dict[int, list[Item]] = {}
    ended = transactions.end_lsn.tolist()
    for number, message in enumerate(fragment.messages):
        item = ("message", message.lsn, message.prefix, message.content, message.transactional)
        if message.inside:
            changes.setdefault(message.transaction, []).append(((message.op, 0, number), item))
        else:
            between.setdefault(message.transaction, []).append(item)
    for index in range(len(transactions)):
        yield from between.pop(index, [])
        if index or not fragment.begins_open:
            facts = transactions.xid, transactions.commit_lsn, transactions.commit_time
            yield ("begin", *(int(fact[index]) for fact in facts))
        if index in transactions.origins:
            yield ("origin", transactions.origins[index])
        yield from (item for _, item in sorted(changes.pop(index, []), key=lambda pair: pair[0]))
        if index < len(transactions) - fragment.ends_open:
            yield ("commit", int(transactions.commit_lsn[index]), ended[index], int(transactions.changes[index]))
    for items in between.values():
        yield from items
    assert not changes, "changes of no transaction"


def _change_items(table: Changes) -> Iterator[Item]:
    relation = table.relation
    rows = table.rows.to_pydict()
    olds = rows.get(OLD, [None] * table.rows.num_rows)
    facts = zip(rows[TX], rows[OP], rows[KIND], rows[NEW], olds, rows[ABSENT], table.old_tuple.tolist(), strict=True)
    for tx, op, kind, new, old, absent, old_tuple in facts:
        values = None if new is None else tuple(new[column.name] for column in relation.columns)
        if absent is not None:
            assert values is not None
            bits = int.from_bytes(absent, "little")
            assert all(value is None or not bits >> at & 1 for at, value in enumerate(values))
            values = tuple(NOT_SENT if bits >> at & 1 else value for at, value in enumerate(values))
        before = None if old is None else tuple(old[column.name] for column in relation.columns)
        yield ("change", tx, op, kind, relation.oid, relation.version, values, before, old_tuple)
