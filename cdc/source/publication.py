"""What a publication must be for the tables that are followed, and the statements that make it so. Pure.

Two modes. Managed: we own the publication, add and remove tables, and set replica identities. Manual: we change
nothing; where something is missing, the statements are printed and the start is refused.

`publish_via_partition_root` stays false: otherwise Postgres sends nothing for the truncate of one partition. So the
stream speaks of leaves, and the root of each is looked up here.

Invariants:
    a plan's statements, run in order, leave nothing to plan for the same tables
    two states are equal iff nothing was altered between them: rows' oids and xmins change with every alteration
    no statement comes from a plan in manual mode
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal

Mode = Literal["managed", "manual"]

ROW_ACTIONS: Final = ("insert", "update", "delete", "truncate")
SCHEMAS_SINCE: Final = 150_000
GENERATED_SINCE: Final = 180_000


class OldRow(IntEnum):
    """What must be sent of a row as it was before an UPDATE or DELETE; each has those above it too."""

    ANY = 0
    """Whatever lets Postgres publish them: enough for a look that leaves the tables as they are."""
    KEY = 1
    """The shape's key: the primary key, or all columns where there is none."""
    LONG_VALUES = 2
    """Values that may be stored out of line: without them nobody can tell a row whose key changed."""
    WHOLE = 3
    """Every column: for conditions, and for whoever asks for whole rows."""


def demanded(old_row: OldRow, mode: Mode) -> OldRow:
    """Where we alter nothing, whether keys of rows with long values ever change is for the owner to know."""
    return OldRow.KEY if old_row is OldRow.LONG_VALUES and mode == "manual" else old_row


@dataclass(frozen=True, slots=True)
class Member:
    """A table's row, or a schema's, in the publication: its oid and xmin change when somebody alters it."""

    oid: int
    xmin: int
    name: str
    row_filter: str | None = None
    columns: tuple[str, ...] | None = None


Partitions = Mapping[str, str]
"""The leaves of a partitioned table by their oids, and how each hangs on it: another text once it was detached and
attached again. All is text, as it is kept in JSON with G."""


@dataclass(frozen=True, slots=True)
class PublicationState:
    """A publication as the catalog has it; `oid` is None where there is none."""

    name: str
    oid: int | None = None
    xmin: int = 0
    owner: str = ""
    all_tables: bool = False
    via_root: bool = False
    actions: tuple[str, ...] = ROW_ACTIONS
    generated: str = ""
    """`publish_generated_columns` of Postgres 18: n(one) or s(tored)."""
    tables: Mapping[int, Member] = field(default_factory=dict)
    schemas: Mapping[int, Member] = field(default_factory=dict)
    partitions: Mapping[str, Partitions] = field(default_factory=dict)
    """Of each partitioned table that is published, by its oid; an empty one where it has none yet."""
    placed: Mapping[str, str] = field(default_factory=dict)
    """The tables of the published schemas by their oids, and who put each there: another once it left and came back."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as the catalog has it."""

    oid: int
    schema: str
    name: str
    kind: str
    """`pg_class.relkind`: r(elation), p(artitioned), and those that cannot be followed."""
    persistence: str
    replica_identity: str
    has_key: bool
    root: int
    """The topmost table of its partitions; itself if it is none."""
    schema_oid: int = 0
    generated_columns: tuple[str, ...] = ()
    toastable_columns: tuple[str, ...] = ()
    """Columns whose values may be stored out of line, and are then not sent when they did not change."""
    row_security: bool = False

    @property
    def can_identify(self) -> bool:
        """Whether UPDATE and DELETE may be published: without an identity, publishing makes them fail."""
        return self.replica_identity in "fi" or (self.replica_identity == "d" and self.has_key)

    @property
    def sends_key(self) -> bool:
        """Whether the primary key is sent with every change; an identity by another index need not have it."""
        return self.replica_identity == "f" or (self.replica_identity == "d" and self.has_key)

    @property
    def sql(self) -> str:
        """The name as SQL has it."""
        return f"{quote(self.schema)}.{quote(self.name)}"

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class PublicationChange:
    """What somebody altered; `table` is None where it concerns all."""

    table: int | None
    text: str
    parts: frozenset[int] = frozenset()
    """Partitions of the table, at whatever depth, that it concerns too: they were published through it."""

    @property
    def tables(self) -> frozenset[int]:
        """All that it concerns, one by one; none where it concerns all."""
        return self.parts if self.table is None else self.parts | {self.table}


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a plan."""

    sql: str
    table: int | None
    """Whose lock it needs; None if that of no table."""
    alters: str | None = None
    """The table that is altered, as SQL has it: nobody else may use it meanwhile. None where the publication is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that no statement mends."""

    table: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done before tables can be followed."""

    steps: tuple[Step, ...] = ()
    faults: tuple[Fault, ...] = ()


