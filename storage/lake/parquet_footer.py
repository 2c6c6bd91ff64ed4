"""A Parquet file's footer as something that can be changed: what it takes to carry row groups from file to file. Pure.

Only the fields below are known; all else comes through as it is.

Invariants:
    a row group that is moved by n bytes differs in its places only: each is larger by n
    a footer with other row groups counts their rows, and keeps the schema
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from storage.lake.thrift_compact import BINARY, I64, LIST, STRUCT, Struct, decode, encode

MAGIC: Final = b"PAR1"
TAIL_BYTES: Final = 8
"""Behind the footer: its length, and the magic once more."""

# of FileMetaData
_ROWS: Final = 3
_GROUPS: Final = 4
_TEXTS: Final = 5
# of RowGroup
_COLUMNS: Final = 1
_GROUP_BYTES: Final = 2
_GROUP_ROWS: Final = 3
_GROUP_PLACE: Final = 5
_ORDINAL: Final = 7
# of ColumnChunk
_CHUNK_PLACE: Final = 2
_CHUNK_FACTS: Final = 3
_APART: Final = frozenset({4, 6})
"""Places of indexes of pages, which do not lie with the pages."""
# of ColumnMetaData
_COMPRESSED: Final = 7
_DATA: Final = 9
_DICTIONARY: Final = 11
_FACTS_APART: Final = frozenset({10, 14})
"""Places of an index and of a Bloom filter."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What a footer says of a row group."""

    facts: Struct

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.facts[_GROUP_ROWS][1])

    @property
    def bytes(self) -> int:
        """What it is without compression."""
        return int(self.facts[_GROUP_BYTES][1])

    @property
    def chunks(self) -> list[Struct]:
        """Its columns."""
        found: list[Struct] = self.facts[_COLUMNS][1][1]
        return found

    @property
    def span(self) -> tuple[int, int]:
        """Its first byte in the file, and the one behind its last."""
        found = [chunk[_CHUNK_FACTS][1] for chunk in self.chunks]
        starts = [min(one[field][1] for field in (_DICTIONARY, _DATA) if field in one) for one in found]
        return min(starts), max(start + one[_COMPRESSED][1] for start, one in zip(starts, found, strict=True))

    @property
    def is_movable(self) -> bool:
        """Whether all of it lies within its span."""
        return not any(_APART & chunk.keys() or _FACTS_APART & chunk[_CHUNK_FACTS][1].keys() for chunk in self.chunks)

    def moved(self, by: int, ordinal: int) -> "RowGroup":
        """The same so many bytes further, as this one of its file."""
        facts = dict(self.facts)
        facts[_COLUMNS] = (LIST, (STRUCT, [_moved(chunk, by) for chunk in self.chunks]))
        if _GROUP_PLACE in facts:
            facts[_GROUP_PLACE] = (I64, facts[_GROUP_PLACE][1] + by)
        if _ORDINAL in facts:
            facts[_ORDINAL] = (facts[_ORDINAL][0], ordinal)
        return RowGroup(facts)


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself."""

    facts: Struct

    @classmethod
    def of(cls, file: memoryview) -> "Footer":
        """That of a whole file."""
        length = int.from_bytes(file[-TAIL_BYTES:-4], "little")
        return cls(decode(bytes(file[-TAIL_BYTES - length : -TAIL_BYTES])))

    def tail(self) -> bytes:
        """What a file ends with."""
        encoded = encode(self.facts)
        return encoded + len(encoded).to_bytes(4, "little") + MAGIC

    @property
    def groups(self) -> list[RowGroup]:
        """The row groups, in the file's order."""
        return [RowGroup(one) for one in self.facts[_GROUPS][1][1]]

    @property
    def texts(self) -> dict[bytes, bytes]:
        """What writers have added: Arrow its schema, the lake its facts."""
        pairs = self.facts[_TEXTS][1][1] if _TEXTS in self.facts else ()
        return {pair[1][1]: pair[2][1] if 2 in pair else b"" for pair in pairs}

    def is_like(self, other: "Footer", but_for: bytes) -> bool:
        """Whether row groups of the one can stand in the other: all but them, and one of the texts, is equal."""
        return _without_groups(self, but_for) == _without_groups(other, but_for)

    def with_groups(self, groups: Iterable[RowGroup], texts: dict[bytes, bytes]) -> "Footer":
        """The footer of a file that has these row groups instead."""
        found = list(groups)
        pairs = [{1: (BINARY, name), 2: (BINARY, text)} for name, text in (self.texts | texts).items()]
        changed: Struct = {
            _ROWS: (I64, sum(group.rows for group in found)),
            _GROUPS: (LIST, (STRUCT, [group.facts for group in found])),
            _TEXTS: (LIST, (STRUCT, pairs)),
        }
        return Footer(dict(sorted((self.facts | changed).items())))


def _without_groups(footer: Footer, but_for: bytes) -> tuple[Struct, dict[bytes, bytes]]:
    facts = {field: value for field, value in footer.facts.items() if field not in (_ROWS, _GROUPS, _TEXTS)}
    return facts, {name: text for name, text in footer.texts.items() if name != but_for}


def _moved(chunk: Struct, by: int) -> Struct:
    facts = dict(chunk[_CHUNK_FACTS][1])
    for field in (_DATA, _DICTIONARY):
        if field in facts:
            facts[field] = (I64, facts[field][1] + by)
    place = chunk[_CHUNK_PLACE][1]
    return {**chunk, _CHUNK_PLACE: (I64, place + by if place else 0), _CHUNK_FACTS: (STRUCT, facts)}
