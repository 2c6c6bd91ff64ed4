"""Finding the blocks of a file: what is whole, where the torn tail begins, and what is damage instead.

The table of verdicts is in docs/storage-format.md. In short: what a power cut can leave is cut; what it cannot leave
is `CorruptBlock`. The witnesses that tell them apart are `synced before` in later headers, and G.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from storage.block import HEADER_SIZE, MAGIC, BlockHeader, check_payload
from storage.disk import Disk
from storage.errors import CorruptBlock, LogFault, UnknownFormat
from storage.limits import BLOCK_ALIGNMENT_BYTES
from storage.parts import check_part, decode_batches, decode_table, table_size

_ZERO_HEADER: Final = bytes(HEADER_SIZE)
_PROBE_BYTES: Final = 1024 * 1024
"""Read at a time when looking for a later header behind damage."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where a block is, and its header."""

    path: str
    position: int
    header: BlockHeader

    @property
    def end(self) -> int:
        """Where the next block starts."""
        return self.position + self.header.size


@dataclass(frozen=True, slots=True)
class Scan:
    """The whole blocks of a file, from a position on."""

    refs: list[BlockRef]
    end: int
    """Bytes up to here are whole blocks."""
    proven: int
    """Bytes up to here were synced before a later block was written, by the process that wrote it."""
    torn: str | None
    """What a power cut left behind them, to be cut off."""
    damage: LogFault | None
    """What lies behind them if no power cut can have left it. Nothing is cut then."""


def _nowhere(header: BlockHeader) -> bool:  # noqa: ARG001 - the signature of those who know better
    return False


def scan(
    disk: Disk,
    path: str,
    *,
    start: int = 0,
    confirmed_tx: int = 0,
    is_elsewhere: Callable[[BlockHeader], bool] = _nowhere,
) -> Scan:
    """All whole blocks from `start`, and the verdict on what follows them.

    `confirmed_tx`: rows of transactions below it were confirmed to Postgres, so they must be there; unless
    `is_elsewhere` knows that they were only on their way here, and still are where they came from.
    """
    refs, torn, damage = _hop(disk, path, start)
    proven = max((ref.header.synced_before for ref in refs), default=0)
    for index, ref in enumerate(refs):
        if ref.position < proven:
            continue  # synced before a later block was written: the payload is checked when it is read
        problem = _payload_problem(disk, ref)
        if problem is not None:
            refs = refs[:index]
            torn, damage = _verdict(ref, problem, confirmed_tx, is_elsewhere)
            break
    end = refs[-1].end if refs else start
    return Scan(refs, end, min(proven, end), torn, damage)


def _hop(disk: Disk, path: str, position: int) -> tuple[list[BlockRef], str | None, LogFault | None]:
    """From header to header, with what ended the walk: nothing at a clean end of the file."""
    refs: list[BlockRef] = []
    while True:
        data = disk.read(path, position, HEADER_SIZE)
        if not data:
            return refs, None, None
        if len(data) < HEADER_SIZE:
            return refs, "a header cut short", None
        if data == _ZERO_HEADER:
            if _was_synced(disk, path, position):
                return refs, None, CorruptBlock("zeros where a synced block was", path=path, position=position)
            return refs, "zeros where a header should be", None
        try:
            header = BlockHeader.decode(data)
        except (CorruptBlock, UnknownFormat) as error:
            # A header lies within one sector, so a power cut leaves it whole or zero: this is damage.
            return refs, None, type(error)(error.message, path=path, position=position, **error.facts)
        refs.append(BlockRef(path, position, header))
        position += header.size


def _payload_problem(disk: Disk, ref: BlockRef) -> str | None:
    try:
        read_parts(disk, ref)
    except CorruptBlock as error:
        return error.message
    return None


def _verdict(
    ref: BlockRef, problem: str, confirmed_tx: int, is_elsewhere: Callable[[BlockHeader], bool]
) -> tuple[str | None, LogFault | None]:
    """On a block whose payload is not what was written, and that no later header proves to have been synced."""
    header = ref.header
    # Without rows, it was written for commits that came after theirs, and G is above those only once it was synced.
    at = header.first if header.rows else header.aligned
    if at.tx < confirmed_tx and not is_elsewhere(header):
        reason = f"a block that was confirmed to Postgres is damaged: {problem}"
        return None, CorruptBlock(reason, path=ref.path, position=ref.position, first=header.first)
    return problem, None


def _was_synced(disk: Disk, path: str, position: int) -> bool:
    """Whether a header behind the zeros at a position proves that the place had been synced."""
    return any(header.synced_before > position for _, header in _headers_behind(disk, path, position))


def next_block(disk: Disk, path: str, position: int) -> int | None:
    """Where the first good header behind a damaged block is; None if none follows."""
    return next((at for at, _ in _headers_behind(disk, path, position)), None)


def _headers_behind(disk: Disk, path: str, position: int) -> Iterator[tuple[int, BlockHeader]]:
    size = disk.size(path)
    for start in range(position + BLOCK_ALIGNMENT_BYTES, size, _PROBE_BYTES):
        data = disk.read(path, start, _PROBE_BYTES + HEADER_SIZE)
        for step in range(0, min(len(data), _PROBE_BYTES), BLOCK_ALIGNMENT_BYTES):
            if data[step : step + len(MAGIC)] == MAGIC:
                with contextlib.suppress(CorruptBlock, UnknownFormat):
                    yield start + step, BlockHeader.decode(data[step : step + HEADER_SIZE])


def read_parts(disk: Disk, ref: BlockRef) -> list[memoryview]:
    """All parts of a block, checked."""
    payload = disk.read_buffer(ref.path, ref.position + HEADER_SIZE, ref.header.payload_size)
    with _at(ref):
        return check_payload(ref.header, payload)


def read_part(disk: Disk, ref: BlockRef, number: int) -> memoryview:
    """One part of a block, checked, without reading the others."""
    header, start = ref.header, ref.position + HEADER_SIZE
    table = disk.read(ref.path, start, table_size(header.parts))
    with _at(ref):
        place = decode_table(table, header.parts, header.payload_size, header.table_crc)[number]
        return check_part(place, disk.read_buffer(ref.path, start + place.start, place.stop - place.start))


def read_batches(disk: Disk, ref: BlockRef) -> list[pa.RecordBatch]:
    """The rows of a block of rows, of a base, or of a ledger."""
    return [batch for part in read_parts(disk, ref) for batch in decode_batches(part)]


@contextlib.contextmanager
def _at(ref: BlockRef) -> Iterator[None]:
    """Damage says where it is."""
    try:
        yield
    except CorruptBlock as error:
        facts = {"path": ref.path, "position": ref.position, "first": ref.header.first} | error.facts
        raise CorruptBlock(error.message, **facts) from None
