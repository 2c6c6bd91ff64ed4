"""The collector and a store on a disk in memory, against lists: whatever happens in whatever order.

Transactions of two tables are cut into fragments anywhere; shapes join, are born from snapshots that have seen any of
what came since, and end, between transactions or in the middle; flushes are begun and end later, connections break,
the process crashes and what a crash leaves of the disk is what the next one finds.

After each step, for each shape:
    its log has the rows that a walk over the server's history gives it, once, in order, by whole transactions (A7, A8)
    G is the end of the last event of which all is reported durable, to the byte, and never above what is on disk
    no TRUNCATE lies below G whose log has no base from there on
At the end, when all is flushed, G is the end of the stream: nothing holds it that nobody will free.
"""

from dataclasses import dataclass, field
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from cdc.source.fragments import Fragment, Kind
from flush_tracker.tracker import FlushTracker
from shapes.collector import Collector
from shapes.definition import Definition
from shapes.members import Member
from shapes.where.clause import Clause
from shapes.where.tree import Expr
from storage.catalog_records import Life, Shape, Snapshot
from storage.errors import BufferFull
from storage.flush import Flushed, FlushJob
from storage.log_facts import LogFacts
from storage.memory_disk import MemoryDisk, in_runs
from storage.offset import OP_INFINITE, SNAPSHOT_END, LogOffset
from storage.rows import NEW
from storage.store import Store
from storage.store_reader import StoreReader
from storage.truncation import empty_base
from tests.unit.builders import Clock
from tests.unit.plain_stream import TABLES, Draw, PlainStream, Transaction
from tests.unit.table_strategies import column, defined, table
from tests.world import small_options

COLUMNS = (column("id", 1, pk_index=0), column("part", 2))
PARTS = ("0", "1", "2")

DRAWS = st.lists(
    st.builds(
        Draw,
        st.sampled_from(TABLES),
        st.sampled_from(["put"] * 8 + ["delete"] * 3 + ["truncate"]),
        st.sampled_from(["1", "2", "3", "4"]),
        st.sampled_from(PARTS),
    ),
    max_size=6,
)

Row = tuple[int, int, Kind, str | None]


def definition_of(oid: int, part: str | None) -> Definition:
    where = None if part is None else f"part = '{part}'"
    return defined(table(*COLUMNS, oid=oid, name=f"t{oid}", root=oid), where=where)


def tree_of(definition: Definition) -> Expr | None:
    types = {one.name: one.for_where for one in COLUMNS}
    return None if definition.where is None else Clause.stored(definition.where, types).tree


@dataclass
class Known:
    """A shape as the model has it."""

    oid: int
    part: str | None
    definition: Definition
    member: Member
    joined: int
    """How many transactions had passed, those included that are just being sent again."""
    floor: int | None
    floor_until: LogOffset | None = None
    """G stays at the floor until so much is durable; None before the birth."""
    shape: Shape | None = None
    seen: frozenset[int] = frozenset()
    """The transactions that its snapshot has."""
    reported: LogOffset | None = None
    """How far the tracker knows it to be durable; None: it is not known to the tracker yet."""

    def told(self, one: Transaction) -> list[Row]:
        """What a transaction leaves in its log: a walk, a change at a time."""
        rows: list[Row] = []
        for sent in one.sent if one.number not in self.seen else ():
            change = sent.change
            if sent.table != self.oid:
                continue
            was, now = (row is not None and self.part in (None, row["part"]) for row in (change.before, change.after))
            kind = {(False, True): Kind.INSERT, (True, True): Kind.UPDATE, (True, False): Kind.DELETE}.get((was, now))
            row = change.after or change.before
            if change.kind is Kind.TRUNCATE:
                rows.append((change.tx, change.op, Kind.TRUNCATE, None))
            elif kind is not None and change.before != change.after:
                assert row is not None
                rows.append((change.tx, change.op, kind, row["id"]))
        return rows


