"""Where a row stands in its shape's log: `(tx, op)`, and how that is written as text and as bytes.

`tx` is the start LSN of the transaction's commit record, `op` counts the transaction's changes in steps of two
(the odd numbers are the second halves of split primary-key updates). Rows of a snapshot have `tx = 0` and the
number of their chunk as `op`.

Invariants:
    BEFORE_ALL < 0_0 <= 0_k < SNAPSHOT_END = 0_inf < every offset of a transaction
    the order of offsets is the order of `(tx, op)`, and `<tx>_inf` comes after every op of tx
"""

import re
import struct
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple, Self

from storage.errors import InvalidOffset

TX_MAX: Final = 2**63 - 1
"""An LSN has 64 bits in Postgres, but no server lives to write 2^63 bytes; Arrow and Spark like it signed."""

OP_INFINITE: Final = 2**64 - 1
"""Stands for `inf`: above every op that a transaction can have."""

OP_MAX: Final = 2**63 - 1

OFFSET_SIZE: Final = 16
"""Bytes of an offset on disk."""

_PAIR: Final = struct.Struct(">QQ")
_BEFORE_ALL_TX: Final = 2**64 - 1
_TEXT: Final = re.compile(r"(\d{1,20})_(\d{1,20}|inf)", re.ASCII)


class LogOffset(NamedTuple):
    """A position in a log. Compared as a pair, which is what a tuple does in C."""

    tx: int
    op: int

    @classmethod
    def of_snapshot_chunk(cls, number: int) -> Self:
        """The offset that every row of snapshot chunk `number` has."""
        return cls(0, number)

    @classmethod
    def aligned(cls, tx: int, changes: int) -> Self:
        """The end of a whole transaction of `changes` changes: at or above every offset that it can produce."""
        return cls(tx, 2 * changes - 1 if changes else 0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raises `InvalidOffset` for anything else."""
        if text == "-1":
            return cls(*BEFORE_ALL)
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidOffset(f"{text!r} is not an offset", found=text)
        tx = int(match[1])
        op = OP_INFINITE if match[2] == "inf" else int(match[2])
        if tx > TX_MAX or (op > OP_MAX and match[2] != "inf"):
            raise InvalidOffset(f"{text!r} is above the greatest offset {TX_MAX}_inf", found=text)
        return cls(tx, op)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview, position: int = 0) -> Self:
        """Read the 16 bytes that `to_bytes` wrote."""
        tx, op = _PAIR.unpack_from(data, position)
        return cls(-1, 0) if tx == _BEFORE_ALL_TX else cls(tx, op)

    def to_bytes(self) -> bytes:
        """Two big-endian 64-bit numbers; `BEFORE_ALL` has all bits of its first set."""
        return _PAIR.pack(_BEFORE_ALL_TX if self.tx < 0 else self.tx, self.op)

    @property
    def is_snapshot(self) -> bool:
        """Whether this is a place in a base (a snapshot), not in the log of transactions."""
        return self.tx == 0

    def __str__(self) -> str:
        if self.tx < 0:
            return "-1"
        return f"{self.tx}_inf" if self.op == OP_INFINITE else f"{self.tx}_{self.op}"


def offsets_of(txs: Iterable[int], ops: Iterable[int]) -> list[LogOffset]:
    """Many offsets at once, in a third of the time that making them one by one takes."""
    return list(map(partial(tuple.__new__, LogOffset), zip(txs, ops, strict=True)))


BEFORE_ALL: Final = LogOffset(-1, 0)
SNAPSHOT_END: Final = LogOffset(0, OP_INFINITE)
