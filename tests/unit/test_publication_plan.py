"""Plans for a publication, against a model of what their statements do."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdc.source.publication import (
    GENERATED_SINCE,
    ROW_ACTIONS,
    Member,
    OldRow,
    PublicationState,
    TableState,
    demanded,
    is_published,
    plan,
    quote,
    unfit,
)

names = st.text(st.sampled_from('ab"; \u00e4A'), min_size=1, max_size=4)


@st.composite
def tables(draw: st.DrawFn, *, kinds: str = "rp") -> TableState:
    oid = draw(st.integers(1, 10**6))
    return TableState(
        oid=oid,
        schema="s",
        name=draw(names),
        kind=draw(st.sampled_from(kinds)),
        persistence="p",
        replica_identity=draw(st.sampled_from("dnfi")),
        has_key=draw(st.booleans()),
        root=oid,
        schema_oid=7,
        toastable_columns=draw(st.sampled_from([(), ("long",)])),
    )


publications = st.one_of(
    st.just(PublicationState("p")),
    st.builds(
        PublicationState,
        st.just("p"),
        st.just(1),
        all_tables=st.booleans(),
        via_root=st.booleans(),
        actions=st.sets(st.sampled_from(ROW_ACTIONS)).map(tuple),
        generated=st.sampled_from("ns"),
        schemas=st.sampled_from([{}, {7: Member(2, 2, "s")}]),
    ),
)


def perform(sql: str, state: PublicationState, found: list[TableState]) -> tuple[PublicationState, list[TableState]]:
    """What the server would do."""
    if match := re.fullmatch(r"ALTER TABLE (.*) REPLICA IDENTITY FULL;", sql):
        assert [table for table in found if table.sql == match[1]], "the table exists"
        return state, [replace(table, replica_identity="f") if table.sql == match[1] else table for table in found]
    if match := re.fullmatch(r'ALTER PUBLICATION "p" ADD TABLE ONLY (.*);', sql):
        assert state.oid is not None, "the publication exists by now"
        added = {table.oid: Member(table.oid, 9, str(table)) for table in found if table.sql == match[1]}
        return replace(state, tables={**state.tables, **added}), found
    match = re.fullmatch(r'(CREATE|ALTER) PUBLICATION "p" (?:WITH|SET) \((.*)\);', sql)
    assert match, sql
    assert (match[1] == "CREATE") == (state.oid is None)
    state = replace(state, oid=1, generated=state.generated or "n")
    if "publish = 'insert, update, delete, truncate'" in match[2]:
        state = replace(state, actions=ROW_ACTIONS)
    if "publish_via_partition_root = false" in match[2]:
        state = replace(state, via_root=False)
    if "publish_generated_columns = stored" in match[2]:
        state = replace(state, generated="s")
    return state, found


@given(
    state=publications,
    wanted=st.lists(tables(), max_size=5, unique_by=(lambda table: table.oid, lambda table: table.name)),
    version=st.sampled_from([150_000, 160_000, GENERATED_SINCE]),
    old_row=st.sampled_from(OldRow),
)
def test_a_plan_leaves_nothing_to_plan(
    state: PublicationState, wanted: list[TableState], version: int, old_row: OldRow
) -> None:
    before = wanted
    todo = plan(state, wanted, {}, version, old_row=old_row)
    assert not todo.faults
    for step in todo.steps:
        state, wanted = perform(step.sql, state, wanted)
    assert plan(state, wanted, {}, version, old_row=old_row).steps == ()
    assert state.oid is not None
    assert not state.via_root
    assert set(state.actions) == set(ROW_ACTIONS)
    assert all(is_published(state, table) for table in wanted)
    for table, then in zip(wanted, before, strict=True):
        assert table.replica_identity == (FULL if is_raised(then, old_row) else then.replica_identity)
        assert table.kind == "p" or table.can_identify, "publishing it would make UPDATE fail"


FULL = "f"


def is_raised(table: TableState, old_row: OldRow) -> bool:
    """Whether its identity has to become FULL: what the pages promise, one sentence a line."""
    if table.kind == "p":
        return False  # partitions have theirs
    if old_row is OldRow.WHOLE:
        return True
    if old_row is OldRow.LONG_VALUES and table.toastable_columns:
        return True
    if old_row is not OldRow.ANY:
        return table.replica_identity != FULL and (table.replica_identity != "d" or not table.has_key)
    return table.replica_identity == "n" or (table.replica_identity == "d" and not table.has_key)


def test_each_partition_is_looked_at_but_the_key_is_that_of_the_root() -> None:
    root = TableState(1, "s", "root", "p", "p", "d", has_key=True, root=1)
    plain = TableState(2, "s", "plain", "r", "p", "d", has_key=True, root=1)
    long = replace(plain, oid=3, name="long", toastable_columns=("t",))
    state = PublicationState("p", 1, tables={1: Member(1, 1, "s.root")}, generated="s")
    asked = [
        [step.table for step in plan(state, [table], {1: (plain, long)}, 160_000, old_row=old_row).steps]
        for table in (root, replace(root, has_key=False))
        for old_row in OldRow
    ]
    assert asked == [[], [], [3], [2, 3], [], [2, 3], [2, 3], [2, 3]]


def test_where_nothing_is_altered_long_values_are_not_asked_for() -> None:
    assert [demanded(old_row, "manual") for old_row in OldRow] == [OldRow.ANY, OldRow.KEY, OldRow.KEY, OldRow.WHOLE]
    assert [demanded(old_row, "managed") for old_row in OldRow] == [*OldRow]


@given(tables(kinds="vmfSt"))
def test_what_writes_no_changes_is_a_fault(table: TableState) -> None:
    assert unfit(table)
    assert plan(PublicationState("p", 1), [table], {}, 150_000).faults


@given(tables())
def test_filters_and_column_lists_are_faults(table: TableState) -> None:
    for member in (Member(1, 1, "t", row_filter="(i > 1)"), Member(1, 1, "t", columns=("a",))):
        state = PublicationState("p", 1, tables={table.oid: member})
        assert plan(state, [table], {}, 150_000).faults


@given(names)
def test_a_quoted_name_reads_back(name: str) -> None:
    quoted = quote(name)
    assert quoted[0] == quoted[-1] == '"'
    assert re.fullmatch(r'(?:[^"]|"")*', quoted[1:-1])
    assert quoted[1:-1].replace('""', '"') == name
