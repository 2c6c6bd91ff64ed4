"""Retention: a log over its limits folds its prefix into a new base, and then drops the segments below that base.

Two calls, since the layers above have a record to sync in between (A12: a new base is a new handle):
`fold_prefix` writes the base; `retire` drops what lies below the newest base. Never past what a lease holds, never
behind a live base: what is dropped is in the base, or nobody may drop it.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from storage import layout, leases, limits
from storage.bases import Base, BaseWriter
from storage.disk import Disk
from storage.errors import CannotFold, StorageError, named_faults
from storage.fold import as_chunk, chunks_by_wire, fold_pieces
from storage.offset import SNAPSHOT_END, LogOffset
from storage.open_logs import OpenLog
from storage.rows import ABSENT, KIND, NEW, OLD, OP, TX, XID, column, rows_up_to
from storage.scan import BlockRef, read_batches
from storage.segments import LogFiles, Segment, remove_files, strays
from storage.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What a log may keep below its newest segment. None is no limit."""

    bytes_max: int | None = None
    age_seconds_max: float | None = None
    step_bytes: int = limits.FOLD_STEP_BYTES
    """What a fold holds of base and log at a time. It leaves to the next one what does not fit, but for the rest of a
    transaction: that takes a pass of its own for each part."""


class _Unwanted(Exception):
    """Whoever wanted the base does not wait for it."""


def over_limit(files: LogFiles, policy: RetentionPolicy, *, now: int, held: LogOffset | None) -> list[Segment]:
    """The oldest segments that the policy wants gone and nobody holds; the newest always stays. Pure.

    They end where a transaction ends, so that the base which replaces them is whole.
    """
    excess = 0 if policy.bytes_max is None else sum(one.size for one in files.segments) - policy.bytes_max
    oldest_at = None if policy.age_seconds_max is None else now - policy.age_seconds_max * 1_000_000
    wanted = 0
    whole = 0
    for count, (segment, following) in enumerate(pairwise(files.segments), start=1):
        is_old = oldest_at is not None and segment.refs[-1].header.written_at < oldest_at
        is_held = held is not None and following.first > held
        if is_held or not (excess > 0 or is_old):
            break
        excess -= segment.size
        wanted = count
        if segment.refs[-1].header.aligned >= segment.last:
            whole = wanted
    return files.segments[:whole]


def fold_prefix(
    store: Store, log: int, policy: RetentionPolicy, *, now: int, is_wanted: Callable[[], bool] = lambda: True
) -> Base | None:
    """Fold the base and the oldest segments that the policy wants gone into a new base. None if there is nothing to do.

    Call it again for the rest. `is_wanted` is asked between steps: if it says no, nothing is left of the attempt.
    Raises `CannotFold` where the log has no key, or a value was never sent.
    """
    with contextlib.suppress(_Unwanted):
        return _fold_prefix(store, log, policy, now, is_wanted)
    return None


def _fold_prefix(
    store: Store, log: int, policy: RetentionPolicy, now: int, is_wanted: Callable[[], bool]
) -> Base | None:
    disk = store.disk
    with store.maintain(log) as opened, named_faults(layout.log_folder(log), log=log):
        files, facts = opened.files, opened.facts
        for segment in list(files.segments):
            segment.load(disk)
            if segment.damage is not None:
                raise segment.damage.anew()
        held = leases.held_from(disk, log, now=now)
        with store.lock:
            prefix = over_limit(files, policy, now=now, held=held)
            old = files.base
        prefix = _one_step(prefix, old, policy.step_bytes)
        if not prefix or not is_wanted():
            return None
        if old is None and any(not base.is_given_up for base in files.bases):
            return None  # the log goes on from a snapshot that is still being written
        base = _Fold(store, opened, now, is_wanted).run(old, prefix, policy.step_bytes)
    logger.info(
        "log %d (%s): folded %d segments into base %d, up to %s",
        log,
        facts.handle,
        len(prefix),
        base.number,
        base.floor,
    )
    return base


def _one_step(prefix: list[Segment], old: Base | None, step_bytes: int) -> list[Segment]:
    """As many of the segments that the old base does not have as one fold takes, whole transactions; at least one."""
    size = _size_held(old, step_bytes)
    fresh = [segment for segment in prefix if old is None or segment.last > old.last]
    whole = 0
    for count, segment in enumerate(fresh, start=1):
        size += segment.size
        if whole and size > step_bytes:
            break
        if segment.refs[-1].header.aligned >= segment.last:
            whole = count
    return fresh[:whole]


def _size_held(base: Base | None, step_bytes: int) -> int:
    """What is in memory of a base at a time: all of it, or so much that one segment of the log still fits."""
    return min(0 if base is None else sum(ref.header.size for ref in base.chunks), _piece_bytes(step_bytes))


def _piece_bytes(step_bytes: int) -> int:
    return step_bytes // 4


