"""What shapes are told of changes, against a model that takes one change and one shape at a time.

Strategy: random histories of few rows with few values, so that keys change, rows move in and out and updates change
nothing, for tables with all kinds of keys and identities; cut into fragments anywhere; for shapes with all kinds
of views and clauses, some of which fail. Each shape is told what the model says, and its rows, applied one by one to
nothing, give the rows of the table that it is about.

Invariants: those at the head of `shapes.deliveries`, `shapes.matching` and `shapes.variants`.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.source.fragments import Kind, OldTuple
from shapes.deliveries import Part, deliver
from shapes.views import View
from storage.rows import XID, check_schema, column
from tests.unit.changed_table import (
    COLUMNS,
    DRAWS,
    LIVELY,
    Change,
    ChangedTable,
    Draw,
    PlainRouter,
    Predicate,
    Values,
    changes_of,
)

FULL = frozenset(COLUMNS)

XIDS = np.arange(2**32 - 30, 2**32, dtype=np.uint32)[::-1]
"""Who the transactions of a fragment are, by their ordinals."""

PREDICATES: list[Predicate | None] = [
    None,
    None,
    lambda row: row["text"] == "1",
    lambda row: row["note"] is None,
    lambda row: row["id"] in {"1", "2"},
    lambda row: row["part"] != "1",
    lambda row: row["text"] == row["note"],
    lambda row: True,
    lambda row: False,
]

FAILING: Predicate = lambda row: 1 // (row["c9"] != "é") == 1  # noqa: E731 - one of the predicates
"""Fails for some rows."""


@dataclass(frozen=True)
class Shape:
    view: View
    predicate: Predicate | None


class Told(NamedTuple):
    """A row of a log; `new` has what is there."""

    offset: tuple[int, int]
    kind: Kind
    new: Values | None
    old: Values | None = None


# The model


def model(shape: Shape, sent: list[Change], identity: frozenset[str]) -> tuple[list[Told], set[str]]:
    """What a shape is told of a fragment, and why it cannot be."""
    told: list[Told] = []
    faults: set[str] = set()
    for change in sent:
        try:
            told += told_of(shape, change, identity)
        except ZeroDivisionError:
            faults.add("where_failed")
        except LookupError as fault:
            faults.add(str(fault.args[0]))
    return told, faults


def told_of(shape: Shape, change: Change, identity: frozenset[str]) -> Iterator[Told]:
    view, before, after = shape.view, change.before, change.after
    at = change.tx, change.op
    if change.kind == Kind.TRUNCATE:
        yield Told(at, Kind.TRUNCATE, None)
        return
    if before is not None:
        if change.old_tuple != OldTuple.FULL and (shape.predicate or view.full):
            raise LookupError("old_row_missing")
        if not all(is_known_before(change, name, identity) for name in view.key):
            raise LookupError("key_unknown")
    was = before is not None and (shape.predicate is None or shape.predicate(before))
    now = after is not None and (shape.predicate is None or shape.predicate(after))
    if was and now:
        yield from told_of_update(view, change, identity)
    elif now:
        yield Told(at, Kind.INSERT, some(after, view.columns))
    elif was:
        yield Told(at, Kind.DELETE, some(before, view.columns if view.full else view.key))


def told_of_update(view: View, change: Change, identity: frozenset[str]) -> Iterator[Told]:
    before, after, at = change.before, change.after, (change.tx, change.op)
    news = {name for name in view.columns if is_news(change, name, identity)}
    if news & set(view.key):
        if any(name in change.unsent and not is_known_before(change, name, identity) for name in view.columns):
            raise LookupError("key_change_incomplete")
        yield Told(at, Kind.DELETE, some(before, view.columns if view.full else view.key))
        yield Told((change.tx, change.op + 1), Kind.INSERT, some(after, view.columns))
    elif news and view.full:
        yield Told(at, Kind.UPDATE, some(after, view.columns), some(before, view.columns))
    elif news:
        yield Told(at, Kind.UPDATE, some(after, news | set(view.key)))


def is_known_before(change: Change, name: str, identity: frozenset[str]) -> bool:
    return change.old_tuple == OldTuple.FULL or name in identity


def is_news(change: Change, name: str, identity: frozenset[str]) -> bool:
    assert change.before is not None
    assert change.after is not None
    if is_known_before(change, name, identity):
        return change.before[name] != change.after[name]
    return name not in change.unsent


def some(row: Values | None, names: Collection[str]) -> Values:
    assert row is not None
    return {name: value for name, value in row.items() if name in names}


# What is compared


def told_in(part: Part) -> dict[int, list[Told]]:
    """What each shape of a part is told."""
    rows = [told_row(row, part.view) for row in part.rows.to_pylist()]
    return {
        shape: [rows[index] for index in part.indices[start:stop].tolist()]
        for shape, (start, stop) in zip(part.shapes.tolist(), pairwise(part.starts.tolist()), strict=True)
    }


def told_row(row: dict[str, Any], view: View) -> Told:
    bits = int.from_bytes(row["absent"] or b"", "little")
    new = row["new"]
    if new is not None:
        assert list(new) == list(view.columns)
        assert all(new[name] is None for bit, name in enumerate(view.columns) if bits >> bit & 1)
        new = {name: new[name] for bit, name in enumerate(view.columns) if not bits >> bit & 1}
    return Told((row["tx"], row["op"]), Kind(row["kind"]), new, row.get("old"))


def applied(view: View, told: list[Told], rows: list[Values]) -> list[Values]:
    """A shape's rows after what it is told, one by one; everything that is told must fit."""
    rows = list(rows)
    for one in told:
        if one.new is None:
            rows.clear()
        elif one.kind == Kind.INSERT:
            assert set(one.new) == set(view.columns)
            assert not view.has_key or not any(some(row, view.key) == some(one.new, view.key) for row in rows)
            rows.append(one.new)
        else:
            place = next(place for place, row in enumerate(rows) if some(row, view.key) == some(one.new, view.key))
            assert one.old is None or rows[place] == one.old
            rows[place : place + 1] = [rows[place] | one.new] if one.kind == Kind.UPDATE else []
    return rows