def quote(name: str) -> str:
    """An identifier as SQL has it, quoted always: keywords and capitals need no thought then."""
    return '"' + name.replace('"', '""') + '"'


def plan(
    state: PublicationState,
    wanted: Iterable[TableState],
    leaves: Mapping[int, tuple[TableState, ...]],
    version: int,
    old_row: OldRow = OldRow.LONG_VALUES,
) -> Plan:
    """What is missing for following these tables. `leaves` has the leaf partitions of each partitioned one."""
    tables = list(wanted)
    # A leaf that writes no changes would have rows in a snapshot, and never another one.
    every = [part for table in tables for part in (table, *leaves.get(table.oid, ()))]
    faults = [fault for part in every if (fault := unfit(part))]
    faults += _faults_of(state, tables)
    steps = [Step(sql, None) for sql in _publication_steps(state, version)]
    for table in tables:
        steps += [
            Step(f"ALTER TABLE {part.sql} REPLICA IDENTITY FULL;", part.oid, part.sql)
            for part in (table, *leaves.get(table.oid, ()))
            # The identity of a partitioned table itself is never used: its partitions each have their own.
            if part.kind == "r" and _lacks(part, old_row, has_key=table.has_key)
        ]
        if not is_published(state, table):
            # ONLY: else tables that inherit from it are published too, without an identity, and their UPDATE fails.
            steps.append(Step(f"ALTER PUBLICATION {quote(state.name)} ADD TABLE ONLY {table.sql};", table.oid))
    return Plan(tuple(steps), tuple(faults))


def _lacks(part: TableState, old_row: OldRow, *, has_key: bool) -> bool:
    """Whether changes of a table, or of a partition of it, come with too little. `has_key`: the table has one."""
    if part.replica_identity == "f":
        return False
    match old_row:
        case OldRow.ANY:
            return not part.can_identify
        case OldRow.KEY:
            return not (has_key and part.sends_key)
        case OldRow.LONG_VALUES:
            return not (has_key and part.sends_key) or bool(part.toastable_columns)
        case OldRow.WHOLE:
            return True


def is_published(state: PublicationState, table: TableState) -> bool:
    """Whether the publication has the table, by itself or through its root, its schema, or as all tables."""
    return (
        state.all_tables or table.oid in state.tables or table.root in state.tables or table.schema_oid in state.schemas
    )


def unfit(table: TableState) -> Fault | None:
    """Why a table cannot be followed at all."""
    kinds = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "t": "a TOAST table"}
    if table.kind not in "rp":
        return Fault(str(table), f"it is {kinds.get(table.kind, 'no table')}, which writes no logical changes")
    if table.persistence != "p":
        return Fault(str(table), "it is unlogged or temporary, and so in no WAL")
    return None


def _publication_steps(state: PublicationState, version: int) -> Iterable[str]:
    options = [f"publish = '{', '.join(ROW_ACTIONS)}'", "publish_via_partition_root = false"]
    if version >= GENERATED_SINCE:
        options.append("publish_generated_columns = stored")
    if state.oid is None:
        yield f"CREATE PUBLICATION {quote(state.name)} WITH ({', '.join(options)});"
        return
    wrong = [
        option
        for option, is_wrong in zip(
            options,
            (set(state.actions) != set(ROW_ACTIONS), state.via_root, state.generated == "n"),
            strict=False,  # the last one only where the server has it
        )
        if is_wrong
    ]
    if wrong:
        yield f"ALTER PUBLICATION {quote(state.name)} SET ({', '.join(wrong)});"


def _faults_of(state: PublicationState, tables: list[TableState]) -> Iterable[Fault]:
    for table in tables:
        member = state.tables.get(table.oid) or state.tables.get(table.root)
        if member is None:
            continue
        if member.row_filter is not None:
            # An UPDATE across the filter arrives as INSERT or DELETE, and a TRUNCATE without regard to it.
            yield Fault(str(table), "the publication filters its rows; shapes filter for themselves")
        if member.columns is not None:
            yield Fault(str(table), "the publication leaves out columns; shapes choose for themselves")