@dataclass(frozen=True, slots=True)
class _Fold:
    """A base that is being made of another and a prefix of the log, in one pass through the base, or several.

    Each pass but the last writes a base that never gets a name: nobody finds it, and a crash takes it along.
    """

    store: Store
    opened: OpenLog
    now: int
    is_wanted: Callable[[], bool]

    def run(self, old: Base | None, prefix: Sequence[Segment], step_bytes: int) -> Base:
        facts, end = self.opened.facts, prefix[-1].refs[-1].header
        if not facts.key_columns:
            raise CannotFold("the log has no key columns", log=facts.log)
        held = _size_held(old, step_bytes)
        refs = [ref for segment in prefix for ref in segment.refs if ref.header.rows]
        *firsts, last = list(_parts(refs, step_bytes - held)) or [[]]
        known = SNAPSHOT_END if old is None else old.last
        chunks = [] if old is None else old.chunks
        with contextlib.ExitStack() as earlier:
            for part in firsts:
                with contextlib.ExitStack() as present:
                    writer = self.store.new_base(facts.log)
                    present.callback(_drop, self.store, self.opened, writer.base)
                    self._write(writer, list(_parts(chunks, _piece_bytes(step_bytes))), part, known)
                    chunks = writer.base.chunks
                    earlier.close()  # the one before has been read
                    earlier.enter_context(present.pop_all())
            with whole_base(self.store, self.opened) as writer:
                self._write(writer, list(_parts(chunks, _piece_bytes(step_bytes))), last, known)
                return writer.finish(floor=end.aligned, last=end.last, wire_end=end.wire_end, written_at=self.now)

    def _write(
        self, writer: BaseWriter, pieces: Sequence[list[BlockRef]], log: Sequence[BlockRef], known: LogOffset
    ) -> None:
        disk, facts = self.store.disk, self.opened.facts
        log_rows = [batch.slice(_known(batch, known)) for batch in _rows(disk, log)]
        base_rows = (_rows(disk, piece) for piece in pieces)
        for done, rows in enumerate(fold_pieces(base_rows, log_rows, facts.key_columns), start=1):
            for chunk in chunks_by_wire(rows, facts.chunk_bytes):
                if not self.is_wanted():
                    raise _Unwanted
                writer.chunk(as_chunk(chunk, len(writer.base.chunks)), written_at=self.now)
            if len(pieces) > 1:
                said = "log %d (%s) is being folded: %d of %d parts"
                logger.info(said, facts.log, facts.handle, done, len(pieces) + 1)


def _parts(refs: Sequence[BlockRef], bytes_max: int) -> Iterator[list[BlockRef]]:
    """Blocks that follow each other, as many as fit; at least one."""
    part: list[BlockRef] = []
    size = 0
    for ref in refs:
        size += ref.header.size
        if part and size > bytes_max:
            yield part
            part, size = [], ref.header.size
        part.append(ref)
    if part:
        yield part


@contextlib.contextmanager
def whole_base(store: Store, opened: OpenLog) -> Iterator[BaseWriter]:
    """A new base of a log; where it fails, nothing of it stays, since the next try makes another."""
    writer = store.new_base(opened.facts.log)
    try:
        yield writer
    except (StorageError, OSError, _Unwanted):
        _drop(store, opened, writer.base)
        raise


def _drop(store: Store, opened: OpenLog, base: Base) -> None:
    """Forget a base that has no name."""
    with store.lock:
        opened.files.bases.remove(base)
    with contextlib.suppress(OSError):  # what stays goes at the next start
        store.disk.remove(base.path)


def retire(store: Store, log: int, *, now: int) -> int:
    """Drop the segments whose rows are all in the newest base, and the older bases. Returns how many files went."""
    disk = store.disk
    with store.maintain(log) as opened, named_faults(layout.log_folder(log), log=log):
        files = opened.files
        base = files.base
        if base is None:
            return 0
        # Of a base that an earlier process finished, the name may not be certain yet.
        disk.sync_folder(layout.log_folder(log))
        loaded = _below(disk, list(files.segments), base, None)
        # Readers look elsewhere before the first file goes, and whatever fails then.
        with store.lock:
            # As late as can be: a reader may have taken a lease while segments were loaded. One that comes later still
            # is sent to the base.
            held = leases.held_from(disk, log, now=now)
            gone = _below(disk, loaded + files.segments[len(loaded) :][:1], base, held)
            is_read = held is not None and held < base.floor
            old = [one for one in files.bases if one.is_complete and one.number < base.number and not is_read]
            del files.segments[: len(gone)]
            files.bases = [one for one in files.bases if one not in old]
            paths = [*strays(disk, files), *(one.path for one in old)]
        remove_files(disk, paths)
    return len(paths)


def _below(disk: Disk, segments: Sequence[Segment], base: Base, held: LogOffset | None) -> list[Segment]:
    """The segments that the base has whole and nobody holds; the newest always stays."""
    gone: list[Segment] = []
    for segment, following in pairwise(segments):
        if segment.first > base.last or (held is not None and following.first > held):
            break
        segment.load(disk)
        if segment.damage is not None or segment.last > base.last:
            break
        gone.append(segment)
    return gone


def _rows(disk: Disk, refs: Sequence[BlockRef]) -> list[pa.RecordBatch]:
    """The rows of blocks, with the same columns: a log may have got rows with and without the optional ones."""
    batches = [batch for ref in refs for batch in read_batches(disk, ref)]
    fields = {field.name: field for batch in batches for field in batch.schema}
    schema = pa.schema([fields[name] for name in (TX, OP, KIND, XID, ABSENT, NEW, OLD) if name in fields])
    return [
        pa.RecordBatch.from_arrays([_column_of(batch, field) for field in schema], schema=schema) for batch in batches
    ]


def _column_of(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    has_it = field.name in batch.schema.names
    return batch.column(field.name) if has_it else pa.nulls(batch.num_rows, field.type)


def _known(batch: pa.RecordBatch, last: LogOffset) -> int:
    """How many of the rows are in the old base already."""
    return rows_up_to(column(batch, TX), column(batch, OP), last)