def counted(rows: list[Values]) -> Counter[tuple[tuple[str, str | None], ...]]:
    return Counter(tuple(sorted(row.items())) for row in rows)


# Random histories


@st.composite
def tables(draw: st.DrawFn) -> ChangedTable:
    key = draw(st.sampled_from([("id",), ("part", "id"), ()]))
    identities = [FULL, FULL, FULL, frozenset(key), frozenset({*key, "note"}), frozenset({"note"})]
    return ChangedTable(key, draw(st.sampled_from([identity for identity in identities if identity])))


def shapes_of(table: ChangedTable) -> st.SearchStrategy[dict[int, Shape]]:
    """Some views, some shapes of each; few of them are such that the first change ends them."""
    is_apt = table.is_full
    selections = st.sets(st.sampled_from(LIVELY)) | st.just(set(COLUMNS))
    is_full = st.booleans() if is_apt else st.sampled_from([False] * 5 + [True])
    predicates = st.sampled_from([*PREDICATES * 2, FAILING] if is_apt else [*[None] * len(PREDICATES), *PREDICATES])
    views = st.builds(lambda names, full: view_of(table.key, names, full=full), selections, is_full)
    few_views = st.lists(views, min_size=1, max_size=3)
    shapes = few_views.flatmap(
        lambda found: st.lists(st.builds(Shape, st.sampled_from(found), predicates), min_size=1, max_size=8)
    )
    return shapes.map(lambda found: {7 * number + 3: shape for number, shape in enumerate(found)})


def view_of(key: tuple[str, ...], names: Collection[str], *, full: bool) -> View:
    columns = tuple(name for name in COLUMNS if name in {*names, *key}) or ("id",)
    return View(columns, key or tuple(sorted(columns)), full, bool(key))


