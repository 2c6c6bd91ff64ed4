"""The messages that are decoded one by one, since they are rare: Origin, TRUNCATE, logical messages.

'O' LSN at the origin u64, name, 0
'T' relations u32, options u8 (1 cascade, 2 restart identity), then each relation u32
'M' flags u8 (1 transactional), LSN u64, prefix, 0, size u32, content
"""

import struct
from typing import Final

from cdc.source.errors import NotText, ProtocolError
from cdc.source.fragments import LogicalMessage, Truncate
from cdc.source.lsn import Lsn

ORIGIN, TRUNCATE, MESSAGE = map(ord, "OTM")

_TRUNCATE: Final = struct.Struct(">xIB")
_MESSAGE: Final = struct.Struct(">xBQ")
_SIZE: Final = struct.Struct(">I")
_ORIGIN_NAME_AT: Final = 9
_CASCADE: Final = 1
_RESTART_IDENTITY: Final = 2


def read_origin(message: bytes) -> str:
    """The origin's name; the LSN there is of no use to anybody here."""
    name, rest = _name(message, _ORIGIN_NAME_AT)
    if rest != len(message):
        raise ProtocolError("an Origin is longer than what it says")
    return name


def read_truncate(message: bytes, op_first: int) -> Truncate:
    """A TRUNCATE in the transaction that is open."""
    if len(message) < _TRUNCATE.size:
        raise ProtocolError("a TRUNCATE is cut short")
    count, options = _TRUNCATE.unpack_from(message)
    if len(message) != _TRUNCATE.size + 4 * count:
        raise ProtocolError("a TRUNCATE has another size than its relations", relations=count)
    relations = struct.unpack_from(f">{count}I", message, _TRUNCATE.size)
    return Truncate(0, op_first, relations, bool(options & _CASCADE), bool(options & _RESTART_IDENTITY))


def read_logical_message(message: bytes, transaction: int, op: int, *, inside: bool) -> LogicalMessage:
    """A logical message, at its place in the stream."""
    if len(message) < _MESSAGE.size:
        raise ProtocolError("a logical message is cut short")
    flags, lsn = _MESSAGE.unpack_from(message)
    prefix, at = _name(message, _MESSAGE.size)
    content = message[at + _SIZE.size :]
    if len(message) < at + _SIZE.size or _SIZE.unpack_from(message, at)[0] != len(content):
        raise ProtocolError("a logical message has another size than its content")
    return LogicalMessage(Lsn(lsn), prefix, content, bool(flags & 1), inside, transaction, op)


def _name(message: bytes, start: int) -> tuple[str, int]:
    end = message.find(0, start)
    if end < 0:
        raise ProtocolError("a name in a message does not end")
    try:
        return message[start:end].decode(), end + 1
    except UnicodeDecodeError:
        raise NotText("a name is not valid UTF-8") from None