def changes_between(then: PublicationState, now: PublicationState) -> tuple[PublicationChange, ...]:
    """What was altered between two looks, by whomever."""
    if now.oid is None:
        return () if then.oid is None else (PublicationChange(None, f"the publication {now.name!r} is gone"),)
    if then.oid != now.oid:
        return (PublicationChange(None, f"the publication {now.name!r} was made anew"),)
    found = []
    if (then.name, then.xmin) != (now.name, now.xmin):
        found.append(PublicationChange(None, f"the publication {now.name!r} itself was altered"))
    found += [PublicationChange(None, text) for _, text in _member_changes(then.schemas, now.schemas, "the schema")]
    found += [
        PublicationChange(oid, text, parts_of(then, oid) - _members_of_both(then, now))
        for oid, text in _member_changes(then.tables, now.tables, "the table")
    ]
    found += _partition_changes(then, now)
    found += _placement_changes(then, now)
    return tuple(found)


def _placement_changes(then: PublicationState, now: PublicationState) -> Iterable[PublicationChange]:
    """What left a published schema, or was away meanwhile. What came was followed by nobody through it."""
    for oid in sorted(then.placed.keys() - now.placed.keys(), key=int):
        text = f"the table {oid} was dropped, or left a published schema"
        yield PublicationChange(int(oid), text, parts_of(then, int(oid)))
    for oid in sorted(then.placed.keys() & now.placed.keys(), key=int):
        if then.placed[oid] != now.placed[oid]:
            text = f"the table {oid} left its published schema, and came back"
            yield PublicationChange(int(oid), text, parts_of(then, int(oid)))


def _partition_changes(then: PublicationState, now: PublicationState) -> Iterable[PublicationChange]:
    """What was taken off was not published meanwhile, and what is above it has lost or got rows without a change."""
    for root in sorted(then.partitions.keys() & now.partitions.keys()):
        before, after = then.partitions[root], now.partitions[root]
        detached = {leaf for leaf in before if before[leaf] != after.get(leaf)}
        attached = {leaf for leaf in after if after[leaf] != before.get(leaf)}
        if attached or detached:
            counts = f"{len(attached)} attached, {len(detached)} detached or dropped"
            parts = {step for leaf in detached for step in _steps(before[leaf])}
            parts |= {step for leaf in attached for step in _steps(after[leaf])[:-1]}
            yield PublicationChange(
                int(root),
                f"the partitions of the table {root} are others: {counts}",
                frozenset(parts) - _members_of_both(then, now),
            )


def _members_of_both(then: PublicationState, now: PublicationState) -> frozenset[int]:
    """Published by themselves, whatever becomes of the tables above them; what befalls them is told of themselves."""
    return frozenset(then.tables.keys() & now.tables.keys())


def _member_changes(then: Mapping[int, Member], now: Mapping[int, Member], what: str) -> Iterable[tuple[int, str]]:
    """Which were altered, and how in words."""
    for oid in sorted(then.keys() | now.keys()):
        before, after = then.get(oid), now.get(oid)
        if before == after:
            continue
        if after is None:
            verb = "was taken out of the publication"
        elif before is None:
            verb = "was added to the publication"
        elif (before.oid, before.xmin) == (after.oid, after.xmin):
            continue  # only the name is another: a rename leaves the publication as it was
        else:
            verb = "was taken out and added again, or its filter or columns were altered"
        member = after or before
        assert member is not None, "an oid of one of the two mappings"
        yield oid, f"{what} {member.name} {verb}"


def _steps(path: str) -> list[int]:
    """The partitions on the way to a leaf, which is the last of them."""
    return [int(step.partition(":")[0]) for step in path.split("/")[1:]]


def parts_of(state: PublicationState, table: int) -> frozenset[int]:
    """The partitions of a table that is published as a partitioned one, at whatever depth."""
    return frozenset(step for path in state.partitions.get(str(table), {}).values() for step in _steps(path))


def leaves_of(state: PublicationState, table: int) -> frozenset[int] | None:
    """The leaves of a partitioned table as they were seen; None if it was in no tree that is published."""
    if str(table) in state.partitions:
        return frozenset(map(int, state.partitions[str(table)]))
    ways = [_steps(path) for leaves in state.partitions.values() for path in leaves.values()]
    return frozenset(way[-1] for way in ways if table in way[:-1]) or None


def leaves_to_roots(state: PublicationState) -> dict[int, int]:
    """For each partition, the published table that its changes belong to; other tables are their own root."""
    return {int(leaf): int(root) for root, leaves in state.partitions.items() for leaf in leaves}
