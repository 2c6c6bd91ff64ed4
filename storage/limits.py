"""Every bound of storage: its name says the unit, the sentence below it says why this much.

These are defaults. What an operator may sensibly change is a field of `StoreOptions`, which starts from here.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

BLOCK_ALIGNMENT_BYTES: Final = 128
"""Blocks start at multiples of this: a header (128 bytes) then never straddles a 512-byte sector, so that a power
cut leaves it whole or absent; and Arrow's buffers stay aligned for vector instructions."""

BLOCK_PAYLOAD_BYTES_MAX: Final = 4 * 1024 * MIB
"""Above the largest value that Postgres can send (1 GB) with room for several; a length beyond it is damage."""

ROW_BYTES_MAX: Final = 1024 * MIB
"""One row: Postgres sends a change as one message, and none of its messages reaches 1 GiB."""

BLOCK_BYTES_MAX: Final = 4 * MIB
"""A flush begins another block beyond this: a reader fetches and checks a block at a time, whatever little it wants.
Rows that arrived in one larger batch still make one block."""

PIECE_BYTES_MAX: Final = 64 * MIB
"""Rows that arrived in one batch are cut into blocks of about this: far below what a block may hold, and below 2 GiB,
where the offsets of a column end. At least one row, so a block holds less than this and `ROW_BYTES_MAX` together."""

FLUSH_GATHER_BYTES_MAX: Final = 8 * MIB
"""Rows that a flush copies together for the logs' own segments at a time, with one pass over each batch and each part
of the journal: more logs at a time need fewer passes; the copies, about twice this, come on top of the buffer."""

FLUSH_RELEASE_BYTES: Final = 16 * MIB
"""Written by flushes until the memory of their copies goes back to the system, with the next flush, or at once where
the stream is quiet. Each time costs some milliseconds, and the pages are got again: ten times a second it was a tenth
of the way from the decoder to the disk."""

FLUSH_GATHER_SHARES_MAX: Final = 4096
"""The same in shares, each of which is a batch of its own then: 1.6 KB of objects, however few rows it has."""

FLUSH_WAIT_SECONDS_MAX: Final = 60.0
"""The longest that anybody waits for the flush in flight: a sync that takes longer hangs, and whoever waits says so."""

LOOSE_SHARES_MAX: Final = 64
"""Appends of less than `PART_BYTES_MIN` that a log keeps apart; then they become one batch. More at a time would save
no more, and hold the store's lock for longer than some tenths of a millisecond."""

SYNCS_AT_ONCE_MAX: Final = 16
"""Threads that sync the segments of a flush: a file system writes its journal once for all who wait for it, so 64 files
take a third of the time; more threads gain nothing."""

FLUSH_FILES_MAX: Final = 64
"""Segments that are written before they are synced: each keeps its file open until then (see `DESCRIPTORS_MAX`)."""

COMBINE_BYTES_MAX: Final = 256 * MIB
"""Rows of one flush become one Arrow batch up to here; beyond, they stay several, since Arrow's string offsets end
at 2 GiB and a copy this large is memory without a use."""

FLUSH_LOG_BYTES: Final = 4 * MIB
"""A log with this much unflushed is flushed: enough for the sync to be a small part of the write."""

FLUSH_LOG_ROWS: Final = 50_000
"""The same for narrow rows, whose bookkeeping outweighs their bytes."""

FLUSH_AGE_SECONDS: Final = 0.1
"""No row stays unflushed for longer, whether or not another follows: bounds what a crash makes Postgres send again."""

FLUSH_REST_SHARE: Final = 3.0
"""The flusher's pause after a flush of many logs, for each second of the processor that it took: a log costs it 13 us
and more, whatever it has, so thousands of them flushed without a pause would take half of what appends need, for ever
fewer rows. A share of what it took, and no time: processors differ by four."""

FLUSH_REST_LOGS_MIN: Final = 125
"""After a flush of fewer logs there is no pause: they cost nothing."""

FLUSH_REST_SECONDS_MAX: Final = 1.0
"""A longer pause would be felt by those who wait for G. The rows of it take room, and who wants some ends the pause."""

