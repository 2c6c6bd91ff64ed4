"""Messages of pgoutput, written as Postgres writes them; and streams of them, made up by Hypothesis."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import strategies as st

UNCHANGED = object()
Values = list[str | object | None]


def data_frame(message: bytes, lsn: int = 1) -> bytes:
    return struct.pack(">cQQq", b"w", lsn, lsn, 0) + message


def keepalive_frame(wal_end: int, *, wants_reply: bool = False) -> bytes:
    return struct.pack(">cQqB", b"k", wal_end, 0, wants_reply)


def begin(commit_lsn: int, time: int, xid: int) -> bytes:
    return struct.pack(">cQqI", b"B", commit_lsn, time, xid)


def commit(commit_lsn: int, end_lsn: int, time: int) -> bytes:
    return struct.pack(">cBQQq", b"C", 0, commit_lsn, end_lsn, time)


def origin(name: str) -> bytes:
    return b"O" + bytes(8) + name.encode() + b"\0"


def type_message(oid: int, namespace: str, name: str) -> bytes:
    return struct.pack(">cI", b"Y", oid) + namespace.encode() + b"\0" + name.encode() + b"\0"


def relation(oid: int, name: str, columns: list[tuple[str, int, bool]], identity: str = "d") -> bytes:
    """Columns are name, type, and whether in the identity."""
    head = struct.pack(">cI", b"R", oid) + b"public\0" + name.encode() + b"\0" + identity.encode()
    described = (struct.pack(">B", key) + n.encode() + b"\0" + struct.pack(">Ii", kind, -1) for n, kind, key in columns)
    return head + struct.pack(">H", len(columns)) + b"".join(described)


def tuple_data(values: Values) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, str):
            parts.append(struct.pack(">cI", b"t", len(value.encode())) + value.encode())
        else:
            parts.append(b"u")
    return b"".join(parts)


def insert(oid: int, new: Values) -> bytes:
    return struct.pack(">cI", b"I", oid) + b"N" + tuple_data(new)


def update(oid: int, new: Values, old: Values | None = None, old_tuple: bytes = b"O") -> bytes:
    before = b"" if old is None else old_tuple + tuple_data(old)
    return struct.pack(">cI", b"U", oid) + before + b"N" + tuple_data(new)


def delete(oid: int, old: Values, old_tuple: bytes = b"O") -> bytes:
    return struct.pack(">cI", b"D", oid) + old_tuple + tuple_data(old)


def truncate(oids: list[int], options: int = 0) -> bytes:
    return struct.pack(">cIB", b"T", len(oids), options) + struct.pack(f">{len(oids)}I", *oids)


def logical_message(prefix: str, content: bytes, *, transactional: bool, lsn: int = 7) -> bytes:
    head = struct.pack(">cBQ", b"M", transactional, lsn)
    return head + prefix.encode() + b"\0" + struct.pack(">I", len(content)) + content


def copy_data(frames: Iterable[bytes]) -> bytes:
    """The frames as they travel on the connection."""
    return b"".join(b"d" + struct.pack(">I", len(frame) + 4) + frame for frame in frames)


TEXTS = st.one_of(
    st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
    st.sampled_from(["", "NaN", "-infinity", "0044-03-15 BC", "{1,NULL}", '("a b",)', "\\x00ff", "d\x01\x01w" * 3]),
)


@dataclass
class Described:
    oid: int
    columns: list[tuple[str, int, bool]] = field(default_factory=list)


@dataclass
class StreamMaker:
    """Draws the messages of a legal stream one after the other."""

    draw: st.DrawFn
    tables: dict[int, Described] = field(default_factory=dict)
    messages: list[bytes] = field(default_factory=list)
    lsn: int = 1000

    def values(self, oid: int, *, unchanged: bool) -> Values:
        choices = [TEXTS, st.none(), *([st.just(UNCHANGED)] if unchanged else [])]
        return [self.draw(st.one_of(choices)) for _ in self.tables[oid].columns]

    def describe(self, oid: int) -> None:
        names = self.draw(st.lists(st.text("abcdé", min_size=1, max_size=3), max_size=4, unique=True))
        kinds = st.tuples(st.sampled_from([23, 25, 90_000]), st.booleans())
        self.tables[oid] = Described(oid, [(name, *self.draw(kinds)) for name in names])
        if self.draw(st.booleans()):
            self.messages.append(type_message(90_000, self.draw(st.sampled_from(["", "own"])), "mood"))
        self.messages.append(relation(oid, f"t{oid}", self.tables[oid].columns, self.draw(st.sampled_from("dnfi"))))

    def change(self) -> None:
        oid = self.draw(st.integers(1, 3))
        what = self.draw(st.sampled_from("RIIIUUUDDTM"))
        if oid not in self.tables or what == "R":
            self.describe(oid)
        tag = self.draw(st.sampled_from([b"K", b"O"]))
        match what:
            case "I":
                self.messages.append(insert(oid, self.values(oid, unchanged=False)))
            case "U":
                old = self.values(oid, unchanged=False) if self.draw(st.booleans()) else None
                self.messages.append(update(oid, self.values(oid, unchanged=True), old, tag))
            case "D":
                self.messages.append(delete(oid, self.values(oid, unchanged=False), tag))
            case "T":
                oids = self.draw(st.lists(st.sampled_from(sorted(self.tables)), unique=True))
                self.messages.append(truncate(oids, self.draw(st.integers(0, 3))))
            case "M":
                self.message(transactional=True)

    def message(self, *, transactional: bool) -> None:
        content = self.draw(st.binary(max_size=5))
        self.messages.append(logical_message(self.draw(TEXTS), content, transactional=transactional))

    def transaction(self) -> None:
        self.lsn += self.draw(st.integers(1, 2**40))
        time = self.draw(st.integers(-(2**62), 2**62))
        self.messages.append(begin(self.lsn, time, self.draw(st.integers(0, 2**32 - 1))))
        if self.draw(st.integers(0, 9)) == 0:
            self.messages.append(origin("elsewhere"))
        for _ in range(self.draw(st.integers(0, 6))):
            self.change()
        self.messages.append(commit(self.lsn, self.lsn + 48, time))


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """The frames of a legal stream, from the start of a connection; it may stop anywhere."""
    maker = StreamMaker(draw)
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.integers(0, 5)) == 0:
            maker.message(transactional=False)
        maker.transaction()
    kept = draw(st.integers(0, 3))
    frames = [data_frame(message, 10 * number) for number, message in enumerate(maker.messages, 1)]
    if kept == 0:
        frames = frames[: draw(st.integers(0, len(frames)))]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(frames)))
        frames.insert(place, keepalive_frame(10 * place, wants_reply=draw(st.booleans())))
    return frames


@st.composite
def cuts(draw: st.DrawFn, frames: list[bytes]) -> list[list[bytes]]:
    """The same frames in batches."""
    places = sorted(draw(st.lists(st.integers(0, len(frames)), max_size=6)))
    pairs = zip([0, *places], [*places, len(frames)], strict=True)
    return [frames[start:stop] for start, stop in pairs]


@st.composite
def damaged(draw: st.DrawFn, frames: list[bytes]) -> list[bytes]:
    """The frames with some bytes overwritten, dropped or added, or frames lost."""
    frames = list(frames)
    for _ in range(draw(st.integers(1, 3))):
        if not frames:
            break
        index = draw(st.integers(0, len(frames) - 1))
        frame = bytearray(frames[index])
        at = draw(st.integers(0, max(len(frame) - 1, 0)))
        match draw(st.sampled_from(["overwrite", "drop", "add", "lose"])):
            case "overwrite" if frame:
                frame[at] = draw(st.one_of(st.integers(0, 255), st.sampled_from(list(b"\0\xff\x01KONtnuIUDTR"))))
            case "drop":
                del frame[at : at + draw(st.integers(1, 4))]
            case "add":
                frame[at:at] = draw(st.binary(min_size=1, max_size=4))
            case _:
                del frames[index]
                continue
        frames[index] = bytes(frame)
    return frames
