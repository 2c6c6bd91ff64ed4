"""Decoded blocks, kept for the next reader: the newest blocks of a live log are read by all who follow it."""

from collections.abc import Callable

import pyarrow as pa

from storage.block import decode_batches
from storage.chunk_cache import ChunkCache
from storage.disk import Disk
from storage.errors import CorruptBlock
from storage.journal import JournalShare
from storage.journal_block import decode_tables, rows_of
from storage.limits import BLOCK_CACHE_BYTES_MAX
from storage.reading import Piece, ReadSource
from storage.scan import BlockRef, read_payload

Tables = list[pa.RecordBatch]


class BlocksCache:
    """Blocks by place and checksum, so that a block written anew at the same place is another block."""

    def __init__(self, disk: Disk, bytes_max: int = BLOCK_CACHE_BYTES_MAX) -> None:
        self._disk = disk
        self.chunks: ChunkCache[tuple[str, int, int], Tables] = ChunkCache(bytes_max)

    def rows(self, ref: BlockRef) -> pa.RecordBatch:
        """The rows of a block."""
        return _joined(self._get(ref, decode_batches))

    def share(self, share: JournalShare) -> pa.RecordBatch:
        """The rows of a share in the journal."""
        return rows_of(self._get(share.ref, decode_tables), share.entry)

    def put(self, ref: BlockRef, tables: Tables) -> None:
        """A block that was just written: its readers are about to come."""
        self.chunks.put(_key(ref), tables, ref.header.size)

    def piece(self, ref: BlockRef, source: ReadSource) -> Piece:
        """A block as a piece of its log."""
        header = ref.header
        return Piece(
            source, header.previous, header.first, header.last, header.rows, header.wire_end, lambda: self.rows(ref)
        )

    def share_piece(self, share: JournalShare) -> Piece:
        """A share in the journal as a piece of its log."""
        entry = share.entry
        return Piece(
            ReadSource.JOURNAL,
            entry.previous,
            entry.first,
            entry.last,
            entry.rows,
            entry.wire_end,
            lambda: self.share(share),
        )

    def _get(self, ref: BlockRef, decode: Callable[[memoryview], Tables]) -> Tables:
        return self.chunks.get_or_make(_key(ref), lambda: (decode(read_payload(self._disk, ref)), ref.header.size))


def _key(ref: BlockRef) -> tuple[str, int, int]:
    return ref.path, ref.position, ref.header.payload_crc


def _joined(batches: Tables) -> pa.RecordBatch:
    """One batch; a block holds several only where one would be too large, and then it is one that no limit divides."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        raise CorruptBlock("a block that claims rows holds none")
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