@settings(max_examples=400)
@given(st.data(), tables(), DRAWS, st.sets(st.integers(1, 24), max_size=4))
def test_shapes_are_told_what_the_model_says(
    data: st.DataObject, table: ChangedTable, draws: list[Draw], cuts: set[int]
) -> None:
    shapes = data.draw(shapes_of(table))
    living = dict(shapes)
    rows: dict[int, list[Values]] = {shape: [] for shape in shapes}
    bounds = sorted({0, len(draws), *(cut for cut in cuts if cut < len(draws))})
    for start, stop in pairwise(bounds):
        sent, ordinals = more_of(table, draws[start:stop])
        if not sent:
            continue
        router = PlainRouter({number: shape.predicate for number, shape in living.items()})
        changes = changes_of(table.relation(), sent, ordinals)
        delivered = deliver(changes, XIDS, 1, router, lambda number: shapes[number].view)
        told = {shape: rows for part in delivered.parts for shape, rows in told_in(part).items()}
        for part in delivered.parts:
            check_part(part, sent, ordinals)
        assert len({part.view for part in delivered.parts}) == len(delivered.parts)
        for number, shape in list(living.items()):
            expected, reasons = model(shape, sent, table.identity)
            if reasons:
                assert delivered.faults[number].code in reasons
                assert number not in told
                del living[number]
                continue
            assert number not in delivered.faults
            assert told.get(number, []) == expected
            rows[number] = applied(shape.view, expected, rows[number])
            matching = [row for row in table.rows if shape.predicate is None or shape.predicate(row)]
            assert counted(rows[number]) == counted([some(row, shape.view.columns) for row in matching])
        real = [row for change in sent for row in (change.before, change.after)]
        assert all(row in real for row in router.asked), "the router was asked of a row that never was"


