"""A stream of events, taken apart as its bytes come. Pure.

    data: {...}      a message; an empty line ends it
    : keep-alive     nothing

Invariant: what is handed on does not depend on where the bytes were cut.
"""

from collections.abc import Iterator
from typing import Final

_FIELD: Final = b"data:"


class Events:
    """The events of one connection."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of a line whose end has not come."""
        self._data: list[bytes] = []
        """Lines of an event whose end has not come."""

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The contents of the events that end in this piece."""
        *ended, rest = piece.split(b"\n")
        for part in ended:
            line = b"".join([*self._line, part]).removesuffix(b"\r")
            self._line = []
            if line.startswith(_FIELD):
                self._data.append(line[len(_FIELD) :].removeprefix(b" "))
            elif not line and self._data:
                event, self._data = b"\n".join(self._data), []
                yield event
        if rest:
            self._line.append(rest)
