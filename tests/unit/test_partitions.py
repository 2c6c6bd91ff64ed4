"""Changes of partitions, put together as their root's, are what the root would have sent.

Strategy: random histories of one table, each change given to one of some leaves, whose columns are in other orders; the
merged changes are compared with those of the table as if it had no partitions.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.source.fragments import Changes, Fragment, Kind, Transactions, Truncate
from shapes.partitions import Partitions, as_root
from tests.unit.changed_table import COLUMNS, DRAWS, Change, ChangedTable, Draw, Values, changes_of

FULL = frozenset(COLUMNS)
ROOT = 1
ROW: Values = dict.fromkeys(COLUMNS, "same")


def fragment_of(changes: Sequence[Changes]) -> Fragment:
    nothing = np.zeros(0, np.uint64)
    transactions = Transactions(np.zeros(0, np.uint32), nothing, nothing, np.zeros(0, np.int64), nothing)
    return Fragment(transactions, False, False, tuple(changes), truncates=(Truncate(0, 0, (2,), False, False),))


@given(
    DRAWS,
    st.sampled_from([FULL, frozenset({"id"})]),
    st.lists(st.permutations(COLUMNS) | st.just(COLUMNS), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=25, max_size=25),
)
def test_leaves_together_are_their_root(
    draws: list[Draw], identity: frozenset[str], orders: list[Sequence[str]], homes: list[int]
) -> None:
    table = ChangedTable(("id",), identity)
    table.run(draws)
    sent = [change for transaction in table.history for change in transaction]
    home = {(change.tx, change.op): homes[place] % len(orders) for place, change in enumerate(sent)}
    leaves = []
    for number, order in enumerate(orders):
        own = [change for change in sent if home[change.tx, change.op] == number]
        if own:
            relation = table.relation(order, oid=2 + number)
            leaves.append(changes_of(relation, own, [change.tx // 100 for change in own]))

    found = as_root(table.relation(), leaves)

    rest = [change for change in sent if change.kind != Kind.TRUNCATE]
    if rest:
        wanted = changes_of(table.relation(), rest, [change.tx // 100 for change in rest])
        assert found.changes is not None
        assert found.changes.relation == wanted.relation
        assert found.changes.rows.to_pylist() == wanted.rows.to_pylist()
        assert found.changes.transaction.tolist() == wanted.transaction.tolist()
        assert found.changes.old_tuple.tolist() == wanted.old_tuple.tolist()
        found.changes.rows.validate(full=True)
    else:
        assert found.changes is None
    truncates = [
        (changes.relation.oid - 2, row["tx"], row["op"])
        for changes in found.truncates
        for row in changes.rows.to_pylist()
    ]
    emptied = [change for change in sent if change.kind == Kind.TRUNCATE]
    assert sorted(truncates) == sorted((home[change.tx, change.op], change.tx, change.op) for change in emptied)


def test_one_leaf_with_the_root_s_columns_is_not_copied() -> None:
    table = ChangedTable(("id",), FULL)
    leaf = changes_of(table.relation(oid=2), [Change(100, 0, Kind.INSERT, after=ROW)], [0])
    found = as_root(table.relation(), [leaf])
    assert found.changes is not None
    assert found.changes.rows is leaf.rows
    assert found.changes.relation.oid == ROOT


def test_the_identity_is_what_all_leaves_send() -> None:
    wide, narrow = ChangedTable(("id",), frozenset({"id", "note"})), ChangedTable(("id",), frozenset({"id"}))
    sent = [Change(100, 0, Kind.INSERT, after=ROW)]
    leaves = [changes_of(wide.relation(oid=2), sent, [0]), changes_of(narrow.relation(oid=3), sent, [0])]
    found = as_root(wide.relation(), leaves)
    assert found.changes is not None
    assert [entry.name for entry in found.changes.relation.columns if entry.in_identity] == ["id"]


def test_a_column_that_a_leaf_lacks_is_missing_and_one_that_the_root_lacks_is_left_out() -> None:
    table = ChangedTable(("id",), FULL)
    leaf = changes_of(table.relation(COLUMNS[1:], oid=2), [Change(100, 0, Kind.INSERT, after=ROW)], [0])
    found = as_root(table.relation(COLUMNS[:-1]), [leaf])
    assert found.changes is not None
    assert [entry.name for entry in found.changes.relation.columns] == list(COLUMNS[1:-1])
    assert list(found.changes.rows.to_pylist()[0]["new"]) == list(COLUMNS[1:-1])


def test_a_leaf_counts_for_each_of_its_roots_until_they_are_forgotten() -> None:
    table, partitions = ChangedTable(("id",), FULL), Partitions()
    partitions.follow(table.relation(), [2, 3])
    partitions.follow(table.relation(oid=9), [3])
    inserted = [Change(100, 0, Kind.INSERT, after=ROW)]
    emptied = [Change(100, 2, Kind.TRUNCATE)]
    fragment = fragment_of(
        [
            changes_of(table.relation(oid=2), emptied, [0]),
            changes_of(table.relation(oid=3), inserted, [0]),
            changes_of(table.relation(oid=4), inserted, [0]),
        ]
    )
    assert partitions.roots_of(3) == (ROOT, 9)
    assert [(root, changes.rows.num_rows) for root, changes in partitions.merged(fragment)] == [(ROOT, 1), (9, 1)]
    assert [(root, changes.relation.oid) for root, changes in partitions.truncated(fragment)] == [(ROOT, 2)]

    partitions.follow(table.relation(), [2])
    assert partitions.roots_of(3) == (9,)
    partitions.forget(9)
    assert partitions.roots_of(3) == ()
    assert list(partitions.merged(fragment)) == []


@pytest.mark.parametrize("order", [COLUMNS, COLUMNS[::-1]])
def test_what_was_not_sent_is_found_by_name(order: Sequence[str]) -> None:
    table = ChangedTable(("id",), frozenset({"id"}))
    update = Change(100, 0, Kind.UPDATE, ROW, ROW | {"text": "new"}, unsent=frozenset({"c9"}))
    leaf = changes_of(table.relation(order, oid=2), [update], [0])
    found = as_root(table.relation(), [leaf])
    assert found.changes is not None
    assert found.changes.rows.to_pylist()[0]["absent"] == b"\x00\x01"
