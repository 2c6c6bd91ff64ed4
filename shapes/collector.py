"""The pipeline's core: events of the stream in, rows in logs and commits in the flush tracker out. No waits, no clock.

What a fragment needs is found once (`plan`), and then done in steps that may be repeated until the disk has room:

    plan      which rows for whom; who has to end, and why          nothing has moved
    commit    the tracker hears of the transactions that ended      before any flush of their rows can be reported
    append    the logs get their rows and the ends of transactions  idempotent: a log knows what it has
    finish    the stream is past the fragment

Invariants:
    shapes join, are born and leave between transactions only, so none ever gets a part of one
    the tracker is told of a transaction iff it left a row in a shape's log that its snapshot has not
    `opened` are the shapes that got rows of the transaction that is being received
    the logs are whole up to `upto`, whoever got rows of it
"""

from collections.abc import Iterable, Sequence

import numpy as np

from cdc.source.fragments import Changes, Fragment, Kind
from cdc.source.numbers import Flags
from flush_tracker.tracker import FlushTracker
from shapes.definition import Definition
from shapes.deliveries import deliver
from shapes.faults import ShapeFault, log_stopped
from shapes.feeds import Feed, Plan
from shapes.members import Held, Member, Members
from shapes.partitions import Partitions
from shapes.routing import Router
from shapes.snapshot_filter import is_to_append
from shapes.streamed import Streamed
from shapes.views import View
from shapes.where.tree import Expr
from storage.catalog_records import Shape
from storage.errors import LogFault, UnknownLog
from storage.flush import Flushed
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.rows import KIND, OP, TX, Integers, column
from storage.store import Store

_NONE: Integers = np.zeros(0, np.int64)


