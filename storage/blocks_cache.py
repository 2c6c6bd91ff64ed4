"""Decoded parts of blocks, kept for the next reader: a live log's newest ones are read by all who follow it."""

from collections.abc import Callable

from storage.chunk_cache import ChunkCache
from storage.disk import Disk
from storage.journal import JournalShare
from storage.journal_block import part_of_share
from storage.limits import BLOCK_CACHE_BYTES_MAX
from storage.metrics import Metric, Metrics
from storage.parts import decode_batches
from storage.reading import LoadedRows, Piece, ReadSource
from storage.scan import BlockRef, read_batches, read_part

ALL_PARTS = -1

Key = tuple[str, int, int, int]
"""Path, position, checksum and part: a block written anew at the same place is another block."""


class BlocksCache:
    """What was read of blocks, by place, checksum and part."""

    def __init__(self, disk: Disk, bytes_max: int = BLOCK_CACHE_BYTES_MAX, metrics: Metrics | None = None) -> None:
        self._disk = disk
        self._metrics = metrics
        self.chunks: ChunkCache[Key, LoadedRows] = ChunkCache(bytes_max)

    def rows(self, ref: BlockRef) -> LoadedRows:
        """The rows of a block."""

        def make() -> tuple[LoadedRows, int]:
            return LoadedRows(read_batches(self._disk, ref)), ref.header.size

        return self._get(_key(ref, ALL_PARTS), make)

    def share(self, share: JournalShare) -> LoadedRows:
        """The rows of a share in the journal; only its part of the block is read."""
        ref, entry = share.ref, share.entry
        number = part_of_share(entry)

        def make() -> tuple[LoadedRows, int]:
            part = read_part(self._disk, ref, number)
            return LoadedRows(decode_batches(part)), len(part)

        (batch,) = self._get(_key(ref, number), make).batches
        return LoadedRows([batch.slice(entry.row, entry.rows)])

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

    def _get(self, key: Key, make: Callable[[], tuple[LoadedRows, int]]) -> LoadedRows:
        is_miss = False

        def make_and_note() -> tuple[LoadedRows, int]:
            nonlocal is_miss
            is_miss = True
            return make()

        try:
            return self.chunks.get_or_make(key, make_and_note)
        finally:
            if self._metrics is not None:
                self._metrics.count(Metric.CACHE_MISSES if is_miss else Metric.CACHE_HITS)


def _key(ref: BlockRef, number: int) -> Key:
    return ref.path, ref.position, ref.header.table_crc, number
