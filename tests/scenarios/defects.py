"""Defects, one at a time, that the simulator must find: each takes a step out of the program, or does it wrong."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from cdc.app import App
from cdc.simulate.deeds import SERVER_DEEDS, ServerDeeds
from cdc.simulate.server import Server
from cdc.simulate.sql import Sql
from cdc.source.lsn import Lsn
from flush_tracker.tracker import FlushTracker
from shapes import partitions, reconciliation
from shapes.acknowledge import Acknowledger
from shapes.capture import Capture
from shapes.collector import Collector
from shapes.endings import Endings
from shapes.feeds import Plan
from shapes.folding import FOLDED
from shapes.members import Member
from shapes.registry import Registry
from shapes.row_images import RowImages
from shapes.streamed import Demand
from storage import compaction
from storage.catalog_records import Shape
from storage.faulty_disk import FaultyDisk
from storage.shape_log import ShapeLog
from storage.store import Store

Defect = Callable[[], AbstractContextManager[Any]]


def patched(owner: Any, name: str, wrong: Callable[..., Any]) -> Defect:
    """The wrong way gets the right one first."""
    right = getattr(owner, name)

    def wrongly(*arguments: Any, **options: Any) -> Any:
        return wrong(right, *arguments, **options)

    return lambda: mock.patch.object(owner, name, wrongly)


def one_too_much() -> Defect:
    return patched(App, "_confirm", lambda right, app, lsn: right(app, Lsn(lsn + 1)))


def keepalive_plus_one() -> Defect:
    return patched(FlushTracker, "idle_at", lambda right, tracker, wal_end: right(tracker, wal_end + 1))


def confirmed_before_it_is_written() -> Defect:
    async def wrong(right: Any, self: Any) -> None:
        if self._tracker.incarnation is not None:
            self._confirm(Lsn(self._tracker.g.lsn))
        await right(self)

    return patched(Acknowledger, "acknowledge", wrong)


def unsynced(path: str) -> Defect:
    def wrong(right: Any, disk: FaultyDisk, name: str) -> None:
        if not name.startswith(path):
            right(disk, name)

    return patched(FaultyDisk, "sync", wrong)


def all_is_new() -> Defect:
    """Without the filter of rows that the snapshot has."""

    def every(_snapshot: Any, commit_lsn: Any, _xids: Any) -> Any:
        return np.ones(len(commit_lsn), np.bool_)

    @contextmanager
    def both() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(mock.patch("shapes.collector.is_to_append", every))
            stack.enter_context(mock.patch("shapes.members.is_to_append", every))
            yield

    return both


def let_go_before_the_record() -> Defect:
    async def wrong(right: Any, endings: Endings, member: Member, reason: str, text: str, **options: Any) -> None:
        endings._collector.end(member.number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):  # long enough for G to move on, and for a crash to come
                await asyncio.Event().wait()
        await right(endings, member, reason, text, **options)

    return patched(Endings, "end", wrong)


def joining_holds_nothing() -> Defect:
    def wrong(right: Any, collector: Collector, definition: Any, where: Any, now: float) -> Member:
        member: Member = right(collector, definition, where, now)
        collector.tracker.born(member.number, now)
        return member

    return patched(Collector, "join", wrong)


def truncates_of_the_snapshot() -> Defect:
    def wrong(right: Any, collector: Collector, *arguments: Any) -> None:
        with mock.patch.object(
            collector, "_is_told", lambda _number, _fragment, ordinals: np.ones(len(ordinals), np.bool_)
        ):
            right(collector, *arguments)

    return patched(Collector, "_note_truncates", wrong)


def huge_transactions_touch_their_end_only() -> Defect:
    def wrong(right: Any, plan: Plan, opened: Any, **options: Any) -> Any:
        return right(plan, opened[:0], **options)

    return patched(Plan, "touched", wrong)


def g_is_whatever_was_seen() -> Defect:
    return lambda: mock.patch.object(FlushTracker, "g", property(lambda tracker: tracker.seen))


def leaves_open_rows(store: Store) -> None:
    """Of the transaction that comes again on the next connection."""
    store._must_abandon = False


def lost_after_a_failure(log: ShapeLog) -> None:
    log._end_window()


def truncates_count_before_their_base() -> Defect:
    def wrong(right: Any, collector: Collector, member: Member, *arguments: Any) -> None:
        truncated_at, member.truncated_at = member.truncated_at, None
        right(collector, member, *arguments)
        member.truncated_at = truncated_at

    return patched(Collector, "durable", wrong)


def folds_without_a_record() -> Defect:
    async def wrong(right: Any, endings: Endings, member: Member, why: str) -> None:
        if why != FOLDED:
            await right(endings, member, why)

    return patched(Endings, "stand_on_newest", wrong)


def folds_for_what_was_emptied() -> Defect:
    """Readers at the old handle of a log that was emptied are told that they may read on."""
    return patched(
        Registry, "rebased", lambda right, registry, handle, base, at, _: right(registry, handle, base, at, FOLDED)
    )


def restored_without_its_snapshot() -> Defect:
    def wrong(right: Any, collector: Collector, definition: Any, where: Any, shape: Shape) -> Member:
        member: Member = right(collector, definition, where, shape)
        member.snapshot = None
        return member

    return patched(Collector, "restore", wrong)


async def nothing(*_: Any, **__: Any) -> None:
    """What a step does that was forgotten."""


def numbered_anew(wrong: Defect) -> Defect:
    """Where the same transaction comes again with other numbers: elsewhere what was forgotten does no harm."""

    @contextmanager
    def both() -> Iterator[None]:
        often = {"unpublish": (15, ServerDeeds.unpublish)}
        with mock.patch("cdc.simulate.server.FORGETFUL_ODDS", 1.0), mock.patch.dict(SERVER_DEEDS, often), wrong():
            yield

    return both


def with_crashing_servers(wrong: Defect) -> Defect:
    """Where what was visible was often not on the server's disk, and the server crashes."""

    @contextmanager
    def both() -> Iterator[None]:
        often = {"crash of the server": (12, ServerDeeds.crash)}
        with mock.patch("cdc.simulate.server.LATE_ODDS", (0.9,)), mock.patch.dict(SERVER_DEEDS, often), wrong():
            yield

    return both