@dataclass
class Process:
    """What a crash takes away."""

    store: Store
    collector: Collector
    start: int
    job: FlushJob | None = None
    events: list[tuple[Transaction | None, int]] = field(default_factory=list)
    """What the tracker was told, each with its end: commits and keepalives."""
    reached: int = 0
    """How many transactions were sent whole to this process, or are below its start."""
    waiting: dict[int, Member] = field(default_factory=dict)


class CollectorLife(RuleBasedStateMachine):
    """The world around one collector."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.clock = Clock()
        self.stream = PlainStream()
        self.shapes: list[Known] = []
        self.logs = 0
        self.confirmed = 1_000
        self.process = self.begin()

    def begin(self) -> Process:
        store = Store(self.disk, self.clock.clocks(), small_options(), confirmed_tx=self.confirmed)
        collector = Collector(store, FlushTracker("this slot", self.confirmed))
        process = Process(store, collector, self.confirmed)
        self.stream.connect(self.confirmed)
        process.reached = self.stream.passed
        for known in self.shapes:
            assert known.shape is not None
            known.member = collector.restore(known.definition, tree_of(known.definition), known.shape)
            known.floor = known.reported = None
        collector.resume(self.confirmed)
        return process

    # The server

    @rule(draws=DRAWS, gap=st.sampled_from([0, 7]))
    def commit(self, draws: list[Draw], gap: int) -> None:
        self.stream.commit(draws, gap)

    # The stream

    @rule(count=st.integers(1, 12))
    def send(self, count: int) -> None:
        process, before = self.process, self.stream.passed
        fragment = self.stream.send(count)
        if fragment is None:
            return
        plan = process.collector.plan(fragment, 0.0)
        assert not plan.faults
        for number, at in plan.repeated.items():
            member = process.collector.members.get(number)
            assert member is not None
            self.give_base(member, at)
        process.collector.commit(plan, 0.0)
        for known in self.shapes:
            if known.reported is None and known.shape and process.store.logs.peek(known.shape.log):
                known.reported = process.store.marks(known.shape.log)[1]
        process.events += [
            (one, one.end)
            for one in self.stream.transactions[before : self.stream.passed]
            if one.number >= process.reached
        ]
        process.reached = max(process.reached, self.stream.passed)
        while True:
            try:
                process.collector.append(plan)
                break
            except BufferFull:
                self.flush()
        process.collector.finish(plan)

    @precondition(lambda self: self.stream.is_between)
    @rule()
    def keepalive(self) -> None:
        end = self.stream.wal_end
        self.process.collector.idle_at(end)
        if end > self.seen():
            self.process.events.append((None, end))

    @rule()
    def reconnect(self) -> None:
        self.finish_flush()
        collector = self.process.collector
        for member in collector.joining():
            collector.end(member.number)
        self.shapes = [known for known in self.shapes if known.shape is not None]
        self.process.store.abandon()
        self.stream.connect(self.confirmed)
        collector.resume(self.confirmed)

    @rule(seed=st.integers(0, 1 << 30))
    def crash(self, seed: int) -> None:
        self.shapes = [known for known in self.shapes if known.shape is not None]
        self.disk = self.disk.crash_image(in_runs(Random(seed).randrange))
        self.process = self.begin()

    # The shapes

    @precondition(lambda self: self.stream.is_between and len(self.shapes) < 6)
    @rule(oid=st.sampled_from(TABLES), part=st.sampled_from([None, *PARTS]))
    def join(self, oid: int, part: str | None) -> None:
        definition = definition_of(oid, part)
        floor = self.seen()
        member = self.process.collector.join(definition, tree_of(definition), 0.0)
        self.shapes.append(Known(oid, part, definition, member, self.process.reached, floor))

    @precondition(lambda self: self.stream.is_between and any(known.shape is None for known in self.shapes))
    @rule(which=st.integers(0, 9), upto=st.integers(0, 9), unseen=st.sets(st.integers(0, 9)), late=st.integers(0, 30))
    def born(self, which: int, upto: int, unseen: set[int], late: int) -> None:
        """From a snapshot that sees all that was streamed before the join (A6), and some of what came since."""
        young = [known for known in self.shapes if known.shape is None]
        known = young[which % len(young)]
        everything = self.stream.transactions
        looked = max(known.joined + upto, self.stream.passed)
        # A table's lock comes before its snapshot: no TRUNCATE is in flight then, so it has seen those before it.
        seen = [
            one
            for one in everything[:looked]
            if one.number < known.joined
            or one.number - known.joined not in unseen
            or any(sent.change.kind is Kind.TRUNCATE for sent in one.sent)
        ]
        xids = {one.xid for one in seen}
        xmax = max(xids, default=699) + 1
        xip = tuple(xid for xid in range(700, xmax) if xid not in xids)  # also those that have not committed yet
        birth = max((one.commit + 1 for one in seen), default=1_000) + late
        self.logs += 1
        snapshot = Snapshot(min(xip, default=xmax), xmax, xip, birth)
        # What lies at or above the birth is appended: nothing that committed there was seen.
        known.seen = frozenset(one.number for one in seen)
        known.shape = Shape(f"handle-{self.logs}", self.logs, None, {}, snapshot, Life.READY)
        collector = self.process.collector
        self.process.store.create_log(LogFacts(self.logs, known.shape.handle, ("id",)))
        held = [one for one in everything[known.joined : self.stream.passed] if known.told(one)]
        while True:
            try:
                collector.born(known.member, known.shape, 0.0)
                break
            except BufferFull:
                self.flush()
        known.reported = SNAPSHOT_END
        if held:
            known.floor_until = LogOffset(held[-1].commit, 0)
        else:
            known.floor = None

    @precondition(lambda self: self.shapes)
    @rule(which=st.integers(0, 9))
    def end(self, which: int) -> None:
        known = self.shapes.pop(which % len(self.shapes))
        self.process.collector.end(known.member.number)
        self.process.waiting.pop(known.member.number, None)
        if known.shape is not None:
            self.process.store.remove_log(known.shape.log)

    # The disk

    @rule()
    def begin_flush(self) -> None:
        process = self.process
        if process.job is None:
            logs = [
                known.shape.log for known in self.shapes if known.shape and process.store.logs.peek(known.shape.log)
            ]
            process.job = process.store.begin_flush(demand=logs)

    @rule()
    def finish_flush(self) -> None:
        process = self.process
        if process.job is not None:
            job, process.job = process.job, None
            job.run(process.store.disk)
            self.tell(process.store.end_flush(job))

    def flush(self) -> None:
        self.finish_flush()
        self.begin_flush()
        self.finish_flush()

    @rule()
    def give_bases(self) -> None:
        waiting, self.process.waiting = self.process.waiting, {}
        for member in waiting.values():
            at, log = member.truncated_at, member.log
            assert at is not None
            assert log is not None
            durable = self.process.store.marks(log)[1]
            self.give_base(member, at)
            member.truncated_at = None
            self.process.collector.durable(member, durable, 0.0)
            self.report(log, durable)

    @rule()
    def confirm(self) -> None:
        assert self.process.collector.tracker.g.lsn >= self.confirmed
        self.confirmed = self.process.collector.tracker.g.lsn

    def give_base(self, member: Member, at: LogOffset) -> None:
        assert member.log is not None
        empty_base(self.process.store, member.log, at, written_at=0)

    def tell(self, news: list[Flushed]) -> None:
        waiting = {member.number: member for member in self.process.collector.flushed(news, 0.0)}
        self.process.waiting |= waiting
        held_back = {member.log for member in waiting.values()}
        for one in news:
            if one.log not in held_back:
                self.report(one.log, one.aligned)

    def report(self, log: int, aligned: LogOffset) -> None:
        for known in self.shapes:
            if known.shape is not None and known.shape.log == log:
                known.reported = max(known.reported or SNAPSHOT_END, aligned)
                if known.floor_until is not None and known.reported >= known.floor_until:
                    known.floor = known.floor_until = None

    # What must be true

    def seen(self) -> int:
        return self.process.events[-1][1] if self.process.events else self.process.start

    def exact_g(self) -> int:
        g = self.process.start
        born = [known for known in self.shapes if known.shape is not None]
        for one, end in self.process.events:
            if one is not None and any(
                known.told(one) and (known.reported is None or known.reported.tx < one.commit) for known in born
            ):
                break
            g = end
        return min([g, *(known.floor for known in self.shapes if known.floor is not None)])

    @invariant()
    def g_is_exact(self) -> None:
        assert self.process.collector.tracker.g.lsn == self.exact_g()

    @invariant()
    def logs_are_the_history(self) -> None:
        store, g = self.process.store, self.process.collector.tracker.g.lsn
        for known in self.shapes:
            if known.shape is None or store.logs.peek(known.shape.log) is None:
                continue
            log = known.shape.log
            visible, durable = store.marks(log)
            rows = [row for one in self.stream.transactions for row in known.told(one)]
            due = [row for one in self.stream.transactions[: self.process.reached] for row in known.told(one)]
            base, found = self.read(log)
            expected = [row for row in rows if row[0] <= visible.tx and LogOffset(*row[:2]) > base]
            assert found == expected, f"log {log}"
            assert not due or visible.tx >= due[-1][0], f"log {log} lacks what was sent"
            below = [LogOffset(*row[:2]) for row in rows if row[0] < g]
            assert not below or below[-1] <= durable, f"G is {g}, and log {log} has {durable} on disk"
            emptied = [LogOffset(*row[:2]) for row in rows if row[0] < g and row[2] is Kind.TRUNCATE]
            assert not emptied or emptied[-1] <= base, f"G is {g}, and log {log} has no base from {emptied[-1]} on"

    def read(self, log: int) -> tuple[LogOffset, list[Row]]:
        """Where the newest base of a log ends, and the rows behind it."""
        reader = StoreReader(self.process.store)
        base = max(reader.bases(log), key=lambda one: one.last, default=None)
        last, position = (SNAPSHOT_END, SNAPSHOT_END) if base is None else (base.last, base.floor)
        found: list[Row] = []
        while True:
            result = reader.read(log, position)
            for batch in result.rows:
                for row in batch.to_pylist():
                    key = row[NEW]["id"] if row[NEW] is not None else None
                    found.append((row["tx"], row["op"], Kind(row["kind"]), key))
            if result.at_end:
                return last, [row for row in found if LogOffset(*row[:2]) > last]
            position = result.next

    def teardown(self) -> None:
        """Nothing holds G that nobody will free."""
        self.send(len(self.stream.items) or 1)
        for known in list(self.shapes):
            if known.shape is None:
                self.end(self.shapes.index(known))
        for _ in range(10):
            self.flush()
            self.give_bases()
        self.logs_are_the_history()
        assert self.process.collector.tracker.g.lsn == self.seen()
        assert LogOffset(self.seen(), OP_INFINITE) >= self.process.collector.upto


def test_each_log_is_the_history_after_any_replay() -> None:
    profile = settings()
    run_state_machine_as_test(
        CollectorLife, settings=settings(profile, stateful_step_count=40, max_examples=max(200, profile.max_examples))
    )


def take(collector: Collector, fragment: Fragment) -> None:
    plan = collector.plan(fragment, 0.0)
    collector.commit(plan, 0.0)
    collector.append(plan)
    collector.finish(plan)


def restored(store: Store, at: int, snapshot: Snapshot) -> Collector:
    """With one shape, of all rows of table 1, that goes on."""
    collector = Collector(store, FlushTracker("this slot", at))
    store.create_log(LogFacts(1, "handle-1", ("id",)))
    shape = Shape("handle-1", 1, None, {}, snapshot, Life.READY)
    collector.restore(definition_of(1, None), None, shape)
    return collector


def test_what_is_held_of_a_transaction_in_pieces_is_durable_up_to_its_end() -> None:
    """When its first rows came, nobody knew how many changes it would have."""
    stream = PlainStream()
    store = Store(MemoryDisk(), Clock().clocks(), small_options())
    collector = Collector(store, FlushTracker("this slot", stream.lsn))
    member = collector.join(definition_of(1, None), None, 0.0)
    stream.commit([Draw(1, "put", "1", "0"), Draw(1, "put", "2", "0"), *[Draw(2, "put", "1", "0")] * 5], 0)
    while (fragment := stream.send(2)) is not None:
        take(collector, fragment)
    store.create_log(LogFacts(1, "handle-1", ("id",)))
    shape = Shape("handle-1", 1, None, {}, Snapshot(700, 700, (), stream.transactions[0].commit), Life.READY)
    collector.born(member, shape, 0.0)
    assert collector.tracker.g.lsn == 1_000
    collector.flushed(store.flush(demand=[1]), 0.0)
    assert store.marks(1) == (LogOffset.aligned(1_000, 7),) * 2
    assert collector.tracker.g.lsn == stream.lsn


def test_a_transaction_in_pieces_is_pending_where_only_the_first_has_rows() -> None:
    stream = PlainStream()
    store = Store(MemoryDisk(), Clock().clocks(), small_options())
    collector = restored(store, stream.lsn, Snapshot(700, 700, (), 0))
    before = stream.lsn
    stream.commit([Draw(1, "put", "1", "0"), *[Draw(2, "put", "1", "0")] * 6], 0)
    while (fragment := stream.send(2)) is not None:
        take(collector, fragment)
    assert collector.tracker.g.lsn == before
    collector.flushed(store.flush(demand=[1]), 0.0)
    assert store.marks(1) == (LogOffset.aligned(1_000, 7),) * 2
    assert collector.tracker.g.lsn == stream.lsn


def test_a_fragment_may_lie_on_both_sides_of_a_birth() -> None:
    """After a restart a backlog comes again in other pieces than before."""
    stream = PlainStream()
    store = Store(MemoryDisk(), Clock().clocks(), small_options())
    for key in ("1", "2"):
        stream.commit([Draw(1, "put", key, "0")], 0)
    old, new = stream.transactions
    collector = restored(store, old.commit, Snapshot(new.xid, old.xid + 1, (new.xid,), old.commit + 1))
    fragment = stream.send(100)
    assert fragment is not None
    assert fragment.ended_count == 2
    take(collector, fragment)
    assert collector.tracker.g.lsn == old.end
    (rows,) = StoreReader(store).read(1, SNAPSHOT_END).rows
    assert rows.column("tx").to_pylist() == [new.commit]


def test_a_transaction_told_on_one_connection_and_appended_on_another_is_the_same_whatever_its_numbers() -> None:
    """The first connection breaks between commit and append; the second counts a change more, as old servers may."""
    draw = Draw(1, "put", "1", "0")
    first, second = PlainStream(), PlainStream()
    first.commit([draw], 0)
    second.commit([Draw(2, "put", "1", "0"), draw], 0)
    store = Store(MemoryDisk(), Clock().clocks(), small_options())
    collector = restored(store, first.lsn - 10, Snapshot(700, 700, (), 0))
    fragment = first.send(10)
    assert fragment is not None
    collector.commit(collector.plan(fragment, 0.0), 0.0)

    collector.resume(0)
    again = second.send(10)
    assert again is not None
    take(collector, again)
    assert collector.tracker.g.lsn == 1_000
    collector.flushed(store.flush(demand=[1]), 1.0)
    assert store.marks(1) == (LogOffset.aligned(1_000, 2),) * 2
    assert collector.tracker.g.lsn == first.lsn