BUFFER_LOG_BYTES_MAX: Final = 64 * MIB
"""What one log may hold in memory, so that one slow log cannot take the room of all; one larger append is let in
alone."""

BUFFER_BYTES_MAX: Final = 256 * MIB
"""What all logs together may hold in memory, flush windows included; one larger append is let in alone."""

BUFFER_SHARES_MAX: Final = 10_000
"""The same in objects: a share, the part of a batch that one log takes, costs about 1.3 KB here and in the flush
tracker, however few rows it has. One batch for 10,000 logs that is being flushed, and another that comes meanwhile:
more of them would make nothing faster, since appends and flushes take turns at the interpreter."""

OWN_SEGMENT_FLUSH_BYTES: Final = 256 * KIB
"""A flush at least this large goes to the log's own segment: below, a sync for each log would cost more than copying
the bytes once more out of the journal."""

SEGMENT_BYTES_MAX: Final = 64 * MIB
"""A segment is closed at this size: small enough to compact or retire in one go, large enough to be few."""

JOURNAL_FILE_BYTES_MAX: Final = 16 * MIB
"""A journal file is closed at this size; the oldest closed one is the next to be emptied into segments."""

JOURNAL_BYTES_MAX: Final = 64 * MIB
"""Journal files as flushes write them: beyond this, the shares of all logs are joined, or moved to segments, while it
grows by as much again, so it stays near twice this at most. Of 10,000 logs that take turns a share has four rows, and
125,000 such shares are some 6 MB of index."""

JOURNAL_JOINED_BYTES_MAX: Final = 1024 * MIB
"""Journal files with joined shares: beyond this, the logs of the oldest one move to their segments, which costs each a
file and its sync, half a millisecond and more. 10,000 logs have 100 KB each by then: it is a few hundredths of what it
costs to write these. Start-up reads their directories, some 40 MB for as many logs."""

JOURNAL_LOG_SHARES_MAX: Final = 128
"""Shares of one log in the journal; with more it moves to its segment, in one block. A quiet table that gets a few rows
ten times a second fills no journal for hours, and whoever reads it goes from share to share: some 20 us each."""

JOURNAL_LOGS_IN_ORDER_MAX: Final = 256
"""Logs whose shares in the journal are kept as objects for the next reader: some 700 bytes a share, 23 MB in all."""

JOURNAL_ROUNDS_MAX: Final = 3
"""How often the logs of the oldest journal file are gone through: those that a flush caught in mid-transaction stay for
the next round. There is one at the end of each flush and one before the next: so a transaction may span one or two
flushes more, and in the last round its logs move to segments, a file and a sync for each."""

JOURNAL_JOIN_BYTES_MAX: Final = 2 * MIB
"""Rows that are joined at a time, of some hundred logs: with what is read and copied for it, four times as much memory.
Fewer would read each part more often, since one has the rows of some hundred logs."""

JOURNAL_PART_BYTES: Final = 256 * KIB
"""Rows of a journal block are cut into parts of about this. A part is read and checked whole: who wants the rows of one
log, or moves some logs out of the journal, need not read those of thousands of others."""

JOURNAL_FILE_BLOCKS_MAX: Final = 4096
"""A journal file is closed at this many blocks, so that tiny flushes do not make its directory long."""

CHUNK_WIRE_BYTES: Final = 1 * MIB
"""Chunks end at multiples of this in a log's cumulated wire size; fixed for a log's life when it is born."""

ROW_WIRE_OVERHEAD_BYTES: Final = 100
"""Added to the bytes of a row's values: about what keys, headers and names cost on the wire."""

READ_BYTES_MAX: Final = 16 * MIB
"""One read returns at most about this much, whatever was asked for, so that a reader's memory is bounded."""

BLOCK_CACHE_BYTES_MAX: Final = 64 * MIB
"""Decoded blocks kept for the next reader; a live log's newest blocks are read by all its followers."""

DESCRIPTORS_MAX: Final = 512
"""Files kept open at a time: half of the usual limit of 1,024, the rest is for sockets."""