def with_lost_slots(wrong: Defect) -> Defect:
    """Where slots are lost often, and a person recovers."""

    @contextmanager
    def both() -> Iterator[None]:
        often = {"lose the slot": (6, ServerDeeds.lose_slot)}
        with mock.patch.dict(SERVER_DEEDS, often), wrong():
            yield

    return both


def slots_are_all_the_same() -> Defect:
    """Neither a recovery ends the shapes, nor the start that finds a new slot."""

    @contextmanager
    def both() -> Iterator[None]:
        with (
            mock.patch("cdc.recover.recovery.end_shapes", return_value=[]),
            mock.patch.object(Endings, "everything", nothing),
        ):
            yield

    return both


def with_compactions(wrong: Defect) -> Defect:
    """Where updates of a row are made one, and many rows are updated."""

    @contextmanager
    def both() -> Iterator[None]:
        often = {"updates": (16, ServerDeeds.updates)}
        with mock.patch("cdc.simulate.process.COMPACTION_ODDS", 1.0), mock.patch.dict(SERVER_DEEDS, often), wrong():
            yield

    return both


def numbers_without_a_trace(server: Server) -> None:
    """As if the transaction were not on the server's disk."""
    server.abort(server.begin())


def with_partitions(wrong: Defect) -> Defect:
    """Where there is a partitioned table, whose partitions come and go."""

    @contextmanager
    def both() -> Iterator[None]:
        often = {"partition": (8, ServerDeeds.partition)}
        with mock.patch("cdc.simulate.world.PARTITIONS_ODDS", 1.0), mock.patch.dict(SERVER_DEEDS, often), wrong():
            yield

    return both


def partitions_stay() -> Defect:
    """Neither the publication's alterations nor the looks at tables tell of partitions."""
    of_tables = patched(
        reconciliation,
        "_compare",
        lambda right, house, oid, table: right(house, oid, None if table is None else replace(table, kind="r")),
    )

    @contextmanager
    def both() -> Iterator[None]:
        with mock.patch("cdc.source.publication._partition_changes", return_value=()), of_tables():
            yield

    return both


def columns_by_their_places() -> Defect:
    def wrong(right: Any, values: Any, order: list[int], names: list[str]) -> Any:
        return right(values, sorted(order), names)

    return patched(partitions, "_struct", wrong)