def more_of(table: ChangedTable, draws: list[Draw]) -> tuple[list[Change], list[int]]:
    """Run draws; what they sent, and the ordinal of each change's transaction among those of the fragment."""
    first, done = len(table.history) - 1, len(table.history[-1])
    table.run(draws)
    sent = [change for transaction in table.history[first:] for change in transaction][done:]
    return sent, [change.tx // 100 - (first + 1) for change in sent]


def check_part(part: Part, sent: list[Change], ordinals: list[int]) -> None:
    """What holds of every part, whatever the changes are."""
    check_schema(part.rows.schema)
    part.rows.validate(full=True)
    assert part.rows.num_rows == len(np.unique(part.indices)), "a row that nobody wants"
    offsets = [(row["tx"], row["op"]) for row in part.rows.to_pylist()]
    assert offsets == sorted(offsets)
    ordinal_of = {change.tx: ordinal for change, ordinal in zip(sent, ordinals, strict=True)}
    assert part.ordinals.tolist() == [ordinal_of[offsets[index][0]] for index in part.indices.tolist()]
    assert column(part.rows, XID).tolist() == [XIDS[ordinal_of[tx]] for tx, _ in offsets]
    assert (np.diff(part.shapes) > 0).all()
    assert (np.diff(part.starts) > 0).all()
    assert (part.starts[0], part.starts[-1]) == (0, len(part.indices))
    for start, stop in pairwise(part.starts.tolist()):
        own = [offsets[index] for index in part.indices[start:stop].tolist()]
        assert all(earlier < later for earlier, later in pairwise(own))


# Single facts


ROW: Values = {**dict.fromkeys(COLUMNS, "same"), "id": "1"}
KEYED = view_of(("id",), COLUMNS, full=False)


def delivered_of(table: ChangedTable, sent: list[Change], *, excused: bool = False, where: bool = False) -> Any:
    router = PlainRouter({5: (lambda row: True) if where else None})
    changes = changes_of(table.relation(), sent, range(len(sent)))
    return changes, deliver(
        changes, XIDS, 1, router, lambda _: KEYED, lambda shape, seen: excused and seen.tolist() == [1]
    )


def test_plain_inserts_are_not_copied() -> None:
    sent = [Change(100, 2 * number, Kind.INSERT, after=ROW | {"id": str(number)}) for number in range(3)]
    changes, delivered = delivered_of(ChangedTable(("id",), FULL), sent)
    (part,) = delivered.parts
    assert column(part.rows, XID).tolist() == XIDS[:3].tolist()
    own, came = part.rows.drop_columns([XID]), changes.rows
    assert own.schema.equals(came.schema)
    assert [places(values) for values in own.columns] == [places(values) for values in came.columns]


def places(values: pa.Array) -> list[int | None]:
    """Where a column's bytes are in memory."""
    return [None if buffer is None else buffer.address for buffer in values.buffers()]


def test_views_that_take_all_inserts_as_they_came_share_them() -> None:
    sent = [Change(100, 0, Kind.INSERT, after=ROW)]
    changes = changes_of(ChangedTable(("id",), FULL).relation(), sent, [0])
    views = {5: KEYED, 6: view_of(("id",), COLUMNS, full=True)}
    one, other = deliver(changes, XIDS, 1, PlainRouter({5: None, 6: None}), views.__getitem__).parts
    assert one.rows is other.rows


def test_the_rows_of_many_shapes_with_two_views_stay_in_order() -> None:
    """So many that a sort shows if it is not stable."""
    sent = [Change(100, 2 * number, Kind.INSERT, after=ROW | {"id": str(number)}) for number in range(5)]
    ordinals = [0] * len(sent)
    changes = changes_of(ChangedTable(("id",), FULL).relation(), sent, ordinals)
    two = (KEYED, view_of(("id",), {"text"}, full=False))
    router = PlainRouter(dict.fromkeys(range(40)))
    parts = deliver(changes, XIDS, 1, router, lambda shape: two[shape % 2]).parts
    assert [part.shapes.tolist() for part in parts] == [list(range(0, 40, 2)), list(range(1, 40, 2))]
    for part in parts:
        check_part(part, sent, ordinals)


@pytest.mark.parametrize("where", [False, True])
def test_a_table_that_nobody_follows_costs_nothing(where: bool) -> None:
    sent = [Change(100, 0, Kind.INSERT, after=ROW)]
    changes = changes_of(ChangedTable(("id",), FULL).relation(), sent, [0])
    router = PlainRouter({5: lambda row: False} if where else {})
    assert deliver(changes, XIDS, 1, router, lambda _: KEYED).parts == ()


def test_a_shape_whose_snapshot_has_the_transactions_at_fault_goes_on() -> None:
    table = ChangedTable(("id",), frozenset({"id"}))
    update = Change(200, 0, Kind.UPDATE, ROW, ROW | {"text": "2"})
    sent = [Change(100, 0, Kind.INSERT, after=ROW), update]
    _, delivered = delivered_of(table, sent, where=True)
    assert (delivered.parts, delivered.faults[5].code) == ((), "old_row_missing")
    assert "ALTER TABLE public.t REPLICA IDENTITY FULL" in delivered.faults[5].hint
    _, delivered = delivered_of(table, sent, where=True, excused=True)
    assert [part.rows.to_pylist()[0]["tx"] for part in delivered.parts] == [100]
    assert delivered.faults == {}


def test_an_update_that_does_not_say_its_key_is_a_fault() -> None:
    update = Change(100, 0, Kind.UPDATE, ROW, ROW | {"text": "2"}, unsent=frozenset({"id"}))
    _, delivered = delivered_of(ChangedTable(("id",), frozenset({"id"})), [update])
    assert (delivered.parts, delivered.faults[5].code) == ((), "key_unknown")


def test_a_row_that_shapes_see_in_two_forms_is_there_twice_and_one_that_none_wants_is_not() -> None:
    before, after = ROW | {"id": "2"}, ROW | {"id": "2", "text": "in"}
    sent = [
        Change(100, 0, Kind.INSERT, after=ROW | {"text": "out"}),
        Change(100, 2, Kind.UPDATE, before, after, OldTuple.FULL),
    ]
    changes = changes_of(ChangedTable(("id",), FULL).relation(), sent, [0, 0])
    router = PlainRouter({5: lambda row: row["text"] == "in", 6: lambda row: row["id"] == "2"})
    (part,) = deliver(changes, XIDS, 1, router, lambda _: KEYED).parts
    assert told_in(part) == {
        5: [Told((100, 2), Kind.INSERT, after)],
        6: [Told((100, 2), Kind.UPDATE, {"id": "2", "text": "in"})],
    }


def test_a_column_that_does_not_come_any_more_is_a_fault() -> None:
    table = ChangedTable(("id",), FULL)
    changes = changes_of(table.relation(COLUMNS[:-1]), [Change(100, 0, Kind.INSERT, after=ROW)], [0])
    delivered = deliver(changes, XIDS, 1, PlainRouter({5: None}), lambda _: KEYED)
    assert (delivered.parts, delivered.faults[5].code) == ((), "column_missing")
    assert "c9" in delivered.faults[5].text


@pytest.mark.parametrize("key", [(), ("other",)])
def test_a_view_has_a_key_among_its_columns(key: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="must be one or more of the columns"):
        View(("id",), key, full=False, has_key=True)
