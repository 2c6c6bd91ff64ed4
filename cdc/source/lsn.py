"""A place in the write-ahead log: a number, written by Postgres as two hexadecimal halves (`16/B374D848`)."""

import re
from typing import Final, NewType

from cdc.source.errors import ProtocolError

Lsn = NewType("Lsn", int)

LSN_ZERO: Final = Lsn(0)
"""Before all: no record starts here."""

_TEXT: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """The way Postgres writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> Lsn:
    """Read what Postgres wrote; raises `ProtocolError` for anything else."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ProtocolError(f"{text!r} is not an LSN")
    return Lsn((int(match[1], 16) << 32) | int(match[2], 16))
