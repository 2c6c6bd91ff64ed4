"""Structs in Thrift's compact protocol, read and written without their definitions. Pure.

A struct is a dict: for each field's number the type on the wire and the value. So fields that nobody here knows come
through as they are.

    numbers              int                 binary   bytes                  list, set   (type, values)
    bool                 in its type         double   its 8 bytes            struct      dict

Invariant: encode(decode(data)) == data, for data that is written in the shortest form, as all known writers do.
"""

from collections.abc import Callable
from typing import Any, Final

from storage.lake.errors import LakeDamage

Struct = dict[int, tuple[int, Any]]

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I64: Final = 6
NUMBERS: Final = (4, 5, I64)
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12

_LONG: Final = 15
"""In place of a length or a step that does not fit the header's four bits."""


def decode(data: bytes) -> Struct:
    """The struct that the data begins with; raises `LakeDamage` if there is none."""
    try:
        return _Reader(data).struct()
    except (IndexError, KeyError) as error:
        raise LakeDamage(f"a Parquet file's footer cannot be read: {error!r}") from None


def encode(facts: Struct) -> bytes:
    """What `decode` reads."""
    out = bytearray()
    _put_struct(out, facts)
    return bytes(out)


class _Reader:
    """One value after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        facts: Struct = {}
        number = 0
        while header := self.byte():
            number = number + (header >> 4) if header >> 4 else self.number()
            facts[number] = (header & 15, _READERS[header & 15](self))
        return facts

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def nothing(self) -> None:
        """Of a bool in a struct: its type says all."""

    def length(self) -> int:
        value = shift = 0
        while (byte := self.byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def number(self) -> int:
        value = self.length()
        return value >> 1 ^ -(value & 1)

    def some(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise IndexError(count)
        return self._data[self._at - count : self._at]

    def binary(self) -> bytes:
        return self.some(self.length())

    def double(self) -> bytes:
        return self.some(8)

    def values(self) -> tuple[int, list[Any]]:
        header = self.byte()
        kind, count = header & 15, header >> 4
        if count == _LONG:
            count = self.length()
        read = _Reader.byte if kind in (TRUE, FALSE) else _READERS[kind]
        return kind, [read(self) for _ in range(count)]


_READERS: Final[dict[int, Callable[[_Reader], Any]]] = {
    TRUE: _Reader.nothing,
    FALSE: _Reader.nothing,
    BYTE: _Reader.byte,
    **dict.fromkeys(NUMBERS, _Reader.number),
    DOUBLE: _Reader.double,
    BINARY: _Reader.binary,
    LIST: _Reader.values,
    SET: _Reader.values,
    STRUCT: _Reader.struct,
}


def _put_struct(out: bytearray, facts: Struct) -> None:
    last = 0
    for number, (kind, value) in facts.items():
        step = number - last
        if 0 < step <= _LONG:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_number(out, number)
        _WRITERS[kind](out, value)
        last = number
    out.append(0)


def _put_nothing(_out: bytearray, _value: None) -> None:
    """Of a bool in a struct."""


def _put_length(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _put_number(out: bytearray, value: int) -> None:
    _put_length(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _put_binary(out: bytearray, value: bytes) -> None:
    _put_length(out, len(value))
    out += value


def _put_values(out: bytearray, value: tuple[int, list[Any]]) -> None:
    kind, values = value
    if len(values) < _LONG:
        out.append(len(values) << 4 | kind)
    else:
        out.append(_LONG << 4 | kind)
        _put_length(out, len(values))
    put = bytearray.append if kind in (TRUE, FALSE) else _WRITERS[kind]
    for one in values:
        put(out, one)


_WRITERS: Final[dict[int, Callable[[bytearray, Any], None]]] = {
    TRUE: _put_nothing,
    FALSE: _put_nothing,
    BYTE: bytearray.append,
    **dict.fromkeys(NUMBERS, _put_number),
    DOUBLE: bytearray.extend,
    BINARY: _put_binary,
    LIST: _put_values,
    SET: _put_values,
    STRUCT: _put_struct,
}