RECORD_BYTES_MAX: Final = 16 * MIB
"""A record of the catalog or the progress log: far above the largest shape definition; beyond is damage."""

RECORD_LOG_BYTES_MAX: Final = 8 * MIB
"""A record log is rewritten to its living records beyond this size (when that makes it shorter by half)."""

FAULT_RETRY_SECONDS: Final = 1.0
"""After a fault of the shared disk, the pause before writing is tried again."""

WAIT_SECONDS_MAX: Final = 60.0
"""The longest that any wait for data or durability lasts before it returns empty-handed."""

LEASE_SECONDS_MAX: Final = 7 * 24 * 3600.0
"""The longest lease: a reader that is gone for longer than a week does not hold a disk full of segments."""

COMPACTION_SEGMENTS_KEPT: Final = 2
"""The newest segments are never compacted: live readers are in them."""

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all: the smallest that disks still report, so the worst that a power cut does."""

RECORD_LOG_READ_ATTEMPTS: Final = 3
"""How often a reader looks again when the writer replaced the file under its eyes; rewrites are far between, so the
second time is the last, and whoever asks again later sees the rest."""

PROGRESS_RECORDS_KEPT: Final = 36_000
"""The newest G records that survive a rewrite: an hour of them at one for each `FLUSH_AGE_SECONDS`, for a reader who
wants not the last one but the last that suits it."""

HANDLE_CHARACTERS_MAX: Final = 100
"""A handle travels in every URL and file name of its shape; ours are under 40 characters."""

CATALOG_TOMBSTONES_MAX: Final = 100_000
"""Forgotten handles that are still refused, the newest ones: caches keep a handle's chunks for a week, so older ones
can be confused with nothing; all together they fit into one record."""

LOG_HANDLES_KEPT: Final = 16
"""Handles of a log that are remembered, the newest: each fold gives it another, for years. Who follows an older one is
sent to the newest."""

JOURNAL_LOGS_PER_FLUSH: Final = 64
"""Logs moved out of the oldest journal file in one flush, unless it takes more for the journal to be emptied as fast as
it grows: bounds how long that flush keeps the others waiting."""

READ_ATTEMPTS_MAX: Final = 8
"""Looks that a reader takes when files go away under it: each move of a file costs one at most, and moves are rare."""

READ_PAUSE_SECONDS: Final = 0.001
"""Before it looks for the n-th time at what seems damaged, a reader waits for n times this: a header that was caught
half written is whole by then, and all looks together take less than 40 ms."""

COMPACTION_BYTES_MAX: Final = 128 * MIB
"""Segments that one compaction takes: two, at three to five times their size in memory, as a fold."""

FOLD_STEP_BYTES: Final = 128 * MIB
"""What a fold holds of base and log at a time: a segment of the log, and half as much of the base; at three (rows of
400 bytes) to five times (of 20) their size in memory, for a few seconds. A larger base is read in parts, a larger
transaction in passes."""

IDLE_SECONDS: Final = 1.0
"""A flusher with nothing to do looks again after this, should nobody have woken it."""

PART_BYTES_MIN: Final = 64 * KIB
"""Rows that arrive together and are at least this many bytes become a part of their own, without a copy: below, a
part's own bytes (schema, metadata, about 1.5 KB) and calls would cost more than copying neighbours together."""

PART_BYTES_MAX: Final = 4 * MIB
"""Small neighbours are copied together up to about this size."""

REPAIR_COPY_BYTES: Final = 16 * MIB
"""Copied at a time when a file whose sync failed is replaced: such files are as long as a segment."""

JOURNAL_FLUSH_BYTES_MAX: Final = 8 * MIB
"""Rows of small logs that one flush copies together. Logs that share a batch are counted once in the buffer and each
for itself here: without a bound, ten thousand logs of one batch would be copied into gigabytes."""

SHARED_TEXT_CHARACTERS_MAX: Final = 63
"""Texts of definitions that are one object where they are equal: Postgres has no longer names, and what is longer is
hardly ever the same."""

SCHEMAS_KEPT: Final = 256
"""Parsed schemas kept for the parts to come: more tables than a reader goes through, at some kilobytes each."""