DEFECTS: dict[str, Defect] = {
    "acknowledges one too much": one_too_much(),
    "takes a keepalive for one more": keepalive_plus_one(),
    "confirms before the G log has it": confirmed_before_it_is_written(),
    "does not sync the G log": unsynced("progress"),
    "does not sync the catalog": unsynced("catalog"),
    "does not sync the journal": unsynced("journal"),
    "appends what the snapshot has (A7)": all_is_new(),
    "is born from any snapshot (A6)": patched(
        Demand, "unseen", lambda _right, _demand, _snapshot: np.zeros(0, np.uint32)
    ),
    "lets go before the catalog knows (A11)": let_go_before_the_record(),
    "joins without holding G (A6)": joining_holds_nothing(),
    "owes nobody a commit (A5)": lambda: mock.patch.object(ShapeLog, "owes_commit_block", property(lambda _: False)),
    "drops the commit that comes after its rows (A5)": patched(Collector, "_commit_opened", lambda *_: None),
    "empties a base for a TRUNCATE that it has": truncates_of_the_snapshot(),
    "tells the tracker of a transaction's end only": huge_transactions_touch_their_end_only(),
    "confirms what was seen": g_is_whatever_was_seen(),
    "confirms only when something comes": lambda: mock.patch("shapes.acknowledge.ACKNOWLEDGE_LOOK_SECONDS", 1e9),
    "takes the same transaction twice when it is numbered anew": numbered_anew(
        lambda: mock.patch.object(ShapeLog, "known", property(lambda log: log.upper))
    ),
    "leaves open rows when the connection breaks (A3)": numbered_anew(
        lambda: mock.patch.object(Store, "abandon", leaves_open_rows)
    ),
    "leaves open rows in the journal at a start (A8)": numbered_anew(
        lambda: mock.patch("storage.recovery.remove_open_shares")
    ),
    "keeps G when another timeline begins (B7)": patched(FlushTracker, "reset", lambda *_: None),
    "goes on over another timeline (A2)": patched(Capture, "_continues", lambda *_: True),
    "goes on over an altered publication (A2, B9)": lambda: mock.patch.object(Endings, "by_publication", nothing),
    "goes on over an altered table": lambda: mock.patch.object(Endings, "by_relation", nothing),
    "loses the rows of a failed flush": lambda: mock.patch.object(ShapeLog, "failed", lost_after_a_failure),
    "does not read what is being flushed": lambda: mock.patch.object(
        ShapeLog, "in_memory", lambda log: [(share, False) for share in log.pending]
    ),
    "counts a TRUNCATE before its base": truncates_count_before_their_base(),
    "removes what is folded before it is recorded (A12)": folds_without_a_record(),
    "lets readers on past a TRUNCATE": folds_for_what_was_emptied(),
    "does not sync bases and segments": unsynced("logs/"),
    "filters no replays after a restart (A7)": restored_without_its_snapshot(),
    "is born from what the server's crash undoes": with_crashing_servers(
        lambda: mock.patch.object(Sql, "flush_wal", nothing)
    ),
    "waits for what the server's crash took back (A6)": with_crashing_servers(
        lambda: mock.patch.object(Server, "use_a_number", numbers_without_a_trace)
    ),
    "keeps its shapes over a slot that began anew (A2)": with_lost_slots(slots_are_all_the_same()),
    "makes updates of different rows one": with_compactions(
        patched(compaction, "fold_updates", lambda right, batches, key: right(batches, key[:1]))
    ),
    "makes a row of half a row under another key": patched(
        RowImages, "unknown_now", lambda _right, images, _name: np.zeros(len(images), np.bool_)
    ),
    "goes on over a truncated partition": with_partitions(lambda: mock.patch.object(Collector, "_end_for_partition")),
    "goes on over partitions that came or went (A2)": with_partitions(partitions_stay()),
    "takes a partition's columns by their places": with_partitions(columns_by_their_places()),
}
"""By what goes wrong."""

LATE: dict[str, int] = {
    "is born from any snapshot (A6)": 78,
    "lets go before the catalog knows (A11)": 37,
    "joins without holding G (A6)": 29,
    "owes nobody a commit (A5)": 39,
    "empties a base for a TRUNCATE that it has": 56,
    "confirms only when something comes": 17,
    "takes the same transaction twice when it is numbered anew": 19,
    "leaves open rows when the connection breaks (A3)": 57,
    "leaves open rows in the journal at a start (A8)": 41,
    "goes on over another timeline (A2)": 13,
    "goes on over an altered publication (A2, B9)": 26,
    "goes on over an altered table": 15,
    "loses the rows of a failed flush": 15,
    "does not read what is being flushed": 29,
    "counts a TRUNCATE before its base": 193,
    "filters no replays after a restart (A7)": 91,
    "is born from what the server's crash undoes": 235,
    "waits for what the server's crash took back (A6)": 57,
    "makes updates of different rows one": 33,
    "goes on over a truncated partition": 52,
}
"""Of those that are rare, a story that showed it when it was written down: it is looked at before all others."""