class Collector:
    """Everything between the decoded stream and the store."""

    def __init__(self, store: Store, tracker: FlushTracker) -> None:
        self.store = store
        self.tracker = tracker
        self.members = Members()
        self.router = Router()
        self.partitions = Partitions()
        self.opened: Integers = _NONE
        self.upto = SNAPSHOT_END
        self.touched_count = 0
        """How many shapes the last fragment touched."""
        self.streamed: Streamed | None = None
        """What a new shape's snapshot must have seen (A6); there from the first connection on."""
        self._joining: dict[int, Member] = {}
        self._truncates: dict[int, LogOffset] = {}
        """Of the transaction that is being received."""
        self._told_before = 0
        """The tracker heard of transactions below it on earlier connections: they may come numbered otherwise."""

    # The stream

    @property
    def is_between(self) -> bool:
        """No transaction is being received."""
        return self.tracker.open_tx is None

    def resume(self, start: int) -> None:
        """A connection begins, and sends every transaction from `start` on. What was open is dropped in the store."""
        assert not self._joining, "shapes that have joined leave first: their rows come again"
        self.tracker.drop_open()
        self._told_before = self.tracker.seen.lsn
        self.opened = _NONE
        self._truncates = {}
        self.upto = LogOffset(start - 1, OP_INFINITE) if start else SNAPSHOT_END
        self.store.resume(self.upto)

    def idle_at(self, wal_end: int) -> None:
        """A keepalive, in its place behind the data (A1)."""
        self.tracker.idle_at(wal_end)

    def plan(self, fragment: Fragment, now: float) -> Plan:
        """Find out what is to be done; only logs of an earlier life are opened."""
        plan = Plan(fragment, [])

        def is_excused(number: int, ordinals: Integers) -> bool:
            return not self._is_told(number, fragment, ordinals).any()

        for table, changes in self._by_table(fragment):
            delivered = deliver(changes, fragment.transactions.xid, table, self.router, self._view_of, is_excused)
            plan.faults.update(delivered.faults)
            plan.feeds += map(Feed.of, delivered.parts)
            if fragment.truncates:
                self._note_truncates(plan, table, changes)
        for root, changes in self.partitions.truncated(fragment):
            self._end_for_partition(plan, root, changes)
        if len(fragment.transactions):
            plan.feeds = [feed for feed in (self._filtered(plan, feed) for feed in plan.feeds) if len(feed.shapes)]
        self._attach(plan, now)
        self._note_repeated(plan)
        return plan

    def commit(self, plan: Plan, now: float) -> None:
        """Tell the tracker. Once."""
        # Nobody knows yet which of their rows the snapshots of those that joined have. Their floor holds G for them.
        joined = np.array(sorted(self._joining), np.int64)
        self.tracker.commits(plan.commits(), plan.touched(self.opened, without=joined), now)
        if plan.fragment.ends_open:
            self.tracker.begin_open(int(plan.fragment.transactions.commit_lsn[-1]))

    def append(self, plan: Plan) -> None:
        """Give the logs what is theirs; may raise what `Store.append_fragment` raises, and be called again."""
        upto = self._upto(plan)
        feeds = [feed.where(self.members.logs(feed.owners) >= 0) for feed in plan.feeds]
        self._commit_opened(plan, feeds)
        for feed in feeds:
            if len(feed.shapes):
                shares = plan.shares(feed, self.members.logs(feed.shapes))
                self.store.append_fragment(feed.rows, shares, after=self.upto, upto=upto)
        self.store.resume(upto)

    def finish(self, plan: Plan) -> None:
        """The stream is past the fragment."""
        fragment = plan.fragment
        self._hold(plan)
        self.touched_count = sum(len(feed.shapes) for feed in plan.feeds)
        self.upto = self._upto(plan)
        if self.streamed is not None:
            self.streamed.add(fragment.transactions.xid[: plan.ended_count])
        is_same = fragment.begins_open and not plan.ended_count
        still = plan.still_open()
        self.opened = np.union1d(self.opened, still) if is_same else still
        self._settle_truncates(plan)

    # The shapes

    def restore(self, definition: Definition, where: Expr | None, shape: Shape) -> Member:
        """A shape of an earlier life goes on. Its log is opened when its first row comes."""
        member = self.members.add(definition)
        self.members.settle(member, shape.handle, shape.log, shape.snapshot)
        self.router.add(member.number, member.table, where)
        return member

    def join(self, definition: Definition, where: Expr | None, now: float) -> Member:
        """From here on the shape's rows are held, and so is G (A6). Between transactions."""
        assert self.is_between, "a shape joins between transactions"
        member = self.members.add(definition)
        member.held = Held(now)
        self.members.attached(member.number)
        self.router.add(member.number, member.table, where)
        self.tracker.attach(member.number, now, floor=self.tracker.seen.lsn)
        self._joining[member.number] = member
        return member

    def born(self, member: Member, shape: Shape, now: float) -> None:
        """Its identity is on disk, and its log is made: rows held since the join go there, if its snapshot lacks them.

        Between transactions; may be called again after `BufferFull`.
        """
        assert self.is_between, "a shape is born between transactions"
        assert member.held is not None, "it has joined, and is born once"
        released = member.held.released(shape.snapshot)
        if released is not None:
            rows, end = released
            self.store.append(shape.log, rows, after=SNAPSHOT_END, aligned=end)
            member.told_from = end
        self.members.settle(member, shape.handle, shape.log, shape.snapshot)
        member.held = None
        del self._joining[member.number]
        if released is None:
            self.tracker.born(member.number, now)

    def end(self, number: int) -> Member | None:
        """The shape has ended, on disk before this is called (A11); or it has joined, and leaves unborn."""
        member = self.members.remove(number)
        if member is not None:
            self.router.remove(number)
            self.tracker.detach(number)
            self._joining.pop(number, None)
            self._truncates.pop(number, None)
            self.opened = self.opened[self.opened != number]
            if not self.members.has_table(member.table):
                self.partitions.forget(member.table)
        return member

    def joining(self) -> Sequence[Member]:
        """Those that have joined and are not born."""
        return list(self._joining.values())

    # The disk

    def flushed(self, news: Iterable[Flushed], now: float) -> list[Member]:
        """Logs are durable further. Returns the shapes whose TRUNCATE is durable and wants a base before it counts."""
        waiting = []
        for one in news:
            member = self.members.of_log(one.log)
            if member is None:
                continue
            if member.truncated_at is not None and one.aligned >= member.truncated_at:
                waiting.append(member)
            self.durable(member, one.aligned, now)
        return waiting

    def durable(self, member: Member, aligned: LogOffset, now: float) -> None:
        """Tell the tracker how far a shape is durable."""
        if member.truncated_at is not None and aligned >= member.truncated_at:
            return  # its base comes first: until then a crash must send the TRUNCATE again
        if aligned >= member.told_from:
            self.tracker.born(member.number, now)
        if aligned > member.told_from:
            self.tracker.flushed(member.number, self._as_told(member.number, aligned), now)

    # Inside

    def _as_told(self, number: int, aligned: LogOffset) -> LogOffset:
        """The end of a whole transaction as the tracker heard of it.

        A connection that breaks between commit and append leaves a transaction with the tracker and not in the log.
        Old servers may number its changes otherwise when they send it again, and so the log has it.
        """
        if aligned.tx >= self._told_before:
            return aligned
        return self.tracker.end_of(number, aligned.tx) or aligned

    def _by_table(self, fragment: Fragment) -> Iterable[tuple[int, Changes]]:
        """The changes of each table that somebody follows: of leaves under their own oid, and under their roots'."""
        for changes in fragment.changes:
            if self.router.has_table(changes.relation.oid):
                yield changes.relation.oid, changes
        for root, changes in self.partitions.merged(fragment):
            if self.router.has_table(root):
                yield root, changes

    def _view_of(self, number: int) -> View:
        member = self.members.get(number)
        assert member is not None, "the router knows members only"
        return member.view

    def _filtered(self, plan: Plan, feed: Feed) -> Feed:
        """Without what the snapshots of young shapes have."""
        young = self.members.young(feed.shapes, int(plan.fragment.transactions.commit_lsn[0]))
        if not len(young):
            return feed
        owners = feed.owners
        kept = np.ones(len(owners), np.bool_)
        for number in young.tolist():
            own = np.flatnonzero(owners == number)
            kept[own] = self._is_told(number, plan.fragment, feed.ordinals[own])
        return feed.where(kept)

    def _is_told(self, number: int, fragment: Fragment, ordinals: Integers) -> Flags:
        """For each of these transactions, whether its rows belong in the shape's log (A7)."""
        member, transactions = self.members.get(number), fragment.transactions
        if member is None or member.snapshot is None:
            return np.ones(len(ordinals), np.bool_)
        return is_to_append(member.snapshot, transactions.commit_lsn[ordinals], transactions.xid[ordinals])

    def _end_for_partition(self, plan: Plan, root: int, changes: Changes) -> None:
        """A TRUNCATE of one partition: only a new snapshot says what is left of the root."""
        if not self.router.has_table(root):
            return
        text = f"the partition {changes.relation} was truncated"
        fault = ShapeFault("partition_truncated", text, "Ask for the shape again; a named one begins anew by itself.")
        ended = [
            number
            for number in self.router.shapes_of(root).tolist()
            if self._is_told(number, plan.fragment, changes.transaction).any()
        ]
        plan.faults |= dict.fromkeys(ended, fault)
        plan.without(ended)

    def _attach(self, plan: Plan, now: float) -> None:
        """Open the logs of an earlier life that get rows for the first time."""
        lost: list[int] = []
        for feed in plan.feeds:
            for number in self.members.unattached(feed.shapes).tolist():
                member = self.members.get(number)
                assert member is not None
                assert member.log is not None
                try:
                    _, durable = self.store.marks(member.log)
                except (LogFault, UnknownLog) as fault:
                    plan.faults[number] = log_stopped(fault)
                    lost.append(number)
                    continue
                self.tracker.attach(number, now, durable=durable)
                self.members.attached(number)
        if lost:
            plan.without(lost)

    def _note_truncates(self, plan: Plan, table: int, changes: Changes) -> None:
        rows = np.flatnonzero(column(changes.rows, KIND) == Kind.TRUNCATE)
        if len(rows):
            last = int(rows[-1])
            at = LogOffset(int(column(changes.rows, TX)[last]), int(column(changes.rows, OP)[last]))
            # A snapshot that has seen the TRUNCATE has the rows of after it: an empty base would lose them (A7).
            ordinals = changes.transaction[last : last + 1]
            shapes = self.router.shapes_of(table).tolist()
            plan.truncated |= {one: at for one in shapes if self._is_told(one, plan.fragment, ordinals).any()}

    def _note_repeated(self, plan: Plan) -> None:
        """Tell apart the TRUNCATEs that are durable already: no flush of theirs will come any more."""
        for number, at in list(plan.truncated.items()):
            log = int(self.members.logs(np.array([number]))[0])
            if log >= 0 and number not in plan.faults and self.store.marks(log)[1] >= at:
                plan.repeated[number] = plan.truncated.pop(number)

    def _commit_opened(self, plan: Plan, feeds: Sequence[Feed]) -> None:
        """End the transaction that began in an earlier fragment, in logs that get no rows of ended ones here."""
        if not (plan.fragment.begins_open and plan.ended_count):
            return
        ended = [plan.ended_in(feed) for feed in feeds]
        others = np.setdiff1d(self.opened, np.concatenate(ended)) if ended else self.opened
        end = plan.fragment.aligned_offset(0)
        for log in self.members.logs(others).tolist():
            if log >= 0:
                self.store.commit(log, end)

    def _settle_truncates(self, plan: Plan) -> None:
        """Those whose transaction has ended count from now on."""
        self._truncates |= plan.truncated
        if plan.ended_count and self._truncates:
            end = plan.fragment.aligned_offset(plan.ended_count - 1)
            for number in [number for number, at in self._truncates.items() if at <= end]:
                at, member = self._truncates.pop(number), self.members.get(number)
                if member is not None and member.held is None:
                    member.truncated_at = at

    def _upto(self, plan: Plan) -> LogOffset:
        """How far the stream is whole, with this fragment."""
        fragment = plan.fragment
        if fragment.ends_open and fragment.transactions.changes[-1]:
            return fragment.aligned_offset(-1)
        return fragment.aligned_offset(plan.ended_count - 1) if plan.ended_count else self.upto

    def _hold(self, plan: Plan) -> None:
        """Keep the rows of those that are not born, and learn where the transaction ended whose rows they have."""
        fragment, transactions = plan.fragment, plan.fragment.transactions
        for member in self._joining.values():
            assert member.held is not None
            if fragment.begins_open and plan.ended_count:
                end = fragment.aligned_offset(0)
                member.held.ended(end.tx, end.op)
            for feed in plan.feeds:
                own = np.flatnonzero(feed.owners == member.number)
                if not len(own):
                    continue
                ordinals = np.unique(feed.ordinals[own])
                changes = transactions.changes[ordinals].astype(np.int64)
                member.held.add(
                    feed.rows.take(feed.indices[own]),
                    transactions.commit_lsn[ordinals],
                    transactions.xid[ordinals].astype(np.uint64),
                    np.where(changes > 0, 2 * changes - 1, 0).astype(np.uint64),
                )
